"""RepeatedGame: a repeated matrix game against a hidden opponent, such as the prisoner's dilemma."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Obs, Reference, Shard, Shelf, TaskFamily
from envs.meta.kernels import checked_choices, index_of, split_choices
from envs.meta.pictures import DANGER, GOAL, GROUND, HINT, tiles
from utils.options import OptionError, option

COOPERATE, DEFECT = range(2)


class Opponent(IntEnum):
    """Who plays against the agent; the task is one of these numbers."""

    ALWAYS_COOPERATES = 0
    ALWAYS_DEFECTS = 1
    TIT_FOR_TAT = 2
    GRIM = 3


# An opponent is a machine with two states, and its state is its next action. [opponent] the first one, and
# [opponent, its action, the agent's] the one after that: tit for tat repeats the agent's action, and grim
# defects for ever once the agent has defected.
FIRST = np.array([COOPERATE, DEFECT, COOPERATE, COOPERATE])
NEXT = np.array([[[0, 0], [0, 0]], [[1, 1], [1, 1]], [[0, 1], [0, 1]], [[0, 1], [1, 1]]])


@dataclass
class RepeatedGameConfig(EnvConfig):
    """Options of RepeatedGame; the defaults are the prisoner's dilemma."""

    family: str = "RepeatedGame"
    max_episode_steps: int = option(10, "H: rounds of the game in an episode", low=1)
    payoffs: list[float] = option(
        [-1.0, -3.0, 0.0, -2.0],
        "the agent's reward where both cooperate, it alone does, the opponent alone does, neither does",
    )


class RepeatedGame(TaskFamily):
    """The agent plays a game of two actions again and again with an opponent that it has to find out.

    Task: [the opponent], each equally often: 0 always cooperates; 1 always defects; 2 is tit for tat, which
    begins by cooperating and then repeats the agent's last action; 3 is grim, which cooperates until the
    agent defects, and never again in this episode. Observation: [both cooperated, the agent alone did, the
    opponent alone did, neither did, t / H], of the round before; at the start of an episode all are 0.
    Action: cooperate, defect. Reward: `payoffs`, by the two actions; those of the prisoner's dilemma are -1,
    -3, 0 and -2. Terminated: never. H=10 rounds, k=2. Info: the reward of the opponent (for the game is
    symmetric), and how many rounds it has cooperated in this episode.

    It is the smallest task in which it is best to pay in the first episode for knowledge that pays in the
    second. One who knows the opponent has -9.5 per episode on average; the best agent that does not, -12.25
    and then -9.5; the best one that forgets between episodes, -12 in both. Always to defect gives -14, always
    to cooperate -15. All by dynamic programming, in tests/envs/meta/agents/. The splits are shared.
    """

    Config = RepeatedGameConfig
    shelf = Shelf.agents
    config: RepeatedGameConfig
    references = (Reference(oracle=-9.5, random=-16.24),)

    def __init__(self, config: RepeatedGameConfig) -> None:
        super().__init__(config)
        if len(config.payoffs) != 4:
            raise OptionError(
                f"RepeatedGame: payoffs has {len(config.payoffs)} numbers, and there are 4 outcomes of a "
                "round: both cooperate, the agent alone, the opponent alone, neither."
            )
        # [the agent's action, the opponent's]
        self.payoffs = np.array(config.payoffs).reshape(2, 2)
        self._best = _best_replies(self.payoffs, config.max_episode_steps)
        self.spec = EnvSpec(
            name="RepeatedGame",
            obs_space=spaces.Box(np.zeros(5, np.float32), np.array([1, 1, 1, 1, np.inf], np.float32)),
            action_space=spaces.Discrete(2),
            task_dim=1,
            info_names=("opponent_reward", "opponent_cooperated"),
            reference=self.measured_reference(),
        )

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        return split_choices(rng, n, tuple(Opponent), split).astype(np.float64)[:, None]

    def make_shard(self, num_slots: int, threads: int = 1) -> RepeatedGameShard:
        return RepeatedGameShard(num_slots, self.payoffs, self.config.max_episode_steps)

    def oracle_action(
        self, obs: Obs, task: NDArray[np.float64], info: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """The best reply to what this opponent will do now, and to what that will make it do."""
        assert isinstance(obs, np.ndarray)
        opponent, outcome = task[:, 0].astype(np.int64), obs[:, :4]
        mine, theirs = divmod(outcome.argmax(1), 2)
        now = np.where(outcome.any(1), NEXT[opponent, theirs, mine], FIRST[opponent])
        horizon = self.config.max_episode_steps
        time = np.rint(obs[:, 4] * np.float64(horizon)).astype(np.int64)
        return self._best[np.minimum(time, horizon - 1), opponent, now]


def _best_replies(payoffs: NDArray[np.float64], horizon: int) -> NDArray[np.int64]:
    """[H, opponent, its action now] the agent's best action, by induction from the last round."""
    best = np.zeros((horizon, len(Opponent), 2), np.int64)
    # [opponent, its next action] the best return of the rounds that are left.
    value = np.zeros((len(Opponent), 2))
    for time in reversed(range(horizon)):
        # Q(opponent, its action now, mine) = payoff + value of the state that the two actions lead to
        following = np.take_along_axis(value[:, :, None], NEXT.reshape(len(Opponent), 4, 1), 1)
        q = payoffs.T + following.reshape(NEXT.shape)
        best[time], value = q.argmax(-1), q.max(-1)
    return best


class RepeatedGameShard(Shard):
    """Slots of RepeatedGame."""

    def __init__(self, num_slots: int, payoffs: NDArray[np.float64], horizon: int) -> None:
        self._num_slots, self._payoffs, self._horizon = num_slots, payoffs, horizon
        self._opponent, self._now, self._time = (np.zeros(num_slots, np.int64) for _ in range(3))
        # What each round was, for the picture: the actions of both, or -1 where it is still to come.
        self._rounds = np.full((num_slots, horizon, 2), -1)

    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        """Begin a new match; nothing in it is drawn."""
        assert isinstance(self.rows.obs, np.ndarray)
        self._opponent[slots] = np.rint(tasks[:, 0])
        self._now[slots] = FIRST[self._opponent[slots]]
        self._time[slots] = 0
        self._rounds[slots] = -1
        self.rows.obs[slots] = 0.0
        self.rows.info[slots] = 0.0

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        """Play a round."""
        at = index_of(slots, self._num_slots)
        mine, theirs, rows = checked_choices(actions, slots, 2), self._now[at].copy(), self.rows
        rows.reward[at] = self._payoffs[mine, theirs]
        rows.info[at, 0] = self._payoffs[theirs, mine]
        rows.info[at, 1] += theirs == COOPERATE
        # The picture has room for H rounds, and the clock ends an episode there.
        self._rounds[slots, np.minimum(self._time[at], self._horizon - 1)] = np.stack([mine, theirs], 1)
        self._now[at] = NEXT[self._opponent[at], theirs, mine]
        self._time[at] += 1
        assert isinstance(rows.obs, np.ndarray)
        rows.obs[at, :4] = 2 * mine[:, None] + theirs[:, None] == np.arange(4)
        rows.obs[at, 4] = self._time[at] / self._horizon

    def render(self, slot: int) -> NDArray[np.uint8]:
        """A column for each round, the agent above the opponent: green cooperates, red defects."""
        colours = np.array([GOAL, DANGER, GROUND], np.uint8)[self._rounds[slot]]
        if self._time[slot] < self._horizon:
            colours[self._time[slot]] = HINT
        return tiles(colours.swapaxes(0, 1))
