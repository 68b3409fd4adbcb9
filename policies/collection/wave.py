"""The one loop that steps environments: a wave of trials, for collection and for evaluation alike.

Which slot plays which trial: slot i starts with trial i, and a slot whose trial has ended takes the next
number, in the same message in which the other slots step. So no slot is idle but in the tail of the wave.
The assignment depends on the order in which trials end, counted in rounds and not by the clock (`min_ready`
apart): the same plan over as many slots and groups gives the same rows, whatever the backend.

Why a wave is unbiased: every trial that is started runs to its end and counts. Whether a trial is started
depends on what was played before it, never on how long or how good it is itself. ("The first n trials to
finish" would prefer short ones.)

Fixed rows per slot, with unfinished trials carried over, would spare the tail of a wave, in which few slots
still step. But a checkpoint would have to hold those trials, and a memory that reads whole trials could not
learn from parts of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from envs.base import Rows
from envs.parallel_env_manager import ParallelEnvManager, SlotGroup, Start
from policies.collection.actors import Actor
from utils.seeding import Phase, Purpose, generator, trial_seed
from utils.stopwatch import Stopwatch


@dataclass(frozen=True)
class WavePlan:
    """At most `most` trials, numbered from `first` on.

    A trial is known by (root, phase, number) alone: its task, the seed of its environment and the noise of
    its actions follow from them. So a trial is the same whichever slot plays it, and whatever is played
    beside it.
    """

    # The seed of the run.
    root: int
    phase: Phase
    # The number of the first trial.
    first: int
    # The most trials that may be started.
    most: int
    # [task_dim] the task of a trial, by its number. It is asked for when the trial starts.
    task: Callable[[int], NDArray[np.float64]]
    # Once the wave has taken so many env steps, it starts no further trial; None: it starts all of them.
    budget: int | None = None

    @classmethod
    def of_tasks(cls, root: int, phase: Phase, first: int, tasks: NDArray[np.float64]) -> WavePlan:
        """A plan that plays each of these tasks [n, task_dim] once, in their order."""
        # The number of a trial keys its randomness; its place in the list is counted from the first.
        return cls(root, phase, first, len(tasks), lambda number: tasks[number - first])

    def start(self, index: int) -> Start:
        """The task and the seed of the wave's trial `index`, counted from 0."""
        # Three streams belong to a trial: its task, its environment and its actions. None of them moves when
        # another one draws more or less.
        number = self.first + index
        return Start(self.task(number), trial_seed(self.root, self.phase, number))

    def action_rng(self, index: int) -> np.random.Generator:
        """The stream from which the action noise of the wave's trial `index` is drawn."""
        return generator(self.root, self.phase, Purpose.ACTION, self.first + index)


@dataclass
class WaveResult:
    """What happened in each trial, by episode index; trials stand in the order of their numbers."""

    env_steps: int
    # [n, k]; NaN in trials that were given up.
    returns: NDArray[np.float64]
    # [n, k] env steps.
    lengths: NDArray[np.int64]
    # [n, k] whether the family's `success` info was ever positive; all False where it defines none.
    successes: NDArray[np.bool_]
    # [n] trials that were given up after a fault: with `on_fault=drop`, or where an environment is not
    # deterministic.
    dropped: NDArray[np.bool_]
    # [n, task_dim] the task of each trial.
    tasks: NDArray[np.float64]
    # Numbers of trials that were set aside for this wave, and that none of its trials has.
    left_out: int = 0

    @classmethod
    def empty(cls, trials: int, episodes: int, task_dim: int) -> WaveResult:
        """The result in which nothing has happened yet."""
        shape = (trials, episodes)
        zeros = np.zeros(shape), np.zeros(shape, np.int64), np.zeros(shape, np.bool_)
        return cls(0, *zeros, np.zeros(trials, np.bool_), np.zeros((trials, task_dim)))

    def of_first(self, trials: int) -> WaveResult:
        """The result of the first trials alone, without returns for those that were given up."""
        # A return that breaks off half-way must not enter any mean unnoticed.
        self.returns[self.dropped] = np.nan
        return WaveResult(
            self.env_steps,
            self.returns[:trials],
            self.lengths[:trials],
            self.successes[:trials],
            self.dropped[:trials],
            self.tasks[:trials],
        )

    def put(self, trial: int, other: WaveResult) -> None:
        """Take what happened in the only trial of another wave in place of this one's trial."""
        self.env_steps += other.env_steps
        for name in ("returns", "lengths", "successes", "dropped"):
            getattr(self, name)[trial] = getattr(other, name)[0]


class WaveInterrupted(Exception):
    """The wave was asked to stop; none of its trials count."""


class Sink(Protocol):
    """What takes the rows of a wave: a buffer, or a camera.

    A subclass does nothing where it defines no method of its own, and stores no states unless it says so.
    """

    # Before one in so many rows of a trial the hidden state is stored; 0: never.
    state_every: int = 0

    def reserve(self, n: int) -> None:
        """A wave of at most n trials begins."""

    def write(
        self,
        trials: NDArray[np.int64],
        times: NDArray[np.int64],
        rows: Rows,
        slots: NDArray[np.int64],
        actions: NDArray[Any],
        extras: Mapping[str, NDArray[Any]],
    ) -> None:
        """Take row `times[i]` of the wave's trial `trials[i]` from `slots[i]`.

        `rows`, `actions` and `extras` are those of all slots.
        """

    def write_states(
        self, trials: NDArray[np.int64], times: NDArray[np.int64], state: Mapping[str, NDArray[Any]]
    ) -> None:
        """Take the hidden state `state[...][i]`, of before row `times[i]` of the wave's trial `trials[i]`."""
        assert not self.state_every, "a sink that asks for states stores them"

    def commit(self, lengths: NDArray[np.int64]) -> None:
        """All trials that were started have ended, with so many rows each; 0 where one was given up."""

    def discard(self) -> None:
        """The wave was interrupted: nothing of it counts."""


def run_wave(
    manager: ParallelEnvManager,
    actor: Actor,
    plan: WavePlan,
    *,
    sink: Sink | None = None,
    watch: Stopwatch | None = None,
    tick: Callable[[WaveResult], bool] = lambda _: False,
) -> WaveResult:
    """Run the trials of `plan`, each to its end, and give their rows to `sink`.

    `tick` sees the result grow once a round, and stops the wave by returning True.
    """
    wave, watch = _Wave(manager, actor, plan), watch or Stopwatch()
    if sink is not None:
        sink.reserve(plan.most)

    # The first trials start, one in each slot, as far as there are trials.
    manager.abandon()  # an interrupted wave may have left trials in the slots
    playing = [run for run in wave.runs if run.begin()]
    watch.lap("env")

    # A round: the groups of slots take turns. While one group is acted for, the others step.
    while playing:
        for run in tuple(playing):
            if not run.take_turn(sink, watch):
                playing.remove(run)  # all of its trials have ended, and there is none left to start
            watch.lap("env")

        # Interrupted: what was collected is forgotten, so that a resume can play the same wave again.
        if playing and tick(wave.result):
            manager.abandon()
            if sink is not None:
                sink.discard()
            raise WaveInterrupted

    # All trials have ended: only now do they count, all at once.
    if sink is not None:
        sink.commit(wave.rows_of_trial[: wave.started])
        watch.lap("buffer")
    return wave.result.of_first(wave.started)


class _Wave:
    """Which trials of the plan have been started, and what has happened in them."""

    def __init__(self, manager: ParallelEnvManager, actor: Actor, plan: WavePlan) -> None:
        self._manager, self._plan = manager, plan
        self.actor = actor
        self.started = 0
        # [most] rows of each trial that has ended; 0 before, and where one was given up.
        self.rows_of_trial = np.zeros(plan.most, np.int64)
        self.result = WaveResult.empty(plan.most, manager.episodes_per_trial, manager.spec.task_dim)

        # Each group has its own hidden states, and acts in batches of its own size.
        self.runs = [_GroupRun(self, manager, group) for group in manager.groups]

    def take(self, most: int) -> Iterator[tuple[int, Start, NDArray[Any]]]:
        """The next trials, at most so many: index in the wave, start, and the noise of all its rows."""
        plan = self._plan
        for index in range(self.started, min(self.started + most, plan.most)):
            if plan.budget is not None and self.result.env_steps >= plan.budget:
                return  # what runs now still runs to its end
            self.started += 1
            # The noise is drawn for the longest trial, from the trial's own stream: how long a trial turns
            # out to be moves no other random number.
            noise = self.actor.draw_noise(plan.action_rng(index), self._manager.rows_per_trial)
            start = plan.start(index)
            self.result.tasks[index] = start.task
            yield index, start, noise


class _GroupRun:
    """One group of slots in a wave: which trial each slot plays, and which of its rows is there."""

    def __init__(self, wave: _Wave, manager: ParallelEnvManager, group: SlotGroup) -> None:
        self._wave, self.group = wave, group
        self._slots = np.arange(group.size)
        # [n] the index in the wave of the trial that the slot plays.
        self.trial = np.full(group.size, -1)
        # [n] the number of the present row in its trial.
        self.time = np.full(group.size, -1)
        self._actor = wave.actor.for_group(manager, group)

        # The noise of the trial in each slot, row by row: [n, rows, ...].
        like = wave.actor.draw_noise(np.random.default_rng(0), 1)
        self._noise = np.zeros((group.size, manager.rows_per_trial, *like.shape[1:]), like.dtype)

        # Sums over the episode that each slot is in: [n].
        self._return = np.zeros(group.size)
        self._length = np.zeros(group.size, np.int64)
        self._succeeded = np.zeros(group.size, np.bool_)

        # An episode succeeds when the family's `success` info is positive in any of its rows.
        self._success_column = None
        if manager.spec.success:
            self._success_column = manager.spec.info_names.index(manager.spec.success)

    def begin(self) -> bool:
        """Start the first trials; whether there are any."""
        # All slots are free: the first gets the first trial, and so on.
        starts = self._next_starts(self._slots)
        if starts:
            no_actions = np.zeros_like(self.group.rows.prev_action)  # none of the slots has a row yet
            self.group.post(no_actions, starts)
        return bool(starts)

    def take_turn(self, sink: Sink | None, watch: Stopwatch) -> bool:
        """One row further in every slot; False where the group has nothing left to do."""
        # 1. Wait for the rows that were asked for in the last turn; with `min_ready` some may come later.
        self.time += self.group.wait().valid
        watch.lap("env")

        # 2. Add their rewards and ends to the result.
        slots = self._count()
        watch.lap("other")

        # 3. Store the hidden states as they are before the agent reads these rows.
        if sink is not None and sink.state_every:
            self._store_states(sink, slots)
            watch.lap("buffer")

        # 4. Choose an action for every slot. The environment ignores it where the row ends an episode. An
        #    idle slot acts too, with the noise of some row of its last trial: the batch keeps its size.
        row = np.minimum(self.time, self._noise.shape[1] - 1)
        actions = self._actor.act(self._noise[self._slots, row])
        watch.lap("act")

        # 5. Store rows and actions now: once the next message is posted, workers overwrite the rows.
        if sink is not None:
            extras = self._actor.extras
            sink.write(self.trial[slots], self.time[slots], self.group.rows, slots, actions, extras)
            watch.lap("buffer")

        # 6. Post the actions, and in the same message the next trials of the slots whose trial has ended.
        running, starts = self.group.running, {}
        if not running.all():
            starts = self._next_starts(np.flatnonzero(~running))
        if not starts and not running.any():
            return False
        self.group.post(actions, starts)
        return True

    def _count(self) -> NDArray[np.int64]:
        """Add the present rows to the sums of their episodes; returns the slots that have a row."""
        rows, group, result = self.group.rows, self.group, self._wave.result

        # A trial that was given up after a fault is marked; its slot takes another one in `go_on`.
        if group.dropped.any():
            result.dropped[self.trial[group.dropped & (self.trial >= 0)]] = True

        # An action counts as an env step unless the row ends the episode, since it is ignored there.
        valid, ended = rows.valid, rows.ended & rows.valid
        acting = valid & ~ended
        np.add(self._return, rows.reward, out=self._return, where=valid)
        self._length += acting
        result.env_steps += int(np.count_nonzero(acting))
        if self._success_column is not None:
            self._succeeded |= valid & (rows.info[:, self._success_column] > 0)

        if ended.any():
            self._record_episodes(np.flatnonzero(ended))
        return np.flatnonzero(valid)

    def _record_episodes(self, slots: NDArray[np.int64]) -> None:
        """Write the episodes that have ended in these slots into the result."""
        result, episodes = self._wave.result, (self.trial[slots], self.group.episode[slots])
        # The clock of the group still stands at the episode that has just ended.
        result.returns[episodes] = self._return[slots]
        result.lengths[episodes] = self._length[slots]
        result.successes[episodes] = self._succeeded[slots]
        self._reset_sums(slots)

        # Where the trial has ended too, all of its rows are there.
        over = slots[self.group.rows.trial_end[slots]]
        self._wave.rows_of_trial[self.trial[over]] = self.time[over] + 1

    def _reset_sums(self, slots: NDArray[np.int64]) -> None:
        self._return[slots], self._length[slots], self._succeeded[slots] = 0.0, 0, False

    def _store_states(self, sink: Sink, slots: NDArray[np.int64]) -> None:
        """Give the sink the hidden states before the present rows of these slots, where it stores them."""
        state = self._actor.state
        if not state:
            raise ValueError(
                "This actor has no state to store: let an agent's memory read along (ShadowMemory)."
            )
        # Before row 0 every state is the initial one, which needs no store.
        due = slots[(self.time[slots] % sink.state_every == 0) & (self.time[slots] > 0)]
        if len(due):
            # Select on the device first: only the states that are stored are copied from there.
            stored = {
                name: leaf[torch.from_numpy(due).to(leaf.device)].cpu().numpy()
                for name, leaf in state.items()
            }
            sink.write_states(self.trial[due], self.time[due], stored)

    def _next_starts(self, free: NDArray[np.int64]) -> dict[int, Start]:
        """The next trials by slot: one for each free slot, as far as there are trials."""
        # Free slots are filled in their order, so which slot plays which trial follows from the rounds alone.
        starts = {}
        self._reset_sums(free)  # where a trial was given up, its episode never ended
        for slot, (trial, start, noise) in zip(free.tolist(), self._wave.take(len(free)), strict=False):
            starts[slot], self.trial[slot], self._noise[slot] = start, trial, noise
            self.time[slot] = -1  # its start row, when it comes, is row 0
        return starts
