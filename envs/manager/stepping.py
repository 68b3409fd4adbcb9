"""Stepping: slots are told what to do next, in groups, and their rows are marked as they arrive."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.backends.base import Backend, BackendConfig, Commands
from envs.base import Layout, Rows, Slots
from envs.manager.recovery import GrownWorker, MemoryLimit, Recovery, WorkerError
from envs.trial import TrialClock


@dataclass(frozen=True)
class Start:
    """The next trial of a slot."""

    task: NDArray[np.float64]
    seed: int


class Stepper:
    """Posts commands to a backend and collects rows: the one place that knows which slots owe an answer.

    One thread at a time: a second one that calls in meanwhile gets an error, and changes nothing; only
    `close` may come from any.
    """

    def __init__(
        self,
        backend: Backend,
        layout: Layout,
        clock: TrialClock,
        config: BackendConfig,
        *,
        num_groups: int,
        strict: bool,
    ) -> None:
        self._backend, self._layout, self._config = backend, layout, config
        self.rows, self.clock = backend.rows, clock
        num_slots = len(self.rows.reward)
        self._commands = Commands.empty(self.rows)
        self._pending = np.zeros(num_slots, np.bool_)
        self._posted_at = np.zeros(num_slots)
        self._indices = np.arange(num_slots)
        self._alone = threading.Lock()
        self._whose_turn = 0
        self._closed = False
        self.recovery = Recovery(backend, layout, clock, self._commands, config, strict=strict)
        self._memory = MemoryLimit(backend, config.max_worker_memory)
        edges = [num_slots * group // num_groups for group in range(num_groups + 1)]
        self.groups = [
            SlotGroup(self, start, stop) for start, stop in zip(edges[:-1], edges[1:], strict=True)
        ]

    # -- telling ---------------------------------------------------------------------------------------------

    def post_round(self, part: slice, actions: NDArray[Any], starts: Mapping[int, Start]) -> None:
        """One row further in every slot of this part whose trial goes on and whose last row is there; a new
        trial in those of `starts`.
        """
        with _Turn(self):
            rows, commands, clock = self.rows, self._commands, self.clock
            if starts:
                self._refuse_pending(np.fromiter(starts, np.int64, len(starts)))
            able = clock.running[part] & ~self._pending[part]
            chosen = np.flatnonzero(able)
            slots: Slots = part if len(chosen) == len(able) else chosen + part.start
            commands.action[slots] = actions if slots is part else actions[chosen]
            again = rows.ended[slots]
            commands.reset[slots] = again
            if again.any():
                ended = self._indices[slots][again]
                commands.seed[ended] = clock.next_episode_seeds(ended)
            posted = self._indices[slots]
            if starts:
                fresh = self._arm(starts)
                posted = np.union1d(posted, fresh)
            if len(posted):
                self._post(posted)

    def post_starts(self, starts: Mapping[int, Start]) -> None:
        """Start trials in these slots."""
        with _Turn(self):
            self._refuse_pending(np.fromiter(starts, np.int64, len(starts)))
            self._post(self._arm(starts))

    def post_step(self, slot: int, action: Any) -> None:
        """One row further in one slot."""
        with _Turn(self):
            slots = np.array([slot])
            self._refuse_pending(slots)
            if not self.clock.running[slot]:
                raise RuntimeError(f"Slot {slot} has no running trial: send it a reset first.")
            self._commands.reset[slot] = self.rows.ended[slot]
            self._commands.action[slot] = action
            self._commands.seed[slots] = self.clock.next_episode_seeds(slots)
            self._post(slots)

    def _arm(self, starts: Mapping[int, Start]) -> NDArray[np.int64]:
        """Write these starts into the commands; their slots, sorted."""
        slots = np.array(sorted(starts), np.int64)
        order = [starts[int(slot)] for slot in slots]
        self._commands.reset[slots] = True
        self._commands.action[slots] = 0
        self._commands.task[slots] = self.rows.task[slots] = np.stack([start.task for start in order])
        self.clock.begin(slots, np.array([start.seed for start in order], np.uint64))
        self.recovery.begin(slots)
        self._commands.seed[slots] = self.clock.next_episode_seeds(slots)
        return slots

    def _post(self, slots: NDArray[np.int64]) -> None:
        grown = (
            self._memory.look()
        )  # now, since nobody needs the rows any more that were there before the post
        if grown:
            self._mend(lambda: self._recycle(grown))
            slots = slots[
                self.clock.running[slots]
            ]  # an environment that is not deterministic has lost its trial by that
            if not len(slots):
                return
        if self._config.min_ready is not None:
            self._posted_at[slots] = time.monotonic()
        self._pending[slots] = True
        self.recovery.posted(slots)
        self._backend.post(slots, self._commands)

    def check_settled(self) -> None:
        """An error if any slot owes an answer (with `min_ready` some always may)."""
        with _Turn(self):
            if self._config.min_ready is None:
                self._refuse_pending(slice(None))

    def _refuse_pending(self, slots: Slots) -> None:
        owed = self._indices[slots][self._pending[slots]]
        if len(owed):
            raise RuntimeError(
                f"Slots {owed.tolist()} still owe an answer: recv() it first, or abandon() all trials."
            )

    def render(self, slot: int) -> NDArray[np.uint8]:
        """A picture of one slot."""
        with _Turn(self):
            self._refuse_pending(np.array([slot]))
            return self._backend.render(slot, self._config.call_timeout_s)

    # -- collecting ------------------------------------------------------------------------------------------

    def wait_round(self, part: slice) -> None:
        """The rows of what was posted in this part, or with `min_ready` at least so many of them; all others
        there are not valid.
        """
        with _Turn(self):
            pending = self._pending[part]
            slots = self._indices[part] if pending.all() else np.flatnonzero(pending) + part.start
            self.rows.valid[part] = False
            self._collect(slots, self._config.min_ready)

    def collect(self, slots: Sequence[int] | NDArray[np.int64]) -> None:
        """The rows of these slots, which must have been posted."""
        with _Turn(self):
            asked = np.asarray(slots, np.int64)
            if not self._pending[asked].all():
                raise RuntimeError(
                    f"Slots {asked[~self._pending[asked]].tolist()} were sent nothing to answer."
                )
            self._collect(asked, None)

    def drain(self) -> None:
        """Wait for whatever is still owed, and forget all trials."""
        owed = np.flatnonzero(self._pending)
        if len(owed):
            self.collect(owed)
        with _Turn(self):
            self.clock.forget(slice(None))
            self.recovery.dropped[:] = False

    def _collect(self, slots: NDArray[np.int64], min_ready: int | None) -> None:
        """Wait for the rows of these slots, and let the clock mark them."""
        ready = self._wait(slots, min_ready)
        if not len(ready):
            return
        self._pending[ready] = False
        at: Slots = slice(ready[0], ready[-1] + 1) if ready[-1] - ready[0] == len(ready) - 1 else ready
        rows, commands = self.rows, self._commands
        rows.prev_action[at] = commands.action[at]
        resets = commands.reset[at]
        if resets.any():
            fresh = ready[resets]
            self.clock.started(fresh)
            self.clock.stepped(ready[~resets])
            rows.prev_action[fresh] = 0
        else:
            self.clock.stepped(at)
        self._layout.write_extra(rows, at)
        self.recovery.arrived(at)

    def _wait(self, slots: NDArray[np.int64], min_ready: int | None) -> NDArray[np.int64]:
        """The slots that are ready, after whatever had to be mended; those whose trials were given up are not
        among them.
        """
        timeout = self._config.call_timeout_s
        while len(slots):
            if min_ready is not None and self._posted_at[slots].min() < time.monotonic() - timeout:
                late = slots[self._posted_at[slots] < time.monotonic() - timeout]
                _, faults = self._backend.wait(late, 0.0)  # nobody waits for it, but it has a deadline too
                ready = slots[:0]
                self._posted_at[late] = time.monotonic()
            else:
                ready, faults = self._backend.wait(
                    slots, timeout, None if min_ready is None else min(min_ready, len(slots))
                )
            if faults:
                self._check_open()  # or closing it would be mended
                self._mend(lambda found=faults: self.recovery.recover(found, self._pending))
            elif len(ready):
                return ready
            slots = slots[self._pending[slots]]
        return slots

    def _recycle(self, grown: list[GrownWorker]) -> None:
        self.recovery.recover([], self._pending, grown)
        self._memory.check_new()

    def _mend(self, how: Callable[[], None]) -> None:
        try:
            how()
        except BaseException as error:
            self._pending[:] = False  # nobody owes an answer any more
            self.close()
            if isinstance(error, WorkerError):
                raise error.with_traceback(None) from None
            raise

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("The manager is closed.")

    def close(self) -> None:
        """Stop the backend; idempotent. A thread in the middle of a call has a moment to leave it before
        everything is taken away.
        """
        self._closed = self._backend.closing = True
        has_left = False
        try:
            if self._whose_turn != threading.get_ident():  # else it comes from within the call
                has_left = self._alone.acquire(
                    timeout=min(self._config.close_timeout_s, threading.TIMEOUT_MAX)
                )
        finally:
            self._backend.close()
            if has_left:
                self._alone.release()


class _Turn:
    """Lets one thread in at a time, and nobody after the end."""

    def __init__(self, stepper: Stepper) -> None:
        self._stepper = stepper

    def __enter__(self) -> None:
        self._stepper._check_open()
        if not self._stepper._alone.acquire(blocking=False):
            raise RuntimeError(
                "Another thread is in the middle of a call to this manager; one thread at a time."
            )
        self._stepper._whose_turn = threading.get_ident()
        if self._stepper._closed:  # since we looked
            self.__exit__()
            self._stepper._check_open()

    def __exit__(self, *_: object) -> None:
        self._stepper._whose_turn = 0
        self._stepper._alone.release()


class SlotGroup:
    """Consecutive slots that step together while those of other groups wait for their actions; counted from 0
    within the group.
    """

    def __init__(self, stepper: Stepper, start: int, stop: int) -> None:
        self._stepper = stepper
        self._part = slice(start, stop)
        self.start, self.size = start, stop - start
        self.rows: Rows = stepper.rows.part(start, stop)
        self.running = stepper.clock.running[self._part]
        """[n] slots whose trial goes on after this row (a live view)."""
        self.episode = stepper.clock.episode[self._part]
        """[n] the episode of its trial that a slot is in, from 0 (a live view)."""
        self.dropped = stepper.recovery.dropped[self._part]
        """[n] slots whose trial was given up after a fault, until they begin another (a live view)."""

    def post(self, actions: NDArray[Any], starts: Mapping[int, Start]) -> None:
        """One row further in every slot whose trial goes on, and a new trial in the slots of `starts`, in the
        same message.
        """
        shifted = {slot + self.start: start for slot, start in starts.items()} if self.start else starts
        self._stepper.post_round(self._part, actions, shifted)

    def wait(self) -> Rows:
        """The rows of what was posted; `rows.valid` tells which are there."""
        self._stepper.wait_round(self._part)
        return self.rows
