"""AsyncPettingZooVecEnv: many PettingZoo environments, stepped by the workers of a manager."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from envs.backends.base import BackendConfig, StartMethod
from envs.interop.pettingzoo.shard import OF_AGENT, SEEDS, MakeEnv, SeatsFamily
from envs.parallel_env_manager import ParallelEnvManager

# Where the numbers of an agent's row stand.
REWARD, TERMINATED, TRUNCATED, ALIVE = range(len(OF_AGENT))
ByAgent = dict[str, Any]
Stepped = tuple[ByAgent, ByAgent, ByAgent, ByAgent, dict[str, Any]]


class AsyncPettingZooVecEnv:
    """AgileRL's vector environment by name and by what it returns, over a ParallelEnvManager.

        env = AsyncPettingZooVecEnv([make_env for _ in range(8)])
        obs, infos = env.reset(seed=0)
        obs, rewards, terminations, truncations, infos = env.step({agent: actions, ...})

    Each of them is a dict by agent of arrays [N, ...]. When all agents of an environment have ended, it
    begins its next episode in the same step. What differs from AgileRL's:

    - A worker holds several environments (`num_workers`); one that dies or hangs is started again, and its
      episode is played again to where it was, with equal data (`backend`).
    - AECEnvs are taken as well: a step is a cycle, or one turn (envs/interop/pettingzoo/game.py).
    - `infos["final_obs"]` has the last observations of the episodes that `infos["_final_obs"]` marks.
    - Flags are booleans. `infos["alive"]` says which agents have a row; where one has none, its reward and
      its observation are NaN (`placeholder="zero"`: 0), and observations of whole numbers are 0.
    - Each environment's seeds are keyed by the given seed and its number, so those of two runs do not meet.
      With `seeding="offset"` environment i begins its first episode with seed + i, as AgileRL's does.
    - Of the agents' infos the numbers `info_names` are returned.
    - After a `TimeoutError` of `step_wait` the same answer can be awaited again.
    """

    def __init__(
        self,
        env_fns: Sequence[MakeEnv],
        copy: bool = True,
        context: Literal["spawn", "fork", "forkserver"] | None = None,
        *,
        num_workers: int | None = None,
        seeding: Literal["keyed", "offset"] = "keyed",
        placeholder: Literal["nan", "zero"] = "nan",
        info_names: Sequence[str] = (),
        max_episode_steps: int = 10_000,
        backend: BackendConfig | None = None,
    ) -> None:
        # Everything that is returned is a copy, whatever `copy` says.
        if seeding not in ("keyed", "offset") or placeholder not in ("nan", "zero"):
            raise ValueError("seeding is 'keyed' or 'offset', and placeholder is 'nan' or 'zero'.")
        self._seeding, self._placeholder = seeding, np.nan if placeholder == "nan" else 0.0
        self._manager = _manager(
            env_fns, num_workers, tuple(info_names), max_episode_steps, _backend(backend, context)
        )
        family: Any = self._manager.family
        self._family: SeatsFamily = family
        self.num_envs = len(env_fns)
        self.agents = self.possible_agents = list(family.agents)
        self.num_agents, self.metadata = len(self.agents), family.metadata
        self.render_mode, self.closed = family.render_mode, False
        self.single_observation_space = family.observation_spaces.__getitem__
        self.single_action_space = family.action_spaces.__getitem__
        self.observation_space = self._batched(family.observation_spaces)
        self.action_space = self._batched(family.action_spaces)
        self._rngs: list[np.random.Generator] = []
        self._thread = ThreadPoolExecutor(1)
        self._pending: Future[Any] | None = None

    def _batched(self, single: Mapping[str, spaces.Space[Any]]) -> Callable[[str], spaces.Space[Any]]:
        return cache(lambda agent: batch_space(single[agent], self.num_envs))

    # -- stepping --------------------------------------------------------------------------------------------

    def reset(
        self, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ByAgent, dict[str, Any]]:
        """Begin an episode in every environment."""
        self._check_free()
        return self._reset(seed, options)

    def reset_async(
        self, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> None:
        """Begin to reset."""
        self._check_free()
        self._pending = self._thread.submit(self._reset, seed, options)

    def reset_wait(self, timeout: float | None = None) -> tuple[ByAgent, dict[str, Any]]:
        """What `reset` returns; after a `TimeoutError` it can be awaited again."""
        return self._awaited(timeout)

    def step(self, actions: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Stepped:
        """One step of every environment; an episode that ends is followed by the next one at once."""
        self._check_free()
        return self._step(self._joint(actions))

    def step_async(self, actions: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Begin to step."""
        self._check_free()
        self._pending = self._thread.submit(self._step, self._joint(actions))

    def step_wait(self, timeout: float | None = None) -> Stepped:
        """What `step` returns; after a `TimeoutError` it can be awaited again."""
        return self._awaited(timeout)

    def render(self) -> tuple[NDArray[np.uint8], ...]:
        """The picture of every environment."""
        self._check_free()
        return tuple(self._manager.render(slot) for slot in range(self.num_envs))

    def call(self, name: str) -> tuple[Any, ...]:
        """`call("render")`, all that can be called in the workers."""
        if name != "render":
            raise AttributeError(f"Only 'render' can be called in the environments of workers, not {name!r}.")
        return self.render()

    def close(self, timeout: float | None = None, terminate: bool = False) -> None:
        """End the workers and free what they share; what is pending is awaited first."""
        self.closed = True
        self._thread.shutdown()
        self._manager.close()

    # -- inside ----------------------------------------------------------------------------------------------

    def _check_free(self) -> None:
        if self.closed:
            raise ClosedEnvironmentError("The environment was closed.")
        if self._pending is not None:
            raise AlreadyPendingCallError("A call is pending: await it first.", "pending")

    def _awaited(self, timeout: float | None) -> Any:
        if self._pending is None:
            raise NoAsyncCallError("Nothing is pending: call step_async or reset_async first.", "waiting")
        # A time-out leaves the call pending, so no later call can take its answer for its own.
        answer = self._pending.exception(timeout)
        done, self._pending = self._pending, None
        if answer is not None:
            raise answer
        return done.result()

    def _joint(self, actions: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> NDArray[Any]:
        numbers = self._numbers()
        acts = (numbers[ALIVE] > 0) & (numbers[TERMINATED] == 0) & (numbers[TRUNCATED] == 0)
        return self._family.actions.joint(actions, dict(zip(self.agents, acts, strict=True)))

    def _reset(
        self, seed: int | Sequence[int] | None, options: dict[str, Any] | None
    ) -> tuple[ByAgent, dict[str, Any]]:
        if options:
            raise ValueError(f"Options cannot be sent to the workers: give them to env_fns, not {options}.")
        seeds = self._first_seeds(seed)
        self._begin(range(self.num_envs), seeds)
        return self._observations(), self._infos()

    def _first_seeds(self, seed: int | Sequence[int] | None) -> list[int]:
        """The seeds of the first episodes; the streams of the later ones begin anew where a seed is given."""
        if seed is not None or not self._rngs:
            given = [seed] * self.num_envs if seed is None or isinstance(seed, int) else list(seed)
            if len(given) != self.num_envs:
                raise ValueError(f"There are {self.num_envs} environments and {len(given)} seeds.")
            self._rngs = [
                np.random.default_rng(np.random.SeedSequence(number, spawn_key=(slot,)))
                for slot, number in enumerate(given)
            ]
            if self._seeding == "offset" and seed is not None:
                shift = isinstance(seed, int)
                return [int(number or 0) + slot * shift for slot, number in enumerate(given)]
        return [self._next_seed(slot) for slot in range(self.num_envs)]

    def _begin(self, slots: Sequence[int], seeds: Sequence[int]) -> None:
        """Begin episodes; to the family the seed of an episode is its task."""
        self._manager.reset(np.array(seeds)[:, None], seeds, slots)

    def _next_seed(self, slot: int) -> int:
        return int(self._rngs[slot].integers(SEEDS))

    def _step(self, joint: NDArray[Any]) -> Stepped:
        manager, rows = self._manager, self._manager.rows
        manager.step(joint)
        over = ~manager.running
        # What the manager cut, at its limit or after a fault, is truncated for all who are alive.
        cut = over & (rows.truncated | manager.dropped)
        numbers = self._numbers()
        # An episode that was given up after a fault has no row.
        alive = (numbers[ALIVE] > 0) & rows.valid
        rewards = np.where(alive, numbers[REWARD], self._placeholder)
        terminations = numbers[TERMINATED] > 0
        truncations = (numbers[TRUNCATED] > 0) | (cut & ~terminations)
        # The next episodes begin in the same step; the last observations go into the infos.
        final_obs = self._observations() if over.any() else None
        if final_obs is not None:
            slots = np.flatnonzero(over).tolist()
            self._begin(slots, [self._next_seed(slot) for slot in slots])
        infos = self._infos() | {"alive": self._by_agent(alive)}
        if final_obs is not None:
            infos |= {"final_obs": final_obs, "_final_obs": over}
        flags = self._by_agent(terminations), self._by_agent(truncations)
        return self._observations(), self._by_agent(rewards), *flags, infos

    def _by_agent(self, values: NDArray[Any]) -> ByAgent:
        return dict(zip(self.agents, values, strict=True))

    def _numbers(self) -> NDArray[np.float64]:
        """[names, agents, N] a copy of what is known of each agent's rows: OF_AGENT and then `info_names`."""
        info = self._manager.rows.info
        return info.T.reshape(len(self.agents), -1, len(info)).swapaxes(0, 1).copy()

    def _infos(self) -> dict[str, Any]:
        """The infos of each agent, with Gymnasium's masks of the environments that have them."""
        infos: dict[str, Any] = {}
        numbers = self._numbers()
        for number, agent in enumerate(self.agents):
            alive = numbers[ALIVE, number] > 0
            infos[agent], infos[f"_{agent}"] = {}, alive
            for place, name in enumerate(self._family.info_names, len(OF_AGENT)):
                infos[agent] |= {name: numbers[place, number], f"_{name}": alive.copy()}
        return infos

    def _observations(self) -> ByAgent:
        """A copy of what each agent sees: an array [N, ...], or a dict of them."""
        rows: Any = self._manager.rows.obs
        obs: ByAgent = {}
        out = self._numbers()[ALIVE] == 0
        somebody_is_out = bool(out.any())
        for agent, is_out in zip(self.agents, out, strict=True):
            arrays = {key: rows[key].copy() for key in self._family.parts[agent]}
            for array in arrays.values() if somebody_is_out else ():
                if array.dtype.kind == "f":
                    array[is_out] = self._placeholder
            whole = arrays.get(agent)
            start = len(agent) + 1
            obs[agent] = {key[start:]: part for key, part in arrays.items()} if whole is None else whole
        return obs


def _backend(backend: BackendConfig | None, context: str | None) -> BackendConfig:
    """How the workers are started; AgileRL's word for it is `context`."""
    backend = backend or BackendConfig()
    return backend if context is None else replace(backend, start_method=StartMethod(context))


def _manager(
    env_fns: Sequence[MakeEnv],
    num_workers: int | None,
    info_names: tuple[str, ...],
    max_episode_steps: int,
    backend: BackendConfig,
) -> ParallelEnvManager:
    """A manager with one slot for each factory; slots of the same factory share a family."""
    # A family is found by the factory itself, so that `[make_env] * 8` is one block of slots.
    made: dict[int, Callable[[], SeatsFamily]] = {}
    for make in env_fns:
        if id(make) not in made:
            family = SeatsFamily(make, info_names, max_episode_steps)
            made[id(make)] = lambda family=family: family
    workers = num_workers or min(len(env_fns), os.cpu_count() or 1)
    name = backend.name
    if name == "auto":
        name = "process" if workers > 1 else "serial"
    return ParallelEnvManager(
        [made[id(make)] for make in env_fns],
        num_workers=workers,
        backend=replace(backend, name=name),
        max_episode_steps=max_episode_steps,
    )
