"""The one loop that steps environments: a wave of trials, for collection and for evaluation alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import ActionSpace, Rows, uniform_actions
from envs.interop.spaces import MASK_KEY, allowed_choices
from envs.parallel_env_manager import ParallelEnvManager, SlotGroup, Start
from policies.agents.agent import Agent
from policies.agents.base import PolicyRows
from policies.collection.actor_state import Remembering, StateKeeper, keep
from policies.collection.staging import Staging, parts_of, rows_of
from utils.seeding import Phase, Purpose, generator, trial_seed
from utils.stopwatch import Stopwatch


@dataclass(frozen=True)
class WavePlan(ABC):
    """The trials of a wave: which tasks, and the numbers that key all their randomness."""

    root: int
    phase: Phase
    first: int
    """The number of the first trial."""

    @abstractmethod
    def __len__(self) -> int:
        """The most trials that may be started."""

    @property
    def env_steps(self) -> int | None:
        """When so many have been taken in the wave, no further trial is started; None: all are."""
        return None

    @abstractmethod
    def task(self, index: int) -> NDArray[np.float64]:
        """[task_dim] of the wave's trial `index`."""

    def start(self, index: int) -> Start:
        """The task and the seed of the wave's trial `index`."""
        return Start(self.task(index), trial_seed(self.root, self.phase, self.first + index))

    def action_rng(self, index: int) -> np.random.Generator:
        """The stream of its action noise."""
        return generator(self.root, self.phase, Purpose.ACTION, self.first + index)


@dataclass(frozen=True)
class Plan(WavePlan):
    """A list of tasks, all of which are played."""

    tasks: NDArray[np.float64]
    """[n, task_dim]"""

    def __len__(self) -> int:
        return len(self.tasks)

    def task(self, index: int) -> NDArray[np.float64]:
        return self.tasks[index]


@dataclass(frozen=True)
class OpenPlan(WavePlan):
    """Tasks that are drawn as their trials start: with a budget of env steps, nobody knows how many will."""

    most: int
    draw: Callable[[int], NDArray[np.float64]]
    """The task of a trial, by its number."""
    budget: int | None = None

    def __len__(self) -> int:
        return self.most

    @property
    def env_steps(self) -> int | None:
        return self.budget

    def task(self, index: int) -> NDArray[np.float64]:
        return self.draw(self.first + index)


@dataclass
class WaveResult:
    """What happened in each trial, by episode index; trials in the order of their numbers, whoever finished
    first.
    """

    env_steps: int
    returns: NDArray[np.float64]
    """[n, k]; not a number in trials that were given up"""
    lengths: NDArray[np.int64]
    """[n, k] env steps"""
    successes: NDArray[np.bool_]
    """[n, k] whether the family's `success` info was ever positive; all False where it defines none."""
    dropped: NDArray[np.bool_]
    """[n] trials that were given up after a fault (`on_fault=drop`, or an environment that is not
    deterministic).
    """

    @classmethod
    def empty(cls, trials: int, episodes: int) -> WaveResult:
        """Nothing has happened yet."""
        shape = (trials, episodes)
        return cls(
            0,
            np.zeros(shape),
            np.zeros(shape, np.int64),
            np.zeros(shape, np.bool_),
            np.zeros(trials, np.bool_),
        )


class WaveInterrupted(Exception):
    """The wave was asked to stop; none of its trials count."""


Act = Callable[[NDArray[Any]], NDArray[Any]]
"""noise [n, ...] -> actions [n, ...] for the present rows of a group of slots, all n of them."""


class Actor(Protocol):
    """Who chooses actions in a wave."""

    def for_group(self, manager: ParallelEnvManager, group: SlotGroup) -> Act:
        """Who acts for this group during one wave, with a memory of its own."""
        ...

    def draw_noise(self, rng: np.random.Generator, num_rows: int) -> NDArray[Any]:
        """[num_rows, ...] the noise of one trial."""
        ...


class Sink(Protocol):
    """Who keeps the rows of a wave."""

    def reserve(self, n: int) -> None:
        """A wave of at most n trials begins."""
        ...

    def write(
        self,
        trials: NDArray[np.int64],
        times: NDArray[np.int64],
        rows: Rows,
        slots: NDArray[np.int64],
        actions: NDArray[Any],
        extras: Mapping[str, NDArray[Any]],
    ) -> None:
        """Row `times[i]` of the wave's trial `trials[i]` is in `slots[i]`; actions and extras are those of
        all slots.
        """
        ...

    def commit(self, lengths: NDArray[np.int64]) -> None:
        """All trials that were started have ended, with so many rows; 0 where one was given up."""
        ...

    def discard(self, started: int) -> None:
        """The wave was interrupted after so many of its trials had been started."""
        ...


class AgentActor:
    """An agent that acts on all rows of a group in one batch; its hidden state is indexed by slot and forgets
    at trial starts only.
    """

    def __init__(self, agent: Agent, *, device: str, deterministic: bool = False) -> None:
        self._agent = agent
        self._device = device
        self._deterministic = deterministic

    def for_group(self, manager: ParallelEnvManager, group: SlotGroup) -> Act:
        live, reward = group.rows, np.zeros(group.size, np.float32)
        obs = (
            {key: torch.from_numpy(part) for key, part in live.obs.items()}
            if isinstance(live.obs, dict)
            else torch.from_numpy(live.obs)
        )
        # Views of the live rows: made once, and always up to date.
        rows = PolicyRows(
            obs, *map(torch.from_numpy, (reward, live.prev_action, live.episode_start, live.trial_start))
        )
        valid = torch.from_numpy(live.valid)
        parts = parts_of(rows) | {"valid": valid, "noise": torch.from_numpy(self._blank_noise(group.size))}
        staging = None if self._device == "cpu" else Staging(parts, self._device)
        state, said = self._agent.initial_state(group.size), dict[str, torch.Tensor]()

        @torch.inference_mode()
        def act(noise: NDArray[Any]) -> NDArray[Any]:
            nonlocal state, said
            reward[:] = live.reward
            seen, there, drawn, before = rows, valid, torch.from_numpy(noise), state
            if staging is not None:
                image = staging.send(parts | {"noise": drawn})
                seen, there, drawn = rows_of(image), image["valid"], image["noise"]
            if (
                manager.may_lag
            ):  # a slot whose row is not there yet forgets nothing in this round, and remembers nothing of it
                seen = replace(seen, trial_start=seen.trial_start & there)
            action, said, state = self._agent.act(seen, state, drawn, self._deterministic)
            if manager.may_lag:
                state = {
                    key: torch.where(there.view(-1, *[1] * (new.dim() - 1)), new, before[key])
                    for key, new in state.items()
                }
            return action.cpu().numpy()

        return Remembering(
            act, lambda: state, lambda: {name: values.cpu().numpy() for name, values in said.items()}
        )

    def draw_noise(self, rng: np.random.Generator, num_rows: int) -> NDArray[Any]:
        return self._agent.draw_noise(rng, num_rows)

    def _blank_noise(self, num_rows: int) -> NDArray[Any]:
        return np.zeros_like(self.draw_noise(np.random.default_rng(0), num_rows))


class RandomActor:
    """Uniform actions, among those that an `action_mask` allows: the random pool, and the random reference."""

    def __init__(self, space: ActionSpace) -> None:
        self._space = space

    def for_group(self, manager: ParallelEnvManager, group: SlotGroup) -> Act:
        space, obs = self._space, group.rows.obs
        if isinstance(space, spaces.Box):
            return lambda noise: noise
        mask = obs.get(MASK_KEY) if isinstance(obs, dict) else None
        return lambda noise: (
            allowed_choices(space, noise, mask) + (space.start if isinstance(space, spaces.Discrete) else 0)
        )

    def draw_noise(self, rng: np.random.Generator, num_rows: int) -> NDArray[Any]:
        space = self._space
        if not isinstance(space, spaces.Box):
            return rng.random((num_rows, *(space.shape or ())))
        return uniform_actions(rng, space, num_rows)


def run_wave(
    manager: ParallelEnvManager,
    actor: Actor,
    plan: WavePlan,
    *,
    sink: Sink | None = None,
    keeper: StateKeeper | None = None,
    watch: Stopwatch | None = None,
    tick: Callable[[WaveResult], bool] = lambda _: False,
) -> WaveResult:
    """Run the trials of `plan`, each to its end: a free slot takes the next trial in the message in which the
    others step.

    A plan with a budget of env steps starts no more trials once they have been taken; what is running then
    still runs to its end. So no slot is idle but in the tail of the wave, and whether a trial is in the wave
    depends on what was played before it, never on how long or how good it is itself: means over the wave are
    unbiased. (Fixed rows per slot, unfinished trials carried over, would spare the tail, where few slots are
    stepped; a checkpoint would have to hold those trials, and a memory that reads whole trials could not
    learn from parts.)

    Groups of slots take turns: while one is acted for, the other steps. Which slot plays which trial depends
    on the order in which trials end, counted in rounds, not on the clock (but for `min_ready`): the same plan
    over as many slots and groups gives the same rows, whatever the backend. `tick` sees the result grow once
    a round, and stops the wave by True; a `keeper` keeps what actors remember.
    """
    wave, watch = _Wave(manager, actor, plan, keeper), watch or Stopwatch()
    if sink is not None:
        sink.reserve(len(plan))
    playing = wave.begin()
    watch.lap("env")
    while playing:
        for run in tuple(playing):
            run.wait()
            watch.lap("env")
            slots = run.count()
            watch.lap("other")
            actions = run.act()
            watch.lap("act")
            if sink is not None:
                sink.write(run.trial[slots], run.time[slots], run.group.rows, slots, actions, run.extras)
                watch.lap("buffer")
            if not run.go_on(actions):
                playing.remove(run)
            watch.lap("env")
        if playing and tick(wave.result):
            manager.abandon()
            if sink is not None:
                sink.discard(wave.started)
            raise WaveInterrupted
    if sink is not None:
        sink.commit(wave.rows_of_trial[: wave.started])
        watch.lap("buffer")
    return wave.finish()


class _Wave:
    """Which trials have begun, and what has happened in them."""

    def __init__(
        self, manager: ParallelEnvManager, actor: Actor, plan: WavePlan, keeper: StateKeeper | None
    ) -> None:
        self._manager, self._plan = manager, plan
        self.actor, self.keeper = actor, keeper
        self.rows_of_trial = np.zeros(len(plan), np.int64)
        self.result = WaveResult.empty(len(plan), manager.episodes_per_trial)
        self.started = 0
        self.runs = [_GroupRun(self, manager, group) for group in manager.groups]

    def begin(self) -> list[_GroupRun]:
        """Start the first trials, one in each slot as far as they go; the runs that have one."""
        self._manager.abandon()
        return [run for run in self.runs if run.begin()]

    def take(self, most: int) -> Iterator[tuple[int, Start, NDArray[Any]]]:
        """The next trials, at most so many: number, start, and noise of all its rows."""
        plan = self._plan
        for index in range(self.started, min(self.started + most, len(plan))):
            if plan.env_steps is not None and self.result.env_steps >= plan.env_steps:
                return
            self.started += 1
            yield (
                index,
                self._plan.start(index),
                self.actor.draw_noise(self._plan.action_rng(index), self._manager.rows_per_trial),
            )

    def finish(self) -> WaveResult:
        """The result of what was started, without numbers for what was given up."""
        result, stop = self.result, self.started
        result.returns[result.dropped] = np.nan
        return WaveResult(
            result.env_steps,
            result.returns[:stop],
            result.lengths[:stop],
            result.successes[:stop],
            result.dropped[:stop],
        )


class _GroupRun:
    """One group of slots in a wave: which trial each slot plays, and which of its rows is there."""

    def __init__(self, wave: _Wave, manager: ParallelEnvManager, group: SlotGroup) -> None:
        self._wave, self.group = wave, group
        self.trial = np.full(group.size, -1)
        self.time = np.full(group.size, -1)
        """[n] the number of the slot's row in its trial."""
        self._index = np.arange(group.size)
        self._act = wave.actor.for_group(manager, group)
        like = wave.actor.draw_noise(np.random.default_rng(0), 1)
        self._noise = np.zeros((group.size, manager.rows_per_trial, *like.shape[1:]), like.dtype)
        self._return, self._length, self._succeeded = (
            np.zeros(group.size),
            np.zeros(group.size, np.int64),
            np.zeros(group.size, np.bool_),
        )
        """[n] of the episode that the slot is in."""
        success = manager.spec.success
        self._success = manager.spec.info_names.index(success) if success else None

    def begin(self) -> bool:
        """Start the first trials; whether there were any."""
        starts = self._next(self._index)
        if starts:
            self.group.post(np.zeros_like(self.group.rows.prev_action), starts)
        return bool(starts)

    def wait(self) -> None:
        """Wait for the rows."""
        rows = self.group.wait()
        self.time += rows.valid

    def count(self) -> NDArray[np.int64]:
        """Take the rows in; the slots that have one. What an episode came to is in the result when it has
        ended.
        """
        rows, group, result = self.group.rows, self.group, self._wave.result
        if group.dropped.any():
            result.dropped[self.trial[group.dropped & (self.trial >= 0)]] = True
        valid, ended = rows.valid, rows.ended & rows.valid
        acting = valid & ~ended
        np.add(self._return, rows.reward, out=self._return, where=valid)
        self._length += acting
        result.env_steps += int(np.count_nonzero(acting))
        if self._success is not None:
            self._succeeded |= valid & (rows.info[:, self._success] > 0)
        if ended.any():
            self._conclude(np.flatnonzero(ended))
        slots = np.flatnonzero(valid)
        if self._wave.keeper is not None:
            keep(self._wave.keeper, self._act, slots, self.trial, self.time)
        return slots

    def _conclude(self, slots: NDArray[np.int64]) -> None:
        """The episodes in these slots have ended."""
        result, at = self._wave.result, (self.trial[slots], self.group.episode[slots])
        result.returns[at], result.lengths[at], result.successes[at] = (
            self._return[slots],
            self._length[slots],
            self._succeeded[slots],
        )
        self._forget(slots)
        over = slots[self.group.rows.trial_end[slots]]
        self._wave.rows_of_trial[self.trial[over]] = self.time[over] + 1

    def _forget(self, slots: NDArray[np.int64]) -> None:
        self._return[slots], self._length[slots], self._succeeded[slots] = 0.0, 0, False

    def act(self) -> NDArray[Any]:
        """Actions of all slots."""
        return self._act(self._noise[self._index, np.minimum(self.time, self._noise.shape[1] - 1)])

    @property
    def extras(self) -> Mapping[str, NDArray[Any]]:
        """What was said of the rows besides."""
        return self._act.extras() if isinstance(self._act, Remembering) else {}

    def go_on(self, actions: NDArray[Any]) -> bool:
        """Post what comes next; whether anything does."""
        running = self.group.running
        starts = {} if running.all() else self._next(np.flatnonzero(~running))
        if not starts and not running.any():
            return False
        self.group.post(actions, starts)
        return True

    def _next(self, free: NDArray[np.int64]) -> dict[int, Start]:
        """The next trials, one for each free slot as far as they go."""
        starts = {}
        self._forget(free)  # where a trial was given up, its episode has not ended
        for slot, (trial, start, noise) in zip(free.tolist(), self._wave.take(len(free)), strict=False):
            starts[slot], self.trial[slot], self._noise[slot] = start, trial, noise
            self.time[slot] = -1  # its start row, when it comes, is row 0
        return starts
