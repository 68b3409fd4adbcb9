"""What happens after a fault: the lost environments are built anew and brought back to where they were, or
given up, or the run stops.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.backends.base import Backend, BackendConfig, Commands, Fault, OnFault
from envs.base import Layout, Rows, Slots
from envs.trial import TrialClock
from utils.machine import resident_bytes
from utils.seeding import episode_seeds

_log = logging.getLogger(__name__)

BUDGET_WINDOW_S = 600.0
BACK_OFF_S = (0.0, 0.1)
"""How long to wait before each attempt at one place; when they are used up, restarting does not help."""
MEMORY_LOOK_S = 1.0
"""How often the memory of the workers is looked at, where it has a limit."""


class WorkerError(RuntimeError):
    """An environment failed: names slot, task, seed and step, and carries the original traceback as text. The
    manager is closed.
    """


class EnvCrashLoopError(WorkerError):
    """An environment fails whenever it is restarted: at the same step again and again, or too often in a
    short time.
    """


@dataclass
class FaultCounts:
    """What faults have cost so far."""

    restarts: int = 0
    """Slots whose environment failed and was built anew."""
    recycled: int = 0
    """Workers that had grown too large and were built anew."""
    dropped: Counter[tuple[float, ...]] = field(default_factory=Counter)
    """Trials that were given up, by task."""

    @property
    def dropped_trials(self) -> int:
        """Trials that were given up, of all tasks."""
        return self.dropped.total()


class Recovery:
    """Remembers what every running trial was told, and re-runs it after a fault.

    A trial is a function of its task, its seed and its actions, so the rows after a restart are those of a
    run without the fault. Where any of the rows until then comes out differently the environment is not
    deterministic: its trial is given up, never stitched together. (What no row has shown yet cannot be
    compared.)
    """

    def __init__(
        self,
        backend: Backend,
        layout: Layout,
        clock: TrialClock,
        commands: Commands,
        config: BackendConfig,
        *,
        strict: bool,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backend, self._layout, self._clock, self._commands, self._config = (
            backend,
            layout,
            clock,
            commands,
            config,
        )
        self._strict, self._now = strict, now
        self._rows = backend.rows
        num_slots = len(self._rows.reward)
        self.counts = FaultCounts()
        self.dropped = np.zeros(num_slots, np.bool_)
        """[N] slots whose trial was given up, until they begin another."""
        self._raises = config.on_fault is OnFault["raise"]
        self._replays = not self._raises or config.max_worker_memory is not None
        self._failures: defaultdict[int, deque[float]] = defaultdict(deque)
        self._place: dict[int, tuple[tuple[int, ...], int]] = {}
        self._told_of: set[str] = set()
        if not self._replays:
            return
        longest = clock.episodes_per_trial * (clock.max_episode_steps + 1)
        self._told = np.zeros(num_slots, np.int64)
        """[N] commands that the slot's trial was given, the pending one included."""
        self._was_reset = np.zeros((num_slots, longest), np.bool_)
        self._actions = np.zeros((num_slots, longest, *commands.action.shape[1:]), commands.action.dtype)
        self._copies = list(zip(_written(self._rows.copy()), _written(self._rows), strict=True))
        """(the last row of every slot as it was delivered, the live array)"""
        self._rerun = Commands.empty(self._rows)
        self._shown = Digest(layout, self._rows)
        self._reshown = Digest(layout, self._rows)

    # -- what is remembered ----------------------------------------------------------------------------------

    def begin(self, slots: NDArray[np.int64]) -> None:
        """New trials are about to start in these slots."""
        self.dropped[slots] = False
        if self._replays:
            self._told[slots] = 0
            self._shown.begin(slots)

    def posted(self, slots: NDArray[np.int64]) -> None:
        """These slots are given their commands."""
        if self._replays:
            at = self._told[slots]
            self._was_reset[slots, at] = self._commands.reset[slots]
            self._actions[slots, at] = self._commands.action[slots]
            self._told[slots] = at + 1

    def arrived(self, slots: Slots) -> None:
        """The rows of these slots are there."""
        if not self._replays:
            return
        for kept, row in self._copies:
            kept[slots] = row[slots]
        self._shown.add(slots)
        if self._place:  # whoever gets on is in no crash loop
            for slot in np.arange(len(self.dropped))[slots].tolist():
                self._place.pop(slot, None)

    # -- after a fault ---------------------------------------------------------------------------------------

    def recover(
        self, faults: Sequence[Fault], pending: NDArray[np.bool_], grown: Sequence[GrownWorker] = ()
    ) -> None:
        """Bring every lost slot to where it was before the fault, with its command pending again; or drop its
        trial; or raise.

        Workers that have `grown` too large are built anew for no fault of theirs: that counts against no
        budget.
        """
        began, reasons = self._now(), [one.sentence for one in grown]
        self.counts.recycled += len(grown)
        lost = {slot for one in grown for slot in one.slots.tolist()}
        while True:
            if faults:
                reasons += [self._once(fault) for fault in faults]
                lost.update(slot for fault in faults for slot in (*fault.slots, *fault.lost))
                culprits = {slot for fault in faults for slot in fault.slots}
                self._charge(culprits, faults)
                if self._config.on_fault is OnFault.drop:
                    self._drop(culprits, pending)
            slots = np.array(sorted(lost), np.int64)
            faults = self._backend.restore(slots, self._config.construct_timeout_s) or self._replay(
                slots, pending
            )
            if not faults:
                break
        self._post_again(slots, pending)
        for reason in reasons:
            _log.warning("%s\nBuilt anew in %.0f ms.", reason, 1000 * (self._now() - began))

    def _charge(self, culprits: set[int], faults: Sequence[Fault]) -> None:
        """Count the failure of each slot; stop where restarting does not help, wait a little where it did not
        help at once.
        """
        if self._raises:
            raise WorkerError(self._text(faults))
        now, wait = self._now(), 0.0
        for slot in culprits:
            place = (
                int(self._clock.trial_seed[slot]),
                int(self._clock.episode[slot]),
                int(self._clock.time[slot]),
            )
            before, times = self._place.get(slot, (place, 0))
            times = times + 1 if before == place else 1
            self._place[slot] = (place, times)
            if times > len(BACK_OFF_S):
                raise EnvCrashLoopError(
                    f"{self._text(faults)}\nIt failed {times} times at this place: restarting it does not help."
                )
            wait = max(wait, BACK_OFF_S[times - 1])
            recent = self._failures[slot]
            recent.append(now)
            while recent[0] < now - BUDGET_WINDOW_S:
                recent.popleft()
            if len(recent) > self._config.fault_budget:
                raise EnvCrashLoopError(
                    f"{self._text(faults)}\nSlot {slot} failed {len(recent)} times within ten minutes, "
                    f"and backend.fault_budget={self._config.fault_budget} allows so many restarts."
                )
        self.counts.restarts += len(culprits)
        time.sleep(wait)

    def _replay(self, slots: NDArray[np.int64], pending: NDArray[np.bool_]) -> list[Fault]:
        """Tell the running ones of these new environments all that their trials were told before the command
        that is pending, if one is.
        """
        slots = slots[self._clock.running[slots]]
        known = self._told[slots] - pending[slots]
        episode = np.full(len(self._told), -1)
        rerun = self._rerun
        self._reshown.begin(slots)
        for at in range(int(known.max(initial=0))):
            now = slots[known > at]
            resets = now[self._was_reset[now, at]]
            episode[resets] += 1
            rerun.reset[now] = self._was_reset[now, at]
            rerun.action[now] = self._actions[now, at]
            rerun.task[resets] = self._rows.task[resets]
            rerun.seed[resets] = episode_seeds(self._clock.trial_seed[resets], episode[resets])
            self._backend.post(now, rerun)
            _, faults = self._backend.wait(now, self._config.call_timeout_s)
            if faults:
                return faults
            self._reshown.add(now)
        self._compare(slots[known > 0], pending)
        return []

    def _compare(self, slots: NDArray[np.int64], pending: NDArray[np.bool_]) -> None:
        """Drop the trials whose rows are not what they were, and show the others' last row as it was
        delivered.
        """
        for slot in slots.tolist():
            if self._shown.value[slot] == self._reshown.value[slot]:
                for kept, row in self._copies:
                    row[slot] = kept[slot]
                continue
            sentence = (
                f"The environment {self._layout.spec.name} is not deterministic: re-running the trial of slot {slot} "
                f"(task {self._rows.task[slot].tolist()}, trial seed {self._clock.trial_seed[slot]}) gave other rows"
            )
            if self._strict:
                raise WorkerError(f"{sentence}, so deterministic=true cannot be kept after a fault.")
            if self._raises:
                raise WorkerError(f"{sentence}, and on_fault=raise gives no trial up.")
            _log.warning("%s; the trial is given up.", sentence)
            self._drop({slot}, pending)

    def _drop(self, slots: set[int], pending: NDArray[np.bool_]) -> None:
        """Give up the trials of these slots."""
        for slot in slots:
            pending[slot] = False
            if self._clock.running[slot]:
                self._clock.forget(np.array([slot]))
                self.dropped[slot] = True
                self.counts.dropped[tuple(self._rows.task[slot].tolist())] += 1

    def _post_again(self, slots: NDArray[np.int64], pending: NDArray[np.bool_]) -> None:
        again = slots[pending[slots]]
        if len(again):
            self._backend.post(again, self._commands)

    # -- in words --------------------------------------------------------------------------------------------

    def _text(self, faults: Sequence[Fault]) -> str:
        return "\n".join(line for fault in faults for line in self.report(fault))

    def _once(self, fault: Fault) -> str:
        """A fault in words; a traceback that was shown before is not shown again."""
        lines = self.report(fault)
        if fault.traceback in self._told_of:
            return lines[0]
        self._told_of.add(fault.traceback)
        return "\n".join(lines)

    def report(self, fault: Fault) -> list[str]:
        """A fault in words: which slots were doing what, what went wrong, and the original traceback."""
        clock, where = self._clock, []
        for slot in fault.slots[:3]:
            step = f"step {clock.time[slot]} of episode {clock.episode[slot]}"
            doing = f"reset of episode {clock.episode[slot] + 1}" if self._commands.reset[slot] else step
            where.append(
                f"slot {slot} (task {self._rows.task[slot].tolist()}, trial seed {clock.trial_seed[slot]}, {doing})"
            )
        more = f" and {len(fault.slots) - 3} more slots" if len(fault.slots) > 3 else ""
        return [
            f"The environment of {', '.join(where)}{more} {fault.sentence}",
            *filter(None, [fault.traceback.rstrip()]),
        ]


@dataclass(frozen=True)
class GrownWorker:
    """A worker process beyond its limit: its slots, and the fact in words."""

    slots: NDArray[np.int64]
    sentence: str


class MemoryLimit:
    """Looks now and then whether a worker process has grown too large: an environment that leaks ends
    nobody's run.
    """

    def __init__(
        self, backend: Backend, limit: int | None, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._backend, self._limit, self._now = backend, limit, now
        self._next_look = now()

    def look(self) -> list[GrownWorker]:
        """The workers beyond the limit, if it is time to look."""
        if self._limit is None or self._now() < self._next_look:
            return []
        self._next_look = self._now() + MEMORY_LOOK_S
        return self._beyond()

    def check_new(self) -> None:
        """Refuse a limit that workers are beyond as soon as they are back where they were: they would be
        built anew for ever.
        """
        beyond = self._beyond()
        if beyond:
            raise WorkerError(
                f"{beyond[0].sentence} It has only just been built anew, so a larger limit is needed."
            )

    def _beyond(self) -> list[GrownWorker]:
        limit = self._limit
        if limit is None:
            return []
        sizes = {slots: resident_bytes([pid]) / 1e6 for pid, slots in self._backend.processes().items()}
        return [
            GrownWorker(
                np.array(slots),
                f"The worker of {'slot' if len(slots) == 1 else 'slots'} {', '.join(map(str, slots))} takes {size:.0f} MB, "
                f"and backend.max_worker_memory={limit} is its limit.",
            )
            for slots, size in sizes.items()
            if size > limit
        ]


class Digest:
    """[N] a number for everything that the environments have shown in a trial so far, row after row, bit for
    bit.
    """

    def __init__(self, layout: Layout, rows: Rows) -> None:
        own = layout.part(rows, 0, len(rows.reward))
        rng = np.random.default_rng(0)
        self._words: list[tuple[NDArray[np.unsignedinteger[Any]], NDArray[np.uint64]]] = []
        for array in (
            own.terminated[:, None],
            own.reward[:, None],
            *(own.obs.values() if isinstance(own.obs, dict) else [own.obs]),
        ):
            flat = array.reshape(len(array), -1)
            size = next(
                size for size in (8, 4, 2, 1) if flat.shape[1] * flat.itemsize % size == 0
            )  # as few words as a row can be read in
            words = flat.view(np.dtype(f"u{size}"))
            assert np.shares_memory(words, array) or not array.size, (
                "a copy would show the first row for ever"
            )
            self._words.append(
                (words, rng.integers(2**64, size=words.shape[1], dtype=np.uint64) | np.uint64(1))
            )
        self.value = np.zeros(len(rows.reward), np.uint64)

    def begin(self, slots: NDArray[np.int64]) -> None:
        """Nothing has been shown yet."""
        self.value[slots] = 0

    def add(self, slots: Slots) -> None:
        """Take in the rows that are there now."""
        total = self.value[slots] * _STEP
        for words, weights in self._words:
            total += (words[slots] * weights).sum(1, dtype=np.uint64)
        self.value[slots] = total


_STEP = np.uint64(6364136223846793005)
"""An odd multiplier, so that the order of rows matters (Knuth, TAOCP 2, 3.3.4)."""


def _written(rows: Rows) -> list[NDArray[np.generic]]:
    """The arrays that environments write."""
    obs = list(rows.obs.values()) if isinstance(rows.obs, dict) else [rows.obs]
    return [rows.terminated, rows.truncated, rows.reward, rows.info, *obs]
