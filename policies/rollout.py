"""The one loop that steps environments: a wave of trials, for collection and for evaluation alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import Rows
from envs.parallel_env_manager import ParallelEnvManager, Start
from policies.agents.agent import Agent
from policies.agents.base import PolicyRows
from utils.seeding import Phase, Purpose, generator, trial_seed
from utils.stopwatch import Stopwatch


@dataclass(frozen=True)
class Plan:
    """The trials of a wave: which tasks, and the numbers that key all their randomness."""

    root: int
    phase: Phase
    first: int
    """The number of the first trial."""
    tasks: NDArray[np.float64]
    """[n, task_dim]"""

    def __len__(self) -> int:
        return len(self.tasks)

    def start(self, index: int) -> Start:
        """The task and the seed of the wave's trial `index`."""
        return Start(self.tasks[index], trial_seed(self.root, self.phase, self.first + index))

    def action_rng(self, index: int) -> np.random.Generator:
        """The stream of its action noise."""
        return generator(self.root, self.phase, Purpose.ACTION, self.first + index)


@dataclass
class WaveResult:
    """What happened in each trial, by episode index; trials in the order of their numbers, whoever finished first."""

    env_steps: int
    returns: NDArray[np.float64]
    """[n, k]"""
    lengths: NDArray[np.int64]
    """[n, k] env steps"""
    successes: NDArray[np.bool_]
    """[n, k] whether the family's `success` info was ever positive; all False where it defines none."""

    @classmethod
    def empty(cls, trials: int, episodes: int) -> WaveResult:
        """Nothing has happened yet."""
        shape = (trials, episodes)
        return cls(0, np.zeros(shape), np.zeros(shape, np.int64), np.zeros(shape, np.bool_))


class WaveInterrupted(Exception):
    """The wave was asked to stop; none of its trials count."""


class Actor(Protocol):
    """Who chooses actions in a wave."""

    def begin(self, manager: ParallelEnvManager) -> None:
        """A wave over this manager starts."""
        ...

    def draw_noise(self, rng: np.random.Generator, num_rows: int) -> NDArray[Any]:
        """[num_rows, ...] the noise of one trial."""
        ...

    def act(self, noise: NDArray[Any]) -> NDArray[Any]:
        """[N, ...] actions for the manager's present rows, all N of them."""
        ...


class Sink(Protocol):
    """Who keeps the rows of a wave."""

    def reserve(self, n: int) -> None:
        """A wave of n trials begins."""
        ...

    def write(self, trials: NDArray[np.int64], times: NDArray[np.int64], rows: Rows, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        """Row `times[i]` of the wave's trial `trials[i]` is in `slots[i]`."""
        ...

    def commit(self, lengths: NDArray[np.int64]) -> None:
        """All trials have ended, with so many rows."""
        ...

    def discard(self) -> None:
        """The wave was interrupted."""
        ...


class AgentActor:
    """An agent that acts on all N rows in one batch; its hidden state is indexed by slot and forgets at trial starts only."""

    def __init__(self, agent: Agent, *, device: str, deterministic: bool = False) -> None:
        self._agent = agent
        self._device = device
        self._deterministic = deterministic

    def begin(self, manager: ParallelEnvManager) -> None:
        rows = self._live = manager.rows
        self._reward = np.zeros(manager.num_envs, np.float32)
        obs = {key: torch.from_numpy(part) for key, part in rows.obs.items()} if isinstance(rows.obs, dict) else torch.from_numpy(rows.obs)
        # Views of the live rows: made once, and always up to date.
        self._rows = PolicyRows(obs, *map(torch.from_numpy, (self._reward, rows.prev_action, rows.trial_start)))
        self._state = self._agent.initial_state(manager.num_envs)

    def draw_noise(self, rng: np.random.Generator, num_rows: int) -> NDArray[Any]:
        return self._agent.draw_noise(rng, num_rows)

    def act(self, noise: NDArray[Any]) -> NDArray[Any]:
        self._reward[:] = self._live.reward
        rows = self._rows if self._device == "cpu" else self._rows.to(self._device)
        action, _, self._state = self._agent.act(rows, self._state, torch.from_numpy(noise).to(self._device), self._deterministic)
        return action.cpu().numpy()


class RandomActor:
    """Uniform actions: the random pool, and the random reference."""

    def begin(self, manager: ParallelEnvManager) -> None:
        self._space = manager.single_action_space

    def draw_noise(self, rng: np.random.Generator, num_rows: int) -> NDArray[Any]:
        space = self._space
        if isinstance(space, spaces.Discrete):
            return rng.integers(space.n, size=num_rows)
        return rng.uniform(space.low, space.high, (num_rows, *space.shape)).astype(np.float32)

    def act(self, noise: NDArray[Any]) -> NDArray[Any]:
        return noise


class OracleActor:
    """The family's analytic or scripted policy, which is told the task."""

    def begin(self, manager: ParallelEnvManager) -> None:
        self._manager = manager
        inner = manager.spec.obs_space.shape
        self._width = inner[0] if inner else 0

    def draw_noise(self, rng: np.random.Generator, num_rows: int) -> NDArray[Any]:
        return np.zeros((num_rows, 1), np.float32)

    def act(self, noise: NDArray[Any]) -> NDArray[Any]:
        rows = self._manager.rows
        obs = rows.obs if isinstance(rows.obs, np.ndarray) else next(iter(rows.obs.values()))
        return self._manager.family.oracle_action(obs[:, : self._width], rows.task)


def run_wave(
    manager: ParallelEnvManager,
    actor: Actor,
    plan: Plan,
    *,
    sink: Sink | None = None,
    watch: Stopwatch | None = None,
    tick: Callable[[WaveResult], bool] = lambda _: False,
) -> WaveResult:
    """Run all the trials of `plan`, each to its end: a free slot takes the next trial in the message in which the others step.

    Which slot plays which trial depends on the order in which trials end, counted in rounds, never on the clock: the same plan over the
    same number of slots gives the same rows, whatever the backend. `tick` sees the result grow once a round, and stops the wave by True.
    """
    watch = watch or Stopwatch()
    wave = _Wave(manager, actor, plan)
    if sink is not None:
        sink.reserve(len(plan))
    watch.lap("other")
    with torch.inference_mode():
        rows = wave.begin()
        watch.lap("env")
        while True:
            slots = np.flatnonzero(rows.valid)
            wave.count(slots)
            watch.lap("other")
            actions = wave.act()
            watch.lap("act")
            if sink is not None:
                sink.write(wave.trial[slots], wave.time[slots], rows, slots, actions)
                watch.lap("buffer")
            starts = wave.next_starts(slots)
            if not starts and not manager.running.any():
                break
            if tick(wave.result):
                if sink is not None:
                    sink.discard()
                raise WaveInterrupted
            rows = manager.step(actions, starts)
            wave.time += 1
            watch.lap("env")
    if sink is not None:
        sink.commit(wave.rows_of_trial)
        watch.lap("buffer")
    return wave.result


class _Wave:
    """Which trial each slot plays, and what has happened in it."""

    def __init__(self, manager: ParallelEnvManager, actor: Actor, plan: Plan) -> None:
        self._manager, self._actor, self._plan = manager, actor, plan
        trials, episodes, slots = len(plan), manager.episodes_per_trial, manager.num_envs
        self.trial = np.full(slots, -1)
        self.time = np.zeros(slots, np.int64)
        self.rows_of_trial = np.zeros(trials, np.int64)
        self._started = 0
        self._index = np.arange(slots)
        actor.begin(manager)
        like = actor.draw_noise(plan.action_rng(0), 1)
        self._noise = np.zeros((slots, manager.rows_per_trial, *like.shape[1:]), like.dtype)
        success = manager.spec.success
        self._success = manager.spec.info_names.index(success) if success else None
        self.result = WaveResult.empty(trials, episodes)

    def begin(self) -> Rows:
        """Start the first trials, one in each slot as far as they go."""
        self._manager.abandon()
        starts = self._take(self._index[: len(self._plan)])
        rows = self._manager.step(np.zeros_like(self._manager.rows.prev_action), starts)
        self.time += 1
        return rows

    def next_starts(self, slots: NDArray[np.int64]) -> dict[int, Start]:
        """The next trials, one for each slot whose trial has just ended, as far as they go."""
        over = slots[self._manager.rows.trial_end[slots]]
        return self._take(over[: len(self._plan) - self._started]) if len(over) else {}

    def _take(self, slots: NDArray[np.int64]) -> dict[int, Start]:
        starts = {}
        for slot in slots.tolist():
            starts[slot] = self._plan.start(self._started)
            self._noise[slot] = self._actor.draw_noise(self._plan.action_rng(self._started), self._noise.shape[1])
            self.trial[slot] = self._started
            self.time[slot] = -1  # its start row, one step from now, is row 0
            self._started += 1
        return starts

    def count(self, slots: NDArray[np.int64]) -> None:
        """Take these slots' rows into the result."""
        rows, trial, result = self._manager.rows, self.trial[slots], self.result
        episode = self._manager.episode[slots]
        acting = ~rows.ended[slots]
        result.returns[trial, episode] += rows.reward[slots]
        result.lengths[trial, episode] += acting
        result.env_steps += int(acting.sum())
        if self._success is not None:
            result.successes[trial, episode] |= rows.info[slots, self._success] > 0
        self.rows_of_trial[trial] += 1

    def act(self) -> NDArray[Any]:
        """Actions of all slots."""
        return self._actor.act(self._noise[self._index, np.minimum(self.time, self._noise.shape[1] - 1)])
