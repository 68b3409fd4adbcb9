"""Stepping: commands are posted to the backend, in groups of slots, and rows are marked as they arrive.

One round of a group: `post_round` writes one command for each slot (a step, or a reset where an episode ended
or a trial starts) and posts them all in one message; `wait_round` waits for the rows, lets `Recovery` cure
what went wrong, and lets the clock mark the boundaries of episodes and trials in the rows.

Slots are numbered as the manager numbers them, everywhere but in `SlotGroup`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.backends.base import Backend, BackendConfig, Commands, Fault, split_evenly
from envs.base import Rows, Slots
from envs.layout import Layout
from envs.manager.bounds import BoundsCheck
from envs.manager.limits import FirstReady, MemoryLimit, OneThread
from envs.manager.recovery import GrownWorker, Recovery, WorkerError
from envs.trial import TrialClock


@dataclass(frozen=True)
class Start:
    """The next trial of a slot."""

    task: NDArray[np.float64]
    seed: int


class Stepper:
    """Posts commands to a backend and collects rows: the one place that knows which slots owe a row.

    One thread at a time (`OneThread`); only `close` may come from any thread.
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
        # [n, task_dim] tasks -> [n] H of each; None: all have that of the clock.
        self.horizons: Callable[[NDArray[np.float64]], NDArray[np.int64]] | None = None
        self.rows, self.clock = backend.rows, clock
        num_slots = len(self.rows.reward)
        self._indices = np.arange(num_slots)
        self._commands = Commands.empty(self.rows)
        # True from the post of a slot's command until its row is collected. Recovery shares this array: it
        # clears the slots whose trials it gives up.
        self._pending = np.zeros(num_slots, np.bool_)
        self.recovery = Recovery(backend, layout, clock, self._commands, self._pending, config, strict=strict)
        self._bounds = BoundsCheck(layout, self.rows, config.out_of_bounds)
        self._memory = MemoryLimit(backend, config.max_worker_memory)
        self._first_ready: FirstReady | None = None
        if config.min_ready is not None:
            self._first_ready = FirstReady(backend, config.min_ready, config.call_timeout_s, num_slots)
        self._turn = OneThread()
        self.groups = [SlotGroup(self, start, stop) for start, stop in split_evenly(num_slots, num_groups)]

    # -- posting ---------------------------------------------------------------------------------------------

    def post_round(self, part: slice, actions: NDArray[Any], starts: Mapping[int, Start]) -> None:
        """One row further in every slot of this part whose trial goes on, and new trials in `starts`.

        `actions[i]` is the action of slot `part.start + i`. A slot whose last row is still awaited is left
        out (with `min_ready`).
        """
        with self._turn:
            rows, commands, clock = self.rows, self._commands, self.clock
            if starts:
                self._refuse_pending(np.fromiter(starts, np.int64, len(starts)))

            # Which slots go on. Usually all do, and then a slice makes the reads and writes below plain
            # copies of memory rather than gathers and scatters.
            able = clock.running[part] & ~self._pending[part]
            chosen = np.flatnonzero(able)
            slots: Slots = part
            if len(chosen) < len(able):
                slots, actions = chosen + part.start, actions[chosen]

            # Their commands. After the last row of an episode the action is ignored: the next row is the
            # start of the next episode, from a seed that follows from the trial's.
            commands.action[slots] = actions
            ended = rows.ended[slots]
            commands.reset[slots] = ended
            if ended.any():
                restarted = self._indices[slots][ended]
                commands.seed[restarted] = clock.next_episode_seeds(restarted)

            # New trials go into the same message, so that a free slot costs no round of its own.
            posted = self._indices[slots]
            if starts:
                posted = np.union1d(posted, self._write_starts(starts))
            if len(posted):
                self._post(posted)

    def post_starts(self, starts: Mapping[int, Start]) -> None:
        """Start trials in these slots."""
        with self._turn:
            self._refuse_pending(np.fromiter(starts, np.int64, len(starts)))
            self._post(self._write_starts(starts))

    def post_step(self, slot: int, action: Any) -> None:
        """One row further in one slot."""
        with self._turn:
            slots = np.array([slot])
            self._refuse_pending(slots)
            if not self.clock.running[slot]:
                raise RuntimeError(f"Slot {slot} has no running trial: send it a reset first.")
            self._commands.reset[slot] = self.rows.ended[slot]
            self._commands.action[slot] = action
            self._commands.seed[slots] = self.clock.next_episode_seeds(slots)
            self._post(slots)

    def _write_starts(self, starts: Mapping[int, Start]) -> NDArray[np.int64]:
        """Write these starts into the commands; their slots, sorted."""
        slots = np.array(sorted(starts), np.int64)
        in_order = [starts[slot] for slot in slots.tolist()]
        tasks = np.stack([start.task for start in in_order])
        seeds = np.array([start.seed for start in in_order], np.uint64)
        self._commands.reset[slots] = True
        self._commands.action[slots] = 0
        self._commands.task[slots] = self.rows.task[slots] = tasks
        # The clock first: the seed of the first episode follows from the seed of the trial.
        self.clock.begin(slots, seeds, None if self.horizons is None else self.horizons(tasks))
        self.recovery.begin(slots)
        self._commands.seed[slots] = self.clock.next_episode_seeds(slots)
        return slots

    def _post(self, slots: NDArray[np.int64]) -> None:
        # Workers that have grown too large are built anew here: the last rows have been read by now, and the
        # next are not under way yet.
        grown = self._memory.grown()
        if grown:
            self._recover([], grown)
            # An environment that is not deterministic has lost its trial by that, and has no next row.
            slots = slots[self.clock.running[slots]]
            if not len(slots):
                return
        if self._first_ready is not None:
            self._first_ready.posted(slots)
        # Recorded before it is sent: whatever goes wrong from now on, recovery knows the command.
        self._pending[slots] = True
        self.recovery.posted(slots)
        self._backend.post(slots, self._commands)

    def check_nothing_pending(self) -> None:
        """An error if any slot owes a row (with `min_ready` some always may)."""
        with self._turn:
            if self._first_ready is None:
                self._refuse_pending(slice(None))

    def _refuse_pending(self, slots: Slots) -> None:
        pending = self._indices[slots][self._pending[slots]]
        if len(pending):
            raise RuntimeError(
                f"Slots {pending.tolist()} still owe an answer: recv() it first, or abandon() all trials."
            )

    def render(self, slot: int) -> NDArray[np.uint8]:
        """A picture of one slot."""
        with self._turn:
            self._refuse_pending(np.array([slot]))
            return self._backend.render(slot, self._config.call_timeout_s)

    # -- collecting ------------------------------------------------------------------------------------------

    def wait_round(self, part: slice) -> None:
        """Collect what was posted in this part: all of it, or with `min_ready` at least so many rows.

        Afterwards `rows.valid` is True in this part exactly where a row was collected.
        """
        with self._turn:
            slots = np.flatnonzero(self._pending[part]) + part.start
            self.rows.valid[part] = False
            self._collect(slots, self._first_ready)

    def collect(self, slots: Sequence[int] | NDArray[np.int64]) -> None:
        """Collect the rows of these slots, which must have been posted."""
        with self._turn:
            asked = np.asarray(slots, np.int64)
            idle = asked[~self._pending[asked]]
            if len(idle):
                raise RuntimeError(f"Slots {idle.tolist()} were sent nothing to answer.")
            self._collect(asked)

    def abandon(self) -> None:
        """Wait for whatever is still pending, and forget all trials."""
        pending = np.flatnonzero(self._pending)
        if len(pending):
            self.collect(pending)
        with self._turn:
            self.clock.forget(slice(None))
            self.recovery.dropped[:] = False

    def _collect(self, slots: NDArray[np.int64], first_ready: FirstReady | None = None) -> None:
        """Wait for the rows of these slots, and write into them what the environments do not know."""
        ready = self._wait(slots, first_ready)
        if not len(ready):
            return
        self._pending[ready] = False
        rows, commands = self.rows, self._commands

        # Consecutive slots are addressed as a slice, as in `post_round`.
        arrived: Slots = ready
        if ready[-1] - ready[0] == len(ready) - 1:
            arrived = slice(ready[0], ready[-1] + 1)

        # Before the clock goes on: the command that led to these rows is still the one that recovery names.
        was_reset = commands.reset[arrived]
        if self._bounds.any_outside(arrived):
            with _closing_on_error(self):
                self._bounds.report(arrived, self.recovery.activity)

        # The previous action is the one that led to this row. None led to the start of an episode: it is 0.
        rows.prev_action[arrived] = commands.action[arrived]
        if was_reset.any():
            started = ready[was_reset]
            rows.prev_action[started] = 0
            # The clock marks start rows and rows after a step in different ways.
            self.clock.started(started)
            self.clock.stepped(ready[~was_reset])
        else:
            self.clock.stepped(arrived)

        # The flags are right now: the task and the new-episode flag go into the observation, and recovery
        # records the finished row.
        self._layout.write_extra(rows, arrived)
        self.recovery.arrived(arrived)

    def _wait(self, slots: NDArray[np.int64], first_ready: FirstReady | None) -> NDArray[np.int64]:
        """Wait for these slots through all faults; the slots whose rows are there.

        A slot whose trial was given up is not among them.
        """
        while len(slots):
            if first_ready is not None:
                ready, faults = first_ready.wait(slots)
            else:
                ready, faults = self._backend.wait(slots, self._config.call_timeout_s)
            if faults:
                # A backend that is being closed by another thread reports faults too: those are not cured.
                self._turn.check_open()
                self._recover(faults)
            elif len(ready):
                return ready
            # Recovery has posted the lost slots again, so they are still pending and waited for once more;
            # a slot whose trial was given up is not pending, and is left out.
            slots = slots[self._pending[slots]]
        return slots

    def _recover(self, faults: Sequence[Fault], grown: Sequence[GrownWorker] = ()) -> None:
        """Let recovery cure this."""
        with _closing_on_error(self):
            self.recovery.recover(faults, grown)
            if grown:
                self._memory.check_rebuilt()

    def close(self) -> None:
        """Stop the backend; may be called twice.

        A thread in the middle of a call has a moment to leave it before everything is taken away.
        """
        # A wait that another thread is in sees `closing` and ends with an error; nothing cures that any more.
        self._turn.closed = True
        self._backend.closing = True
        is_free = False
        try:
            is_free = self._turn.wait_until_free(self._config.close_timeout_s)
        finally:
            self._backend.close()
            if is_free:
                self._turn.leave()


@contextmanager
def _closing_on_error(stepper: Stepper) -> Iterator[None]:
    """Where something cannot be cured, close the manager, and let the error go to the caller."""
    try:
        yield
    except BaseException as error:
        # This catches Ctrl-C too: in the middle of a recovery nothing is left that could go on.
        stepper._pending[:] = False
        stepper.close()
        if isinstance(error, WorkerError):
            # Its text holds the environment's own traceback; that of the recovery would only hide it.
            raise error.with_traceback(None) from None
        raise


class SlotGroup:
    """Consecutive slots that step together while those of other groups wait for their actions.

    Everything here counts slots from 0 within the group: its slot i is slot `start + i` of the manager.
    """

    def __init__(self, stepper: Stepper, start: int, stop: int) -> None:
        self._stepper = stepper
        # Its slots, as the manager numbers them.
        self.part = slice(start, stop)
        # The same slots, one by one.
        self.slots = range(start, stop)
        self.start, self.size = start, stop - start
        self.rows: Rows = stepper.rows.part(start, stop)
        # [size] slots whose trial goes on after this row (a live view).
        self.running = stepper.clock.running[self.part]
        # [size] the episode of its trial that a slot is in, from 0 (a live view).
        self.episode = stepper.clock.episode[self.part]
        # [size] slots whose trial was given up after a fault, until they begin another (a live view).
        self.dropped = stepper.recovery.dropped[self.part]

    def post(self, actions: NDArray[Any], starts: Mapping[int, Start]) -> None:
        """One row further in every slot whose trial goes on, and new trials in `starts`, in one message."""
        # The only place where slots of a group become slots of the manager.
        of_manager = {slot + self.start: start for slot, start in starts.items()}
        self._stepper.post_round(self.part, actions, of_manager)

    def wait(self) -> Rows:
        """The rows of what was posted; `rows.valid` says which are there."""
        self._stepper.wait_round(self.part)
        return self.rows
