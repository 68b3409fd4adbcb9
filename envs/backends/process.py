"""The process backend: worker processes that step the slots, with the rows in shared memory and a pipe each way for everything else."""

from __future__ import annotations

import inspect
import json
import math
import os
import select
import signal
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from multiprocessing import util
from typing import Any

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from envs.backends.arena import Arena
from envs.backends.base import Backend, BackendConfig, BackendError, Block, Commands, Fault, cut_blocks, split_evenly
from envs.backends.launch import Child, check_startable, hang_up, resolve, start_children
from envs.backends.worker import REPLY, REQUEST, SHAPE, TEXT_LIMIT, Blueprint, Kind, Status
from envs.base import Layout

PICTURE_LIMIT = 1 << 28
STACK_WAIT_MS = 100
"""how long a worker that does not answer may take to write the next line of its stack"""


class _Worker:
    """One worker as the trainer sees it: its slots, its pipes, and the requests that it has not answered yet (in order)."""

    def __init__(self, number: int, start: int, stop: int, child: Child) -> None:
        self.number, self.start, self.stop, self.child = number, start, stop, child
        self.posts: deque[tuple[int, NDArray[np.int64], NDArray[np.int64]]] = deque()
        self.posted = -1
        self.answered = -1
        self.lost = ""
        self.poll = select.poll()
        self.poll.register(child.replies, select.POLLIN)
        self.poll.register(child.process.sentinel, select.POLLIN)

    def send(self, frame: bytes, timeout: float) -> bool:
        """Write a request; False if nobody reads it."""
        try:
            sent = os.write(self.child.requests, frame)
        except BlockingIOError:
            sent = 0
        except BrokenPipeError:
            return False
        return sent == len(frame) or self._send_rest(memoryview(frame)[sent:], timeout)

    def _send_rest(self, rest: memoryview, timeout: float) -> bool:
        poll, deadline = select.poll(), time.monotonic() + timeout
        poll.register(self.child.requests, select.POLLOUT)
        while rest:
            if not poll.poll(_milliseconds(deadline)):
                return False
            try:
                rest = rest[os.write(self.child.requests, rest) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                return False
        return True

    def has_reply(self, milliseconds: int = 0) -> bool:
        """Whether something can be read from it."""
        poll = select.poll()
        poll.register(self.child.replies, select.POLLIN)
        return any(event & select.POLLIN for _, event in poll.poll(milliseconds))

    def read(self, num_bytes: int, deadline: float) -> bytes:
        """So many bytes of its reply, or fewer if it died or stopped in the middle of it."""
        data = os.read(self.child.replies, num_bytes)
        while 0 < len(data) < num_bytes and self.has_reply(_milliseconds(deadline)):
            more = os.read(self.child.replies, num_bytes - len(data))
            if not more:
                break
            data += more
        return data

    def where_it_hangs(self) -> str:
        """The stack of a worker that does not answer, as text; only to be asked before it is killed."""
        try:
            os.kill(self.child.process.pid or 0, signal.SIGUSR1)
        except ProcessLookupError:
            return ""
        text = b""
        while len(text) < TEXT_LIMIT and self.has_reply(STACK_WAIT_MS):  # it comes line by line
            more = os.read(self.child.replies, TEXT_LIMIT)
            if not more:
                break
            text += more
        _, found, stack = text.partition(b"Stack (most recent call first):\n")
        return f"It was stopped here (most recent call first):\n{stack.decode(errors='replace')}" if found else ""

    def obituary(self) -> str:
        """How it died; kills it if it only closed its pipes."""
        process = self.child.process
        process.join(1.0)
        if process.exitcode is None:
            process.kill()
            process.join(1.0)
            return "was lost: its worker process closed its pipes"
        if process.exitcode >= 0:
            return f"was lost: its worker process exited with code {process.exitcode}"
        name = signal.Signals(-process.exitcode).name
        return f"was lost: its worker process was killed by signal {-process.exitcode} ({name}{'; out of memory?' if name == 'SIGKILL' else ''})"


class ProcessBackend(Backend):
    """Worker processes with an even part of the slots each.

    A round is one write and one read per worker and no pickling: actions and rows are in shared memory, a request only says which slots.
    Requests to a worker are answered in order, each by its sequence number, so slots of one worker can be posted and awaited independently.
    """

    def __init__(self, blocks: Sequence[Block], layout: Layout, *, num_workers: int, config: BackendConfig) -> None:
        check_startable(num_workers)
        self._method = resolve(config.start_method)
        self._config = config
        num_slots = blocks[-1].stop
        ranges = split_evenly(num_slots, num_workers)
        blueprints = [_pickled(Blueprint(cut_blocks(blocks, start, stop), layout, num_slots)) for start, stop in ranges]
        try:
            arena = Arena(layout, num_slots)
        except OSError as error:
            raise BackendError(f"The shared memory for the rows of {num_slots} slots could not be reserved: {error}.") from error
        self.rows, self._actions = arena.rows, arena.actions
        self._edges = np.array([start for start, _ in ranges] + [num_slots])
        self._sequence = 0
        self._sequence_of = np.full(num_slots, -1, np.int64)
        self._faults: list[Fault] = []
        self._picture = b""
        self._workers: list[_Worker] = []
        # Unlike weakref.finalize, this runs before multiprocessing's own exit handler, and never in a forked child.
        self._finalizer = util.Finalize(self, _shut_down, (self._workers, config.close_timeout_s), exitpriority=100)
        try:
            with closing(start_children(self._method, num_workers, arena.descriptor)) as children:
                for (start, stop), child in zip(ranges, children, strict=True):
                    self._workers.append(_Worker(len(self._workers), start, stop, child))
            self._build(blueprints)
        except BaseException:
            self.close()
            raise
        finally:
            arena.close()

    def _build(self, blueprints: Sequence[bytes]) -> None:
        """Let all workers build their environments at the same time; one error tells everything that went wrong."""
        timeout = self._config.construct_timeout_s
        deadline = time.monotonic() + timeout
        for worker, blueprint in zip(self._workers, blueprints, strict=True):
            slots = np.arange(worker.start, worker.stop)
            self._request(worker, Kind.BUILD, slots, slots[:0], blueprint, timeout)
        for worker in self._workers:
            self._await(worker, 0, deadline, timeout)
        if self._faults:
            raise BackendError(_construction_report(self._faults, self._workers))

    @property
    def description(self) -> str:
        count = len(self._workers)
        return f"{count} worker process{'es' if count > 1 else ''} ({self._method})"

    def pids(self) -> list[int]:
        return [worker.child.process.pid or 0 for worker in self._workers if not worker.lost]

    def close(self) -> None:
        self._finalizer()

    # -- posting -------------------------------------------------------------------------------------------------------------------------

    def post(self, slots: NDArray[np.int64], commands: Commands) -> None:
        self._sequence += 1
        timeout = self._config.call_timeout_s
        self._actions[slots] = commands.action[slots]
        self._sequence_of[slots] = self._sequence
        resets = commands.reset[slots]
        if resets.any():
            for worker, part in self._split(slots):
                own, fresh = slots[part], resets[part]
                starts = own[fresh]
                payload = cloudpickle.dumps((commands.task[starts], commands.seed[starts])) if len(starts) else b""
                self._request(worker, Kind.RUN, own[~fresh], starts, payload, timeout)
        else:
            nothing = slots[:0]
            for worker, part in self._split(slots):
                self._request(worker, Kind.RUN, slots[part], nothing, b"", timeout)

    def _split(self, slots: NDArray[np.int64]) -> Iterator[tuple[_Worker, slice]]:
        """The workers of these sorted slots, each with its part of them."""
        if not self._workers:
            raise RuntimeError("The backend is closed.")
        edges = np.searchsorted(slots, self._edges).tolist()
        for worker, first, last in zip(self._workers, edges[:-1], edges[1:], strict=True):
            if first < last:
                yield worker, slice(first, last)

    def _request(self, worker: _Worker, kind: Kind, steps: NDArray[np.int64], resets: NDArray[np.int64], payload: bytes, timeout: float) -> None:
        sequence = worker.posted = self._sequence
        worker.posts.append((sequence, steps, resets))
        frame = REQUEST.pack(sequence, kind, len(steps), len(resets), len(payload)) + steps.tobytes() + resets.tobytes() + payload
        if worker.lost:
            self._give_up(worker, worker.lost)
        elif not worker.send(frame, timeout):
            self._drain(worker)
            self._give_up(worker, worker.obituary())

    # -- waiting -------------------------------------------------------------------------------------------------------------------------

    def wait(self, slots: NDArray[np.int64], timeout: float, min_ready: int | None = None) -> tuple[NDArray[np.int64], list[Fault]]:
        deadline = time.monotonic() + timeout
        if min_ready is None or min_ready >= len(slots):
            ready = slots
            # The last one asked is likely to be the last one done: by then the others need no waiting, and the trainer wakes up once.
            for worker, part in reversed(list(self._split(slots))):
                if worker.answered < worker.posted:
                    self._await(worker, int(self._sequence_of[slots[part]].max()), deadline, timeout)
        else:
            ready = self._await_some(slots, min_ready, deadline, timeout)
        if not self._faults:
            return ready, []
        waited = set(slots.tolist())
        faults = [fault for fault in self._faults if waited.intersection(fault.slots)]
        self._faults = [fault for fault in self._faults if not waited.intersection(fault.slots)]
        bad = {slot for fault in faults for slot in fault.slots}
        return np.array([slot for slot in ready.tolist() if slot not in bad], np.int64), faults

    def _await(self, worker: _Worker, sequence: int, deadline: float, timeout: float) -> None:
        """Read the worker's replies up to this one, or until it dies, or until the deadline."""
        while worker.answered < sequence:
            events = worker.poll.poll(_milliseconds(deadline))
            if events:
                self._react(worker, events[0], deadline)
            else:
                self._time_out(worker, timeout)

    def _await_some(self, slots: NDArray[np.int64], min_ready: int, deadline: float, timeout: float) -> NDArray[np.int64]:
        """Read whatever replies come, until so many of these slots have theirs."""
        split = [(worker, slots[part]) for worker, part in self._split(slots)]
        while True:
            ready = np.concatenate([own[self._sequence_of[own] <= worker.answered] for worker, own in split])
            if len(ready) >= min_ready:
                return ready
            waiting = {worker.child.replies: worker for worker, own in split if self._sequence_of[own].max() > worker.answered}
            sentinels = {worker.child.process.sentinel: worker for worker in waiting.values()}
            poll = select.poll()
            for descriptor in (*waiting, *sentinels):
                poll.register(descriptor, select.POLLIN)
            events = poll.poll(_milliseconds(deadline))
            for worker in [] if events else waiting.values():
                self._time_out(worker, timeout)
            for descriptor, event in events:
                self._react((waiting | sentinels)[descriptor], (descriptor, event), deadline)

    def _react(self, worker: _Worker, event: tuple[int, int], deadline: float) -> None:
        """Read the reply that has come, or learn that none will."""
        if event == (worker.child.replies, select.POLLIN):
            self._receive(worker, deadline)
        elif not worker.lost:
            self._drain(worker)
            self._give_up(worker, worker.obituary())

    def _time_out(self, worker: _Worker, timeout: float) -> None:
        """A worker that is late is killed: were it used again, its late reply would be taken for the next one."""
        stack = worker.where_it_hangs()
        worker.child.process.kill()
        self._give_up(worker, f"gave no answer within {timeout:g} s", stack)

    def _receive(self, worker: _Worker, deadline: float) -> None:
        """Read one reply."""
        head = worker.read(REPLY.size, deadline)
        if len(head) < REPLY.size:
            return self._give_up(worker, worker.obituary())
        sequence, status, length = REPLY.unpack(head)
        limit = PICTURE_LIMIT if status == Status.PICTURE else TEXT_LIMIT
        if not worker.posts or sequence != worker.posts[0][0] or length > limit:
            worker.child.process.kill()
            return self._give_up(worker, "was lost: its worker process wrote something that is no answer")
        body = worker.read(length, deadline) if length else b""
        if len(body) < length:
            return self._give_up(worker, worker.obituary())
        _, *asked = worker.posts.popleft()
        worker.answered = sequence
        if status == Status.RAISED:
            self._faults.append(_told_fault(body, _slots_of(asked)))
        elif status == Status.PICTURE:
            self._picture = body
        return None

    def _drain(self, worker: _Worker) -> None:
        """Read what a worker answered before it died."""
        while not worker.lost and worker.has_reply():
            self._receive(worker, time.monotonic() + 1.0)

    def _give_up(self, worker: _Worker, sentence: str, trace: str = "") -> None:
        """The worker is lost: whatever it was still asked for is a fault, once."""
        if worker.posts:
            slots = _slots_of([part for _, *asked in worker.posts for part in asked])
            self._faults.append(Fault(slots, sentence, trace))
        worker.posts.clear()
        worker.answered = worker.posted
        worker.lost = sentence

    def render(self, slot: int, timeout: float) -> NDArray[np.uint8]:
        one = np.array([slot])
        worker, _ = next(self._split(one))
        self._sequence += 1
        self._request(worker, Kind.RENDER, one, one[:0], b"", timeout)
        self._await(worker, self._sequence, time.monotonic() + timeout, timeout)
        fault = next((fault for fault in self._faults if slot in fault.slots), None)
        if fault is not None:
            self._faults.remove(fault)
            raise RuntimeError(f"The picture of slot {slot} could not be drawn: the environment {fault.sentence}\n{fault.traceback}".rstrip())
        picture, self._picture = self._picture, b""
        return np.frombuffer(picture, np.uint8, offset=SHAPE.size).reshape(SHAPE.unpack_from(picture)).copy()


def _milliseconds(deadline: float) -> int:
    return min(max(0, math.ceil((deadline - time.monotonic()) * 1000)), 2**31 - 1)


def _slots_of(parts: Sequence[NDArray[np.int64]]) -> tuple[int, ...]:
    return tuple(sorted({slot for part in parts for slot in part.tolist()}))


def _told_fault(text: bytes, slots: tuple[int, ...]) -> Fault:
    """The fault that a worker tells as text."""
    facts = json.loads(text)
    return Fault((facts["slot"],) if facts["slot"] in slots else slots, f"raised {facts['type']}: {facts['message']}", str(facts["traceback"]))


def _construction_report(faults: Sequence[Fault], workers: Sequence[_Worker]) -> str:
    """What went wrong in which workers, each thing once, with its first traceback."""
    report: list[str] = []
    for sentence in dict.fromkeys(fault.sentence for fault in faults):
        alike = [fault for fault in faults if fault.sentence == sentence]
        slots = {slot for fault in alike for slot in fault.slots}
        numbers = [str(worker.number) for worker in workers if worker.start in slots]
        who, their = (f"Worker {numbers[0]}", "its") if len(numbers) == 1 else (f"Workers {', '.join(numbers)}", "their")
        report.append(f"{who} (slots {min(slots)} to {max(slots)}) could not build {their} environments: {sentence}")
        report += [alike[0].traceback.rstrip()] if alike[0].traceback else []
    return "\n".join(report)


def _shut_down(workers: list[_Worker], timeout: float) -> None:
    """Ask every worker to stop, wait for all of them until one common deadline, kill the rest, and close every descriptor."""
    deadline = time.monotonic() + timeout
    for worker in workers:
        worker.send(REQUEST.pack(0, Kind.CLOSE, 0, 0, 0), 0.0)
        hang_up(worker.child)
    for worker in workers:
        worker.child.process.join(max(0.0, deadline - time.monotonic()))
    for worker in workers:
        if worker.child.process.exitcode is None:
            worker.child.process.kill()
    for worker in workers:
        worker.child.process.join(5.0)
        if worker.child.process.exitcode is not None:
            worker.child.process.close()
    workers.clear()


def _pickled(blueprint: Blueprint) -> bytes:
    """The blueprint for a worker; what cannot be sent is named."""
    try:
        return cloudpickle.dumps(blueprint)
    except Exception as error:
        where, reason = next((found for block in blueprint.blocks for found in _culprits(block.factory, "factory", 5)), ("the environments", error))
        raise BackendError(f"The environments cannot be sent to worker processes: {where} cannot be pickled ({reason}).") from error


def _culprits(value: Any, name: str, depth: int) -> Iterator[tuple[str, Exception]]:
    """(name, reason) of the innermost part of a value that cannot be pickled."""
    try:
        cloudpickle.dumps(value)
    except Exception as error:  # noqa: BLE001 - pickling runs code of the object that is pickled
        parts: dict[str, Any] = {f"{name}.{key}": part for key, part in getattr(value, "__dict__", {}).items()}
        if inspect.isfunction(value):
            captured = inspect.getclosurevars(value)
            parts = {f"{key} (used by {value.__qualname__})": part for key, part in {**captured.globals, **captured.nonlocals}.items()}
        elif isinstance(value, dict):
            parts = {f"{name}[{key!r}]": part for key, part in value.items()}
        elif isinstance(value, (list, tuple)):
            parts = {f"{name}[{index}]": part for index, part in enumerate(value)}
        inner = (found for key, part in parts.items() for found in _culprits(part, key, depth - 1)) if depth else iter(())
        yield next(inner, (f"{name} (a {type(value).__name__})", error))
