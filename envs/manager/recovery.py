"""Recovery after a fault: lost environments are built anew and brought back to where they were.

How a fault in a worker leaves the data unchanged, step by step:

1. A backend's `wait` returns faults: which slots failed, and which are lost with them (`Recovery.recover`).
2. The failure is counted; a slot that fails again and again at one place ends the run (`_charge`).
3. The backend ends what is left of the lost environments and builds new ones (`Backend.restore`).
4. Each of them plays its trial again: the same task, seeds and actions, row after row (`_replay`).
5. The digest of these rows is compared with that of the rows of before; if they are the same, the slot is
   exactly where it was (`_compare`). If not, its trial is given up, never stitched together.
6. The command that was pending at the fault is posted again (`recover`), and the `wait` of the Stepper
   goes on as if nothing had happened.
"""

from __future__ import annotations

import logging
import re
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from envs.backends.base import (
    REPORT_LIMIT,
    Backend,
    BackendConfig,
    Commands,
    Fault,
    OnFault,
    shorten,
)
from envs.base import Slots
from envs.layout import Layout
from envs.manager.history import TrialHistory
from envs.trial import TrialClock
from utils.seeding import episode_seeds

_log = logging.getLogger(__name__)

# What mistakes in the code of an environment raise, itself or inside of a call that its shard made.
_MISTAKE = re.compile(
    r"raised (SlotError: \w+ raised )?"
    r"(NameError|UnboundLocalError|TypeError|AttributeError|ImportError|ModuleNotFoundError): "
)
MISTAKE = (
    "An error of this kind in the very first step is a mistake in the code, so nothing is tried again. With "
    "backend=serial backend.on_fault=raise, breakpoint() works in the environment."
)
# So many numbers of a task are shown.
MOST_NUMBERS = 12

BUDGET_WINDOW_S = 600.0
# How long to wait before each attempt at one place; when they are used up, restarting does not help.
BACK_OFF_S = (0.0, 0.1)


class WorkerError(RuntimeError):
    """An environment failed, and the manager is closed.

    It names slot, task, seed and step, and carries the original traceback as text.
    """


class EnvCrashLoopError(WorkerError):
    """An environment fails whenever it is restarted.

    It failed again and again at the same step, or too often in a short time.
    """


@dataclass
class FaultCounts:
    """What faults have cost so far, for the metrics of a run and for tests."""

    # Slots whose environment failed and was built anew.
    restarts: int = 0
    # Workers that had grown too large and were built anew.
    recycled: int = 0
    # Trials that were given up, by task.
    dropped: Counter[tuple[float, ...]] = field(default_factory=Counter)

    @property
    def dropped_trials(self) -> int:
        """Trials that were given up, of all tasks."""
        return self.dropped.total()


@dataclass(frozen=True)
class GrownWorker:
    """A worker process beyond its memory limit: its slots, and a sentence for the log."""

    slots: NDArray[np.int64]
    sentence: str


class Recovery:
    """Brings slots back after a fault: re-runs their trials, gives them up, or stops the run.

    A trial is a function of its task, its seed and its actions, so the rows after a restart are those of a
    run without the fault. Where any of the rows until then comes out differently the environment is not
    deterministic, and its trial is given up. (What no row has shown yet cannot be compared.)

    `pending` [N] is the Stepper's own array, and shared: True for a slot that was posted and whose row has
    not been collected. Recovery reads it to know which commands to post again, and clears it for a slot whose
    trial it gives up, since no row will come.
    """

    def __init__(
        self,
        backend: Backend,
        layout: Layout,
        clock: TrialClock,
        commands: Commands,
        pending: NDArray[np.bool_],
        config: BackendConfig,
        *,
        strict: bool,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backend, self._clock, self._config = backend, clock, config
        self._commands, self._pending = commands, pending
        self._name, self._strict, self._now = layout.spec.name, strict, now
        self._rows = backend.rows
        self.counts = FaultCounts()
        # [N] slots whose trial was given up, until they begin another.
        self.dropped = np.zeros(len(pending), np.bool_)
        # Slots that fail: when (for the budget), and where and how often (for the crash loop).
        self._failures: defaultdict[int, deque[float]] = defaultdict(deque)
        self._attempts: dict[int, tuple[tuple[int, ...], int]] = {}
        self._reported_tracebacks: set[str] = set()
        # Nothing is re-run with on_fault=raise, unless workers are recycled: then no history is needed.
        self._raises = config.on_fault is OnFault["raise"]
        self._history: TrialHistory | None = None
        if not self._raises or config.max_worker_memory is not None:
            longest = clock.episodes_per_trial * (clock.max_episode_steps + 1)
            self._history = TrialHistory(layout, self._rows, commands, longest)
        self._has_stepped = False  # in any slot, ever
        # Re-runs have commands of their own: those of `commands` may still be pending, and are needed again.
        self._rerun = Commands.empty(self._rows)

    # -- what the Stepper reports as the run goes on ---------------------------------------------------------

    def begin(self, slots: NDArray[np.int64]) -> None:
        """New trials are about to start in these slots."""
        self.dropped[slots] = False
        if self._history is not None:
            self._history.begin(slots)

    def posted(self, slots: NDArray[np.int64]) -> None:
        """These slots are about to be sent their commands."""
        if self._history is not None:
            self._history.posted(slots)

    def arrived(self, slots: Slots) -> None:
        """The rows of these slots have been collected."""
        self._has_stepped = self._has_stepped or bool(self._clock.time[slots].any())
        if self._history is not None:
            self._history.arrived(slots)
        # A slot that gets on is in no crash loop: its attempts at the place behind it are forgotten.
        if self._attempts:
            for slot in np.arange(len(self.dropped))[slots].tolist():
                self._attempts.pop(slot, None)

    # -- after a fault ---------------------------------------------------------------------------------------

    def recover(self, faults: Sequence[Fault], grown: Sequence[GrownWorker] = ()) -> None:
        """Bring every lost slot to where it was before the fault, with its command pending again.

        Where that cannot be, its trial is given up, or an error is raised. Workers that have `grown` too
        large are built anew as well: it is no fault of theirs and counts against no budget.
        """
        began = self._now()
        reports = [worker.sentence for worker in grown]
        self.counts.recycled += len(grown)
        lost = {slot for worker in grown for slot in worker.slots.tolist()}
        # A new environment may fail as well, while it is built or re-run. So this goes on until there is an
        # attempt without a fault; `_charge` sees to it that it ends.
        while True:
            if faults:
                # Report, count and, with on_fault=drop, give up the trials that failed (and no others).
                reports += [self._report_once(fault) for fault in faults]
                # One slot failed, but all slots of its worker may be lost: they have to come back as well.
                lost.update(slot for fault in faults for slot in (*fault.slots, *fault.lost))
                culprits = {slot for fault in faults for slot in fault.slots}
                self._charge(culprits, faults)
                if self._config.on_fault is OnFault.drop:
                    self._drop(culprits)
            # Build the environments anew, then bring their trials back to where they were.
            slots = np.array(sorted(lost), np.int64)
            faults = self._backend.restore(slots, self._config.construct_timeout_s)
            if not faults:
                faults = self._replay(slots)
            if not faults:
                break
        # All are back. What was pending when the fault came is sent again, to the new environments:
        # `_commands` holds it unchanged.
        again = slots[self._pending[slots]]
        if len(again):
            self._backend.post(again, self._commands)
        # It went well, so it is a warning for the log only; an error would have carried these reports itself.
        for report in reports:
            _log.warning("%s\nBuilt anew in %.0f ms.", report, 1000 * (self._now() - began))

    def _charge(self, culprits: set[int], faults: Sequence[Fault]) -> None:
        """Count the failure of each slot, and stop the run where restarting does not help."""
        # on_fault=raise: the first failure is the end.
        if self._raises:
            raise WorkerError(self._text(faults))
        if not self._has_stepped and any(_MISTAKE.match(fault.sentence) for fault in faults):
            raise WorkerError(f"{self._text(faults)}\n{MISTAKE}")
        wait = 0.0
        for slot in culprits:
            attempts = self._attempts_at_this_place(slot)
            if attempts > len(BACK_OFF_S):
                raise EnvCrashLoopError(
                    f"{self._text(faults)}\n"
                    f"It failed {attempts} times at this place: restarting it does not help."
                )
            # The first attempt follows at once; later ones leave time for a cause outside to pass.
            wait = max(wait, BACK_OFF_S[attempts - 1])
            self._check_budget(slot, faults)
        self.counts.restarts += len(culprits)
        time.sleep(wait)

    def _attempts_at_this_place(self, slot: int) -> int:
        """Count one more failure of this slot: how often it has failed at this row of this trial."""
        # Trial seed, episode and step: the same place means the same environment state, so a failure that
        # comes again there will come for ever.
        clock = self._clock
        place = (int(clock.trial_seed[slot]), int(clock.episode[slot]), int(clock.time[slot]))
        last_place, attempts = self._attempts.get(slot, (place, 0))
        attempts = attempts + 1 if last_place == place else 1
        self._attempts[slot] = (place, attempts)
        return attempts

    def _check_budget(self, slot: int, faults: Sequence[Fault]) -> None:
        """Stop the run if this slot has failed too often within the window, wherever that was."""
        now, recent = self._now(), self._failures[slot]
        recent.append(now)
        # Failures that are older than the window no longer count.
        while recent[0] < now - BUDGET_WINDOW_S:
            recent.popleft()
        if len(recent) > self._config.fault_budget:
            raise EnvCrashLoopError(
                f"{self._text(faults)}\nSlot {slot} failed {len(recent)} times within ten minutes, "
                f"and backend.fault_budget={self._config.fault_budget} allows so many restarts."
            )

    def _replay(self, slots: NDArray[np.int64]) -> list[Fault]:
        """Re-run the trials of these new environments up to where they were; the faults of doing so."""
        history, rerun, clock = self._history, self._rerun, self._clock
        assert history is not None, "without a history every fault has raised an error before"
        # Only running trials have a past to repeat. A command that is pending has shown no row yet, so it is
        # not part of that past: `recover` sends it.
        slots = slots[clock.running[slots]]
        past = history.length[slots] - self._pending[slots]
        episode = np.full(len(self._pending), -1)
        history.reshown.begin(slots)
        # All lost slots go through their pasts side by side, from row 0; the shorter ones are done earlier.
        for position in range(int(past.max(initial=0))):
            current = slots[past > position]
            was_reset, actions = history.sent(current, position)
            # The seed of a reset follows from the trial's seed and the number of the episode.
            resets = current[was_reset]
            episode[resets] += 1
            rerun.reset[current] = was_reset
            rerun.action[current] = actions
            rerun.task[resets] = self._rows.task[resets]
            rerun.seed[resets] = episode_seeds(clock.trial_seed[resets], episode[resets])
            # The replay waits for all of its slots, also with `min_ready`: the order of rows is fixed.
            self._backend.post(current, rerun)
            _, faults = self._backend.wait(current, self._config.call_timeout_s)
            if faults:
                return faults
            history.reshown.add(current)
        self._compare(slots[past > 0], history)
        return []

    def _compare(self, slots: NDArray[np.int64], history: TrialHistory) -> None:
        """Give up the trials that came out differently, and show the last row of the others again."""
        for slot in slots.tolist():
            if history.rerun_is_the_same(slot):
                # The row that was delivered had been marked by the clock (an end at the horizon, say) and is
                # still to be read by the agent: so it is put back in place of the re-run's raw row.
                history.show_last_row(slot)
                continue
            sentence = (
                f"The environment {self._name} is not deterministic: re-running the trial of slot {slot} "
                f"(task {self._rows.task[slot].tolist()}, trial seed {self._clock.trial_seed[slot]}) "
                "gave other rows"
            )
            # The old rows are in the buffer already, and these would not continue them. A run that promises
            # the same data in spite of faults cannot go on; others lose this trial.
            if self._strict:
                raise WorkerError(f"{sentence}, so deterministic=true cannot be kept after a fault.")
            if self._raises:
                raise WorkerError(f"{sentence}, and on_fault=raise gives no trial up.")
            _log.warning("%s; the trial is given up.", sentence)
            self._drop([slot])

    def _drop(self, slots: Iterable[int]) -> None:
        """Give up the trials of these slots: no row of them will come any more."""
        for slot in slots:
            # The Stepper no longer waits for this slot, and the clock counts no trial in it.
            self._pending[slot] = False
            if self._clock.running[slot]:
                self._clock.forget(np.array([slot]))
                self.dropped[slot] = True
                self.counts.dropped[tuple(self._rows.task[slot].tolist())] += 1

    # -- faults as text --------------------------------------------------------------------------------------

    def _text(self, faults: Sequence[Fault]) -> str:
        lines = [line for fault in faults for line in self.report(fault)]
        # Workers that fail alike have one traceback; others may say a lot together.
        return shorten("\n".join(dict.fromkeys(lines)), REPORT_LIMIT)

    def _report_once(self, fault: Fault) -> str:
        """The report of a fault, without its traceback if that one was reported before."""
        lines = self.report(fault)
        if fault.traceback in self._reported_tracebacks:
            return lines[0]
        self._reported_tracebacks.add(fault.traceback)
        return "\n".join(lines)

    def report(self, fault: Fault) -> list[str]:
        """Which slots were doing what and what went wrong, then the original traceback if there is one."""
        # A worker may lose hundreds of slots at once: three examples are enough.
        slots = [self.activity(slot) for slot in fault.slots[:3]]
        more = f" and {len(fault.slots) - 3} more slots" if len(fault.slots) > 3 else ""
        lines = [f"The environment of {', '.join(slots)}{more} {fault.sentence}"]
        if fault.traceback.rstrip():
            lines.append(fault.traceback.rstrip())
        return lines

    def activity(self, slot: int) -> str:
        """A slot, its trial, and the command in which it is."""
        clock = self._clock
        if self._commands.reset[slot]:
            command = f"reset of episode {clock.episode[slot] + 1}"
        else:
            command = f"step {clock.time[slot]} of episode {clock.episode[slot]}"
        numbers = self._rows.task[slot].tolist()
        task = str(numbers[:MOST_NUMBERS]).replace("]", ", ...]" if len(numbers) > MOST_NUMBERS else "]")
        return f"slot {slot} (task {task}, trial seed {clock.trial_seed[slot]}, {command})"
