"""PettingZoo environments as slots: the rows of all agents side by side, each with its own type and shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Shard, SlotError, TaskFamily
from envs.interop.pettingzoo.actions import JointActions
from envs.interop.pettingzoo.game import Game, GameStep, game_of

MakeEnv = Callable[[], Any]
# Seeds are below this number, because simulators written in C keep them in a signed int.
SEEDS = 2**31
# What is known of each agent's row, besides its observation and its named infos.
OF_AGENT = ("reward", "terminated", "truncated", "alive")


class SeatsFamily(TaskFamily):
    """The environments that `make()` makes, AECEnv or ParallelEnv; a task is the seed of its reset.

    An observation is a Dict of `agent` or, where the agent's own is a Dict, of `agent/key`. The infos are
    those of OF_AGENT and the numbers `info_names`, each as `agent/name`.
    """

    def __init__(
        self, make: MakeEnv, info_names: tuple[str, ...] = (), max_episode_steps: int = 10_000
    ) -> None:
        super().__init__(
            EnvConfig("PettingZoo", max_rollouts_per_task=1, max_episode_steps=max_episode_steps)
        )
        self.make, self.info_names = make, info_names
        env = make()
        game = game_of(env)
        self.agents, self.metadata = game.agents, dict(env.metadata)
        self.observation_spaces, self.action_spaces = game.observation_spaces, game.action_spaces
        self.render_mode = getattr(env, "render_mode", None)
        env.close()
        self.parts = {name: parts_of(name, space) for name, space in self.observation_spaces.items()}
        self.actions = JointActions(self.action_spaces)
        self.spec = EnvSpec(
            name="PettingZoo",
            obs_space=spaces.Dict({key: box for part in self.parts.values() for key, box in part.items()}),
            action_space=self.actions.space,
            task_dim=1,
            info_names=tuple(f"{agent}/{name}" for agent in self.agents for name in (*OF_AGENT, *info_names)),
        )

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        return rng.integers(SEEDS, size=(n, 1)).astype(np.float64)

    def make_shard(self, num_slots: int, threads: int = 1) -> SeatsShard:
        return SeatsShard(self, [game_of(self.make()) for _ in range(num_slots)])


def parts_of(agent: str, space: spaces.Space[Any]) -> dict[str, spaces.Box]:
    """The arrays that an agent's observation consists of, by their names in a row."""
    own = (
        {f"{agent}/{key}": part for key, part in space.spaces.items()}
        if isinstance(space, spaces.Dict)
        else {agent: space}
    )
    return {key: _box_of(agent, part) for key, part in own.items()}


def _box_of(agent: str, space: spaces.Space[Any]) -> spaces.Box:
    """The Box of a space of numbers; that of a Discrete has one number."""
    if isinstance(space, spaces.Box):
        return space
    if isinstance(space, spaces.Discrete):
        return spaces.Box(int(space.start), int(space.start + space.n - 1), (1,), np.int64)
    if isinstance(space, spaces.MultiDiscrete):
        last = space.start + space.nvec - 1
        return spaces.Box(space.start, last, space.shape, space.dtype.type)  # pyright: ignore[reportArgumentType]
    if isinstance(space, spaces.MultiBinary):
        return spaces.Box(0, 1, space.shape, np.int8)
    raise TypeError(f"What {agent} sees cannot be an array, nor a flat Dict of arrays: {space}.")


class SeatsShard(Shard):
    """A game in each slot."""

    def __init__(self, family: SeatsFamily, games: list[Game]) -> None:
        self._family, self._games = family, games

    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        """Begin an episode in these slots."""
        for slot, task in zip(slots.tolist(), tasks, strict=True):
            self.rows.info[slot] = 0.0
            self._play(slot, lambda game, seed=int(task[0]): game.reset(seed))

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        """Play a step in these slots, one after the other."""
        for slot, joint in zip(slots.tolist(), actions, strict=True):
            chosen = self._family.actions.split(joint)
            self._play(slot, lambda game, chosen=chosen: game.step(chosen))

    def _play(self, slot: int, play: Callable[[Game], Any]) -> None:
        """Let a game play, and write what that has brought."""
        game, rows = self._games[slot], self.rows
        assert isinstance(rows.obs, dict)
        try:
            played = play(game)
            arrays = dict(self._arrays(played.obs))
        except Exception as error:  # third-party code: it may raise anything
            raise SlotError(slot, f"{type(error).__name__}: {error}") from error
        # Everything has been read without an error; now it is written.
        for key, stored in rows.obs.items():
            stored[slot] = arrays.get(key, 0)
        rows.info[slot] = self._numbers(played, rows.info[slot].tolist())
        rows.reward[slot] = sum(played.rewards.values())
        rows.terminated[slot], rows.truncated[slot] = played.ends()

    def _numbers(self, played: GameStep, before: list[float]) -> list[float]:
        """What is known of each agent's row: the numbers of OF_AGENT, and then its infos."""
        names, numbers = self._family.info_names, list[float]()
        for agent in self._family.agents:
            reward, start = played.rewards.get(agent, 0.0), len(numbers)
            if agent in played.obs:
                info = played.infos[agent]
                numbers += [reward, played.terminations[agent], played.truncations[agent], 1.0]
                numbers += [float(info.get(name, 0.0)) for name in names]
            else:
                # How an agent has ended stands in its flags until the next episode.
                numbers += [reward, *before[start + 1 : start + 3], 0.0, *[0.0] * len(names)]
        return numbers

    def _arrays(self, obs: Mapping[str, Any]) -> Iterator[tuple[str, NDArray[Any]]]:
        """The arrays of what the agents see, by their names in a row."""
        for agent, seen in obs.items():
            parts = self._family.parts[agent]
            own = (
                {f"{agent}/{key}": part for key, part in seen.items()}
                if agent not in parts
                else {agent: seen}
            )
            for name, value in own.items():
                box, array = parts[name], np.asarray(value)
                # The usual case; it is copied into the row.
                if array.shape == box.shape and array.dtype == box.dtype:
                    yield name, array
                    continue
                # A Discrete is a number without dimensions, and has one in the row.
                if array.shape != box.shape and not (array.shape == () and box.shape == (1,)):
                    raise ValueError(f"what {agent} sees has the shape {array.shape}, not {box.shape}")
                yield name, array.astype(box.dtype, casting="same_kind").reshape(box.shape)

    def render(self, slot: int) -> NDArray[np.uint8]:
        """The environment's own picture."""
        return self._games[slot].env.render()

    def close(self) -> None:
        """Close every environment."""
        for game in self._games:
            game.env.close()
