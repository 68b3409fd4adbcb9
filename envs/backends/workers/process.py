"""The process backend: worker processes step the slots, with the rows in shared memory and two pipes each.

What becomes of a worker that is killed:
  1. its handle notices it, ends it for good and holds the `Fault` (handle.py, `mark_lost`);
  2. `wait` stops waiting for it and returns the fault, once, beside the slots that are ready;
  3. the manager (envs/manager) decides what follows and calls `restore`;
  4. `restore` starts a new process in the same handle, which builds the environments anew;
  5. the manager posts the trial's commands again, so that the data is that of a run without the fault.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Sequence
from contextlib import closing
from multiprocessing import util
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from envs.backends.base import (
    Backend,
    BackendConfig,
    BackendError,
    Block,
    Commands,
    Fault,
    construction_error,
    render_error,
    segments_of,
)
from envs.backends.workers.handle import END_WAIT_S, WorkerHandle, marks_of, milliseconds_until
from envs.backends.workers.isolation import worker_environment
from envs.backends.workers.launch import (
    check_memory,
    check_startable,
    start_children,
    start_method_name,
)
from envs.backends.workers.messages import MessageKind
from envs.backends.workers.routing import PostedPart, SegmentRoutes, as_slots
from envs.backends.workers.transport import Blueprint, RowTransport, SharedRows, bytes_needed, pickled
from envs.layout import Layout
from utils.environment import withheld
from utils.processes.marks import end_marked
from utils.processes.streams import fill_standard_streams

# How often a silent worker is checked: a death that shows in no descriptor is noticed by then.
CHECK_ALIVE_MS = 40


class ProcessBackend(Backend):
    """Worker processes with an even part of the slots each.

    A round is one write and one read per segment and no pickling: a request to step a whole segment is a
    header of 32 bytes, and actions and rows are in shared memory. A worker answers in order, each request by
    its token, so slots can be posted and awaited independently. (A short message through a pipe costs as much
    as waking the worker through a futex or an eventfd, measured; what cost more was the code around it.)
    """

    can_lag = True
    has_processes = True
    transport: ClassVar[type[RowTransport]] = SharedRows

    def __init__(
        self,
        blocks: Sequence[Block],
        layout: Layout,
        *,
        num_workers: int,
        num_groups: int = 1,
        config: BackendConfig,
    ) -> None:
        fill_standard_streams()  # before the first descriptor of ours
        # Whatever can be refused is refused before the first process starts.
        check_startable(num_workers)
        self._method, self._config = start_method_name(config.start_method), config
        self._environment = worker_environment(config.keep_environment)  # of workers built anew, too
        num_slots = blocks[-1].stop
        segments = segments_of(blocks, num_workers, num_groups)
        by_worker = {
            number: [segment for segment in segments if segment.worker == number]
            for number in sorted({segment.worker for segment in segments})
        }
        self._blueprints = {
            number: pickled(Blueprint([part.blocks for part in own], layout, num_slots, self.transport))
            for number, own in by_worker.items()
        }
        check_memory(bytes_needed(layout, num_slots), num_slots)
        try:
            self._transport = self.transport(layout, num_slots)
        except OSError as error:
            raise BackendError(
                f"The shared memory for the rows of {num_slots} slots could not be reserved: {error}."
            ) from error
        self.rows = self._transport.rows
        self._workers = [WorkerHandle(number, own, self._transport) for number, own in by_worker.items()]
        self._routes = SegmentRoutes(segments, self._workers)
        # Requests are numbered. A slot is ready when its worker has answered the slot's last request.
        self._sequence = 0
        self._sequence_of_slot = np.full(num_slots, -1, np.int64)
        self._sequence_of_segment = [-1] * len(segments)
        # Unlike weakref.finalize, this runs before multiprocessing's own exit handler, and never in a forked
        # child.
        self._finalizer = util.Finalize(
            self, _stop_workers, (self._workers, self._transport, config.close_timeout_s), exitpriority=100
        )
        try:
            faults = self._start(self._workers, config.construct_timeout_s)
            if faults:
                raise construction_error(faults, withheld(os.environ, config.keep_environment))
        except BaseException:
            self.close()
            raise

    @property
    def description(self) -> str:
        count = len(self._blueprints)
        unit = "worker processes" if count > 1 else "worker process"
        return f"{count} {unit} ({self._method})"

    def processes(self) -> dict[int, tuple[int, ...]]:
        return {
            worker.pid: worker.slots
            for worker in self._workers
            if worker.child is not None and worker.fault is None
        }

    def close(self) -> None:
        self._finalizer()

    # -- starting and restoring ------------------------------------------------------------------------------

    def restore(self, slots: NDArray[np.int64], timeout: float) -> list[Fault]:
        lost_slots = set(slots.tolist())
        workers = [worker for worker in self._workers if lost_slots.intersection(worker.slots)]
        for worker in workers:
            if worker.fault is None:  # the manager replaces a worker that is alive, but has grown too large
                worker.mark_lost("is built anew")
        return self._start(workers, timeout)

    def _start(self, workers: Sequence[WorkerHandle], timeout: float) -> list[Fault]:
        """Start new processes for these workers, which build their environments at the same time."""
        self._check_open()
        # A worker whose old process cannot be ended gets no new one: both would write into the same rows.
        for worker in workers:
            worker.kill()
        marks = marks_of(workers)
        free = [worker for worker in workers if worker.release(min(END_WAIT_S, timeout))]
        end_marked(marks, END_WAIT_S)
        numbers = [worker.number for worker in free]
        try:
            with closing(
                start_children(self._method, numbers, self._transport.descriptor, self._environment, timeout)
            ) as children:
                for worker, child in zip(free, children, strict=True):
                    worker.attach(child)
        except (OSError, EOFError) as error:  # an EOFError comes from a forkserver that has died
            for worker in free:
                if worker.child is None:
                    worker.fault = Fault(worker.slots, f"could not be started: {error}", lost=worker.slots)
        # All of them build, and only then the trainer waits.
        self._sequence += 1
        no_slots = np.empty(0, np.int64)
        for worker in free:
            blueprint = self._blueprints[worker.number]
            worker.send(self._sequence, MessageKind.BUILD, 0, no_slots, blueprint, timeout)
        for worker in free:
            self._await(worker, self._sequence, timeout)
        for worker in workers:
            worker.fault_reported = True
        return [worker.fault for worker in workers if worker.fault is not None]

    # -- posting ---------------------------------------------------------------------------------------------

    def post(self, slots: NDArray[np.int64], commands: Commands) -> None:
        self._check_open()
        index = as_slots(slots)
        # Actions first: a worker reads them as soon as its request is there.
        self._transport.publish(index, commands.action)
        resets = commands.reset[index]
        any_reset = bool(resets.any())
        for part in self._routes.parts_of(slots, index):
            self._sequence = sequence = self._sequence + 1
            self._sequence_of_segment[part.number] = sequence
            self._sequence_of_slot[part.whole or slots[part.among]] = sequence
            whole = part.whole
            if whole is None or (any_reset and resets[part.among].any()):
                self._post_steps_and_resets(part, slots[part.among], commands, sequence)
                continue
            # The usual request: step a whole segment.
            actions, timeout = self._transport.enclose(whole), self._config.call_timeout_s
            part.worker.send(sequence, MessageKind.STEP, part.worker_segment, whole, actions, timeout)

    def _post_steps_and_resets(
        self, part: PostedPart, slots: NDArray[np.int64], commands: Commands, sequence: int
    ) -> None:
        """Post a request that names its slots: first those to step, then those to reset."""
        resets = commands.reset[slots]
        step_slots, reset_slots = slots[~resets], slots[resets]
        ordered = np.concatenate([step_slots, reset_slots])
        actions = self._transport.enclose(step_slots) if len(step_slots) else b""
        tasks, seeds = commands.task[reset_slots], commands.seed[reset_slots]
        part.worker.send(
            sequence,
            MessageKind.RUN,
            part.worker_segment,
            ordered,
            ordered.tobytes() + actions + tasks.tobytes() + seeds.tobytes(),
            self._config.call_timeout_s,
            steps=len(step_slots),
            resets=len(reset_slots),
        )

    def _check_open(self) -> None:
        if self.closing or not self._workers:
            raise RuntimeError("The manager is closed.")

    # -- waiting ---------------------------------------------------------------------------------------------

    def wait(
        self, slots: NDArray[np.int64], timeout: float, min_ready: int | None = None
    ) -> tuple[NDArray[np.int64], list[Fault]]:
        self._check_open()
        parts = self._routes.parts_of(slots, as_slots(slots))
        if min_ready is not None and min_ready < len(slots):
            self._await_some(slots, parts, min_ready, timeout)
            ready = slots[self._are_ready(slots, parts)]
        else:
            # The last one asked is likely to be the last one done: by then the others need no waiting, and
            # the trainer wakes up once.
            for part in reversed(parts):
                if part.whole is not None:
                    sequence = self._sequence_of_segment[part.number]
                else:
                    sequence = int(self._sequence_of_slot[slots[part.among]].max())
                self._await(part.worker, sequence, timeout)
            ready = slots
        if any(part.worker.fault is not None for part in parts):
            return slots[self._are_ready(slots, parts)], _report_faults(slots, parts)
        return ready, []

    def _await(self, worker: WorkerHandle, sequence: int, timeout: float) -> None:
        """Read the worker's replies up to this request, or until the worker is lost."""
        # Most replies are there by now, and need no deadline.
        if worker.answered < sequence and worker.fault is None:
            worker.read_replies()
        while worker.answered < sequence and worker.fault is None:
            self._check_open()
            deadline = worker.deadline(timeout)
            if worker.wait_for_reply(min(CHECK_ALIVE_MS, milliseconds_until(deadline))):
                continue
            _check_silent(worker, deadline, timeout)

    def _await_some(
        self, slots: NDArray[np.int64], parts: Sequence[PostedPart], min_ready: int, timeout: float
    ) -> None:
        """Read the replies that come, until so many of these slots have theirs, or a worker is lost."""
        workers = list({part.worker.number: part.worker for part in parts}.values())
        patience_ms = 0
        while True:
            self._check_open()
            _read_ready(workers, patience_ms)
            ready = self._are_ready(slots, parts)
            if any(worker.fault is not None for worker in workers) or np.count_nonzero(ready) >= min_ready:
                return
            late = [part.worker for part in parts if not ready[part.among].all()]
            first_deadline = min(worker.deadline(timeout) for worker in late)
            patience_ms = min(CHECK_ALIVE_MS, milliseconds_until(first_deadline))
            for worker in late:
                _check_silent(worker, worker.deadline(timeout), timeout)

    def _are_ready(self, slots: NDArray[np.int64], parts: Sequence[PostedPart]) -> NDArray[np.bool_]:
        # A worker answers in order, so its last answer covers all earlier requests.
        ready = np.zeros(len(slots), np.bool_)
        for part in parts:
            if part.worker.fault is None:
                ready[part.among] = self._sequence_of_slot[slots[part.among]] <= part.worker.answered
        return ready

    def render(self, slot: int, timeout: float) -> NDArray[np.uint8]:
        self._check_open()
        slots = np.array([slot])
        (part,) = self._routes.parts_of(slots, slots)
        worker = part.worker
        self._sequence += 1
        worker.picture = None
        worker.send(self._sequence, MessageKind.RENDER, part.worker_segment, slots, slots.tobytes(), timeout)
        self._await(worker, self._sequence, timeout)
        # The answer has left a picture in the handle, or the fault of a picture that could not be drawn.
        picture, worker.picture = worker.picture, None
        if worker.fault is not None or picture is None:
            picture = worker.fault or Fault((slot,), "drew none")
        if isinstance(picture, Fault):
            raise render_error(slot, picture, lost=worker.fault is not None)
        return picture


def _check_silent(worker: WorkerHandle, deadline: float, timeout: float) -> None:
    """Notice that a silent worker is dead, or end it when it is late."""
    worker.check_alive()
    if worker.fault is not None or time.monotonic() < deadline:
        return
    # A long reply comes in pieces: a worker that is still writing is not late.
    if not worker.wait_for_reply(CHECK_ALIVE_MS):
        worker.time_out(timeout)


def _read_ready(workers: Sequence[WorkerHandle], patience_ms: int) -> None:
    """Wait for a sign of any of these workers, and read from all that gave one."""
    poll, worker_of = select.poll(), dict[int, WorkerHandle]()
    for worker in workers:
        if worker.fault is None and worker.child is not None:
            for descriptor in (worker.child.replies, worker.child.process.sentinel):
                worker_of[descriptor] = worker
                poll.register(descriptor, select.POLLIN)
    # A worker may give two signs, an answer and its end, and is read once.
    signs = [worker_of[descriptor] for descriptor, _ in poll.poll(patience_ms)]
    for worker in {worker.number: worker for worker in signs}.values():
        if worker.fault is None:
            worker.wait_for_reply(0)


def _report_faults(slots: NDArray[np.int64], parts: Sequence[PostedPart]) -> list[Fault]:
    """Return the faults that touch these slots, one for each lost worker."""
    faults: list[Fault] = []
    for worker in {part.worker.number: part.worker for part in parts}.values():
        fault = worker.fault
        if fault is None:
            continue
        if worker.fault_reported:
            # Posted without a restore: the same fault again, but of the slots that are asked for now.
            asked = [slots[part.among].tolist() for part in parts if part.worker is worker]
            fault = Fault(
                tuple(slot for part_slots in asked for slot in part_slots),
                f"{fault.sentence} (before, and was not built anew)",
                fault.traceback,
                worker.slots,
            )
        worker.fault_reported = True
        faults.append(fault)
    return faults


def _stop_workers(workers: list[WorkerHandle], transport: RowTransport, timeout: float) -> None:
    """Ask every worker to stop, wait until one common deadline, kill the rest, close every descriptor."""
    deadline, marks = time.monotonic() + timeout, marks_of(workers)
    for worker in workers:
        worker.ask_to_stop()
    try:
        for worker in workers:
            worker.release(max(0.0, deadline - time.monotonic()))
    finally:
        # Also after a second Ctrl-C: else multiprocessing's exit handler would wait for hung workers.
        for worker in workers:
            worker.kill()
        deadline = time.monotonic() + END_WAIT_S
        for worker in workers:
            worker.release(max(0.0, deadline - time.monotonic()))
        end_marked(marks, END_WAIT_S)  # what the environments started
        workers.clear()
        transport.close()
