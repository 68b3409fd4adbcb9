"""The process backend: worker processes that step the slots, with the rows in shared memory and a pipe each
way for everything else.
"""

from __future__ import annotations

import inspect
import select
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from multiprocessing import util
from typing import Any, ClassVar, NamedTuple

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from envs.backends.base import (
    Backend,
    BackendConfig,
    BackendError,
    Block,
    Commands,
    Fault,
    not_drawn,
    segments_of,
)
from envs.backends.workers.handle import END_WAIT_S, WorkerHandle, milliseconds
from envs.backends.workers.launch import check_memory, check_startable, resolve, start_children, wake_server
from envs.backends.workers.messages import MessageKind
from envs.backends.workers.transport import RowTransport, SharedRows, bytes_needed
from envs.backends.workers.worker import Blueprint
from envs.base import Slots
from envs.layout import Layout

LOOK_MS = 40
"""how often a silent worker is looked after: a death that shows in no descriptor is seen by then"""


class _Part(NamedTuple):
    """Posted slots of one segment."""

    worker: WorkerHandle
    number: int
    segment: int
    """as its worker counts them"""
    own: slice
    """among the posted slots"""
    whole: slice | None
    """the segment's slots, if all of them are posted"""


class ProcessBackend(Backend):
    """Worker processes with an even part of the slots each.

    A round is one write and one read per segment and no pickling: a request to step a whole segment is a
    header of 32 bytes, and actions and rows are in shared memory. A worker answers in order, each request by
    its token, so slots can be posted and awaited independently. (A short message through a pipe costs as much
    as waking the worker through a futex or an eventfd, measured; what cost more was what stood around it.)
    """

    can_lag = True
    has_processes = True
    carrier: ClassVar[type[RowTransport]] = SharedRows

    def __init__(
        self,
        blocks: Sequence[Block],
        layout: Layout,
        *,
        num_workers: int,
        num_groups: int = 1,
        config: BackendConfig,
    ) -> None:
        check_startable(num_workers)
        self._method = resolve(config.start_method)
        self._config = config
        num_slots = blocks[-1].stop
        segments = segments_of(blocks, num_workers, num_groups)
        sharing = {
            number: [one for one in segments if one.worker == number]
            for number in sorted({one.worker for one in segments})
        }
        self._blueprints = {
            number: _pickled(Blueprint([one.blocks for one in own], layout, num_slots, self.carrier))
            for number, own in sharing.items()
        }
        check_memory(bytes_needed(layout, num_slots), num_slots)
        try:
            self._carrier = self.carrier(layout, num_slots)
        except OSError as error:
            raise BackendError(
                f"The shared memory for the rows of {num_slots} slots could not be reserved: {error}."
            ) from error
        self.rows = self._carrier.rows
        self._workers = [WorkerHandle(number, own, self._carrier) for number, own in sharing.items()]
        self._sequence = 0
        self._sequence_of = np.full(num_slots, -1, np.int64)
        self._segments = [
            (segment, worker, worker.segments.index(segment))
            for segment in segments
            for worker in self._workers
            if segment in worker.segments
        ]
        self._edges = np.array([segment.start for segment in segments] + [num_slots])
        self._latest = [-1] * len(segments)
        """The sequence number of the last request about each segment."""
        self._rounds: dict[tuple[int, int], Sequence[_Part]] = {}
        for group in {segment.group for segment in segments}:
            own = [segment for segment in segments if segment.group == group]
            self._remember(own[0].start, own[-1].stop)
        self._remember(0, num_slots)
        # Unlike weakref.finalize, this runs before multiprocessing's own exit handler, and never in a forked
        # child.
        self._finalizer = util.Finalize(
            self, _shut_down, (self._workers, self._carrier, config.close_timeout_s), exitpriority=100
        )
        try:
            faults = self._start(self._workers, config.construct_timeout_s)
        except BaseException:
            self.close()
            raise
        if faults:
            report = _construction_report(self._workers)
            self.close()
            raise BackendError(report)

    @property
    def description(self) -> str:
        count = len(self._blueprints)
        return f"{count} worker process{'es' if count > 1 else ''} ({self._method})"

    @property
    def stale_answers(self) -> int:
        """Answers that came too late or twice, and were dropped."""
        return sum(worker.stale for worker in self._workers)

    def processes(self) -> dict[int, tuple[int, ...]]:
        return {
            worker.pid: worker.slots
            for worker in self._workers
            if worker.child is not None and worker.fault is None
        }

    def close(self) -> None:
        self._finalizer()

    # -- starting --------------------------------------------------------------------------------------------

    def restore(self, slots: NDArray[np.int64], timeout: float) -> list[Fault]:
        asked = set(slots.tolist())
        workers = [worker for worker in self._workers if asked.intersection(worker.slots)]
        for worker in workers:
            if worker.fault is None:
                worker.lose("is built anew")
        return self._start(workers, timeout)

    def _start(self, workers: Sequence[WorkerHandle], timeout: float) -> list[Fault]:
        """Put new processes in these places, which then build their environments side by side; what went
        wrong with that.
        """
        self._check_open()
        wake_server()
        for worker in workers:
            worker.kill()
        empty = [worker for worker in workers if worker.leave(min(END_WAIT_S, timeout))]
        try:
            with closing(
                start_children(
                    self._method, [worker.number for worker in empty], self._carrier.descriptor, timeout
                )
            ) as children:
                for worker, child in zip(empty, children, strict=True):
                    worker.occupy(child)
        except (OSError, EOFError) as error:  # the latter from a forkserver that has died
            for worker in empty:
                if worker.child is None:
                    worker.fault = Fault(worker.slots, f"could not be started: {error}", lost=worker.slots)
        self._sequence += 1
        for worker in empty:
            worker.ask(
                self._sequence,
                MessageKind.BUILD,
                0,
                np.empty(0, np.int64),
                self._blueprints[worker.number],
                timeout,
            )
        for worker in empty:
            self._await(worker, self._sequence, timeout)
        for worker in workers:
            worker.told = True
        return [worker.fault for worker in workers if worker.fault is not None]

    # -- posting ---------------------------------------------------------------------------------------------

    def post(self, slots: NDArray[np.int64], commands: Commands) -> None:
        self._check_open()
        chosen: Slots = slots
        if slots[-1] - slots[0] == len(slots) - 1:
            chosen = slice(int(slots[0]), int(slots[-1]) + 1)
        carrier, timeout = self._carrier, self._config.call_timeout_s
        carrier.publish(chosen, commands.action)
        resets = commands.reset[chosen]
        mixed = bool(resets.any())
        for worker, number, segment, own, whole in self._split(slots, chosen):
            self._sequence = self._latest[number] = sequence = self._sequence + 1
            self._sequence_of[whole or slots[own]] = sequence
            if whole is not None and not (mixed and resets[own].any()):
                worker.ask(sequence, MessageKind.STEP, segment, whole, carrier.enclose(whole), timeout)
                continue
            fresh = resets[own]
            steps, starts = slots[own][~fresh], slots[own][fresh]
            order = np.concatenate([steps, starts])
            actions = carrier.enclose(steps) if len(steps) else b""
            body = (
                order.tobytes() + actions + commands.task[starts].tobytes() + commands.seed[starts].tobytes()
            )
            worker.ask(
                sequence, MessageKind.RUN, segment, order, body, timeout, steps=len(steps), resets=len(starts)
            )

    def _split(self, slots: NDArray[np.int64], chosen: Slots) -> Sequence[_Part]:
        """The segments of these sorted slots."""
        known = self._rounds.get((chosen.start, chosen.stop)) if isinstance(chosen, slice) else None
        if known is not None:
            return known
        found: list[_Part] = []
        edges = np.searchsorted(slots, self._edges).tolist()
        for number, (first, last) in enumerate(zip(edges[:-1], edges[1:], strict=True)):
            if first < last:
                segment, worker, place = self._segments[number]
                whole = (
                    slice(segment.start, segment.stop)
                    if last - first == segment.stop - segment.start
                    else None
                )
                found.append(_Part(worker, number, place, slice(first, last), whole))
        return found

    def _remember(self, start: int, stop: int) -> None:
        """All slots, or those of a group, are posted in almost every round."""
        slots = np.arange(start, stop)
        self._rounds[start, stop] = self._split(slots, slots)

    def _check_open(self) -> None:
        if self.closing or not self._workers:
            raise RuntimeError("The manager is closed.")

    # -- waiting ---------------------------------------------------------------------------------------------

    def wait(
        self, slots: NDArray[np.int64], timeout: float, min_ready: int | None = None
    ) -> tuple[NDArray[np.int64], list[Fault]]:
        self._check_open()
        chosen: Slots = slots
        if slots[-1] - slots[0] == len(slots) - 1:
            chosen = slice(int(slots[0]), int(slots[-1]) + 1)
        parts = self._split(slots, chosen)
        if min_ready is not None and min_ready < len(slots):
            self._await_some(slots, parts, min_ready, timeout)
            ready = slots[self._are_ready(slots, parts)]
        else:
            # The last one asked is likely to be the last one done: by then the others need no waiting, and
            # the trainer wakes up once.
            for worker, number, _, own, whole in reversed(parts):
                sequence = (
                    self._latest[number] if whole is not None else int(self._sequence_of[slots[own]].max())
                )
                self._await(worker, sequence, timeout)
            ready = slots
        if any(part.worker.fault is not None for part in parts):
            return slots[self._are_ready(slots, parts)], self._tell(slots, parts)
        return ready, []

    def _await(self, worker: WorkerHandle, sequence: int, timeout: float) -> None:
        """Read the worker's replies up to this one, or until it is lost."""
        if worker.answered < sequence and worker.fault is None:
            worker.receive()  # most are there by now, and need no deadline
        while worker.answered < sequence and worker.fault is None:
            self._check_open()
            due = worker.due(timeout)
            if worker.listen(min(LOOK_MS, milliseconds(due))):
                continue
            worker.look_after()
            if (
                worker.fault is None and time.monotonic() >= due and not worker.listen(LOOK_MS)
            ):  # a long reply comes in pieces
                worker.give_up_waiting(timeout)

    def _await_some(
        self, slots: NDArray[np.int64], parts: Sequence[_Part], min_ready: int, timeout: float
    ) -> None:
        """Read whatever replies come, until so many of these slots have theirs, or one is lost."""
        workers = list({part.worker.number: part.worker for part in parts}.values())
        patience = 0
        while True:
            self._check_open()
            self._listen_to(workers, patience)
            ready = self._are_ready(slots, parts)
            if any(worker.fault is not None for worker in workers) or np.count_nonzero(ready) >= min_ready:
                return
            late = [part.worker for part in parts if not ready[part.own].all()]
            patience = min(LOOK_MS, milliseconds(min(worker.due(timeout) for worker in late)))
            for worker in late:
                worker.look_after()
                if (
                    worker.fault is None
                    and worker.due(timeout) <= time.monotonic()
                    and not worker.listen(LOOK_MS)
                ):
                    worker.give_up_waiting(timeout)

    def _listen_to(self, workers: Sequence[WorkerHandle], patience_ms: int) -> None:
        poll, owner = select.poll(), dict[int, WorkerHandle]()
        for worker in workers:
            if worker.fault is None and worker.child is not None:
                for descriptor in (worker.child.replies, worker.child.process.sentinel):
                    owner[descriptor] = worker
                    poll.register(descriptor, select.POLLIN)
        for worker in {
            owner[descriptor].number: owner[descriptor] for descriptor, _ in poll.poll(patience_ms)
        }.values():
            if worker.fault is None:
                worker.listen(0)

    def _are_ready(self, slots: NDArray[np.int64], parts: Sequence[_Part]) -> NDArray[np.bool_]:
        """Which of these posted slots have their rows."""
        ready = np.zeros(len(slots), np.bool_)
        for part in parts:
            if part.worker.fault is None:
                ready[part.own] = self._sequence_of[slots[part.own]] <= part.worker.answered
        return ready

    def _tell(self, slots: NDArray[np.int64], parts: Sequence[_Part]) -> list[Fault]:
        """The faults that touch these slots; one that was told before is told again of these alone."""
        told: dict[int, Fault] = {}
        for part in parts:
            worker, fault = part.worker, part.worker.fault
            if fault is None or worker.number in told:
                continue
            if worker.told:
                asked = [other for one in parts if one.worker is worker for other in slots[one.own].tolist()]
                fault = Fault(
                    tuple(asked),
                    f"{fault.sentence} (before, and was not built anew)",
                    fault.traceback,
                    worker.slots,
                )
            worker.told = True
            told[worker.number] = fault
        return list(told.values())

    def render(self, slot: int, timeout: float) -> NDArray[np.uint8]:
        self._check_open()
        one = np.array([slot])
        (part,) = self._split(one, one)
        worker = part.worker
        self._sequence += 1
        worker.picture = None
        worker.ask(self._sequence, MessageKind.RENDER, part.segment, one, one.tobytes(), timeout)
        self._await(worker, self._sequence, timeout)
        picture, worker.picture = worker.picture, None
        if worker.fault is not None or picture is None:
            picture = worker.fault or Fault((slot,), "drew none")
        if isinstance(picture, Fault):
            raise not_drawn(slot, picture, lost=worker.fault is not None)
        return picture


def _construction_report(workers: Sequence[WorkerHandle]) -> str:
    """What went wrong in which workers, each thing once, with its first traceback."""
    report: list[str] = []
    failed = [(worker, worker.fault) for worker in workers if worker.fault is not None]
    for sentence in dict.fromkeys(fault.sentence for _, fault in failed):
        alike = [(worker, fault) for worker, fault in failed if fault.sentence == sentence]
        slots = [slot for worker, _ in alike for slot in worker.slots]
        numbers = [str(worker.number) for worker, _ in alike]
        who, their = (
            (f"Worker {numbers[0]}", "its")
            if len(numbers) == 1
            else (f"Workers {', '.join(numbers)}", "their")
        )
        report.append(
            f"{who} (slots {min(slots)} to {max(slots)}) could not build {their} environments: {sentence}"
        )
        report += [alike[0][1].traceback.rstrip()] if alike[0][1].traceback else []
    return "\n".join(report)


def _shut_down(workers: list[WorkerHandle], carrier: RowTransport, timeout: float) -> None:
    """Ask every worker to stop, wait for all of them until one common deadline, kill the rest, and close
    every descriptor.
    """
    deadline = time.monotonic() + timeout
    for worker in workers:
        worker.hang_up()
    try:
        for worker in workers:
            worker.leave(max(0.0, deadline - time.monotonic()))
    finally:  # also after a second Ctrl-C: else multiprocessing's exit handler would wait for the hung ones for ever
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.leave(END_WAIT_S)
        workers.clear()
        carrier.close()


def _pickled(blueprint: Blueprint) -> bytes:
    """The blueprint for a worker; what cannot be sent is named."""
    try:
        return cloudpickle.dumps(blueprint)
    except Exception as error:
        factories = (block.factory for blocks in blueprint.segments for block in blocks)
        where, reason = next(
            (found for factory in factories for found in _culprits(factory, "factory", 5)),
            ("the environments", error),
        )
        raise BackendError(
            f"The environments cannot be sent to worker processes: {where} cannot be pickled ({reason})."
        ) from error


def _culprits(value: Any, name: str, depth: int) -> Iterator[tuple[str, Exception]]:
    """(name, reason) of the innermost part of a value that cannot be pickled."""
    try:
        cloudpickle.dumps(value)
    except Exception as error:  # noqa: BLE001 - pickling runs code of the object that is pickled
        parts: dict[str, Any] = {
            f"{name}.{key}": part for key, part in getattr(value, "__dict__", {}).items()
        }
        if inspect.isfunction(value):
            captured = inspect.getclosurevars(value)
            parts = {
                f"{key} (used by {value.__qualname__})": part
                for key, part in {**captured.globals, **captured.nonlocals}.items()
            }
        elif isinstance(value, dict):
            parts = {f"{name}[{key!r}]": part for key, part in value.items()}
        elif isinstance(value, (list, tuple)):
            parts = {f"{name}[{index}]": part for index, part in enumerate(value)}
        inner = (
            (found for key, part in parts.items() for found in _culprits(part, key, depth - 1))
            if depth
            else iter(())
        )
        yield next(inner, (f"{name} (a {type(value).__name__})", error))
