"""Other libraries stepping the same environments before the same policy, each imported only when its row is
opened; and the bare loop of our own.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from numpy.typing import NDArray

from benchmarks.parts.cases import HORIZON, Table
from benchmarks.parts.limit import BareShard
from benchmarks.parts.policy import Loop
from envs.interop.sb3 import as_sb3_vec_env
from envs.interop.vector_env import RetrialVectorEnv
from envs.parallel_env_manager import ParallelEnvManager
from policies.agents.agent import Agent
from utils.machine import available_cores

# More are asked of Gymnasium's AsyncVectorEnv only, whose processes are the lightest, up to its own limit.
MANY_PROCESSES, MOST_PROCESSES = 64, 200

# A batch of (observations, rewards, dones).
Batch = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]


class Peer(ABC):
    """A vector environment as some library has it."""

    # Whether the step after an end is the reset, which ignores its action and is no env-step.
    resets_in_next_step = True

    @abstractmethod
    def reset(self) -> NDArray[Any]:
        """The first observations."""

    @abstractmethod
    def step(self, actions: NDArray[Any]) -> Batch:
        """One step of all environments."""

    @abstractmethod
    def close(self) -> None:
        """Stop its workers."""


class GymnasiumPeer(Peer):
    """Gymnasium's vector environments, or our slots as one of them."""

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        self._envs = envs

    def reset(self) -> NDArray[Any]:
        return self._envs.reset(seed=0)[0]

    def step(self, actions: NDArray[Any]) -> Batch:
        obs, reward, terminated, truncated, _ = self._envs.step(actions)
        return obs, reward, terminated | truncated

    def close(self) -> None:
        self._envs.close()


class SinglePeer(Peer):
    """One Gymnasium environment, as a batch of one."""

    resets_in_next_step = False

    def __init__(self, table: Table) -> None:
        self._env = table.case.gym()

    def reset(self) -> NDArray[Any]:
        return self._env.reset(seed=0)[0][None]

    def step(self, actions: NDArray[Any]) -> Batch:
        obs, reward, terminated, truncated, _ = self._env.step(actions[0])
        if terminated or truncated:
            obs, _ = self._env.reset()
        return obs[None], np.array([float(reward)]), np.array([terminated or truncated])

    def close(self) -> None:
        self._env.close()


class Sb3Peer(Peer):
    """Stable-Baselines3's SubprocVecEnv, or our slots as a VecEnv."""

    resets_in_next_step = False

    def __init__(self, envs: Any) -> None:
        self._envs = envs

    def reset(self) -> NDArray[Any]:
        return self._envs.reset()

    def step(self, actions: NDArray[Any]) -> Batch:
        obs, reward, done, _ = self._envs.step(actions)
        return obs, reward, done

    def close(self) -> None:
        self._envs.close()


class EnvPoolPeer(Peer):
    """EnvPool's own C++ environments, in its threads."""

    def __init__(self, table: Table, threads: int) -> None:
        assert table.case.envpool is not None
        name, options = table.case.envpool
        make = importlib.import_module("envpool").make
        self._envs = make(
            name,
            env_type="gymnasium",
            num_envs=table.slots,
            num_threads=threads,
            seed=0,
            max_episode_steps=HORIZON,
            **options,
        )

    def reset(self) -> NDArray[Any]:
        return self._envs.reset()[0]

    def step(self, actions: NDArray[Any]) -> Batch:
        obs, reward, terminated, truncated, _ = self._envs.step(actions.astype(np.float64))
        return obs, reward, terminated | truncated

    def close(self) -> None:
        self._envs.close()


class TorchRlPeer(Peer):
    """TorchRL's ParallelEnv over Gymnasium environments."""

    resets_in_next_step = False

    def __init__(self, table: Table) -> None:
        import torch

        self._from_numpy, library = torch.from_numpy, importlib.import_module("torchrl.envs")
        self._envs = library.ParallelEnv(
            table.slots, partial(_wrapped, table.case.gym), mp_start_method="fork"
        )

    def reset(self) -> NDArray[Any]:
        self._now = self._envs.reset()
        return self._now["observation"].numpy()

    def step(self, actions: NDArray[Any]) -> Batch:
        self._now["action"] = self._from_numpy(actions)
        done, self._now = self._envs.step_and_maybe_reset(self._now)
        result = done["next"]
        return self._now["observation"].numpy(), result["reward"].numpy()[:, 0], result["done"].numpy()[:, 0]

    def close(self) -> None:
        self._envs.close()


class BarePeer(Peer):
    """Retrial's own environments with nothing around them. What steps all slots and then acts cannot be
    faster.
    """

    resets_in_next_step = False

    def __init__(self, table: Table) -> None:
        self._bare = BareShard(table.case, table.slots)

    def reset(self) -> NDArray[Any]:
        self._bare.reset()
        return self._obs

    def step(self, actions: NDArray[Any]) -> Batch:
        done = self._bare.step(actions)
        return self._obs, self._bare.rows.reward, done

    @property
    def _obs(self) -> NDArray[Any]:
        assert isinstance(self._bare.rows.obs, np.ndarray)
        return self._bare.rows.obs

    def close(self) -> None:
        self._bare.close()


def _subprocesses(table: Table) -> Any:
    library = importlib.import_module("stable_baselines3.common.vec_env")
    return library.SubprocVecEnv([table.case.gym] * table.slots, start_method="fork")


def _manager(table: Table, workers: int) -> ParallelEnvManager:
    return ParallelEnvManager(
        table.case.family(), table.slots, num_workers=workers, max_episode_steps=HORIZON, seed=0
    )


def _as_gymnasium(table: Table, workers: int) -> Peer:
    return GymnasiumPeer(RetrialVectorEnv(_manager(table, workers), seed=0))


def _as_sb3(table: Table, workers: int) -> Peer:
    # A package that is missing is named as in the rows of other peers.
    importlib.import_module("stable_baselines3")
    return Sb3Peer(as_sb3_vec_env(_manager(table, workers), seed=0))


def _wrapped(gym: Callable[[], Any]) -> Any:
    return importlib.import_module("torchrl.envs").GymWrapper(gym(), device="cpu")


class PeerBench:
    """A peer, and the policy before it (or constant actions)."""

    note = ""

    def __init__(self, peer: Peer, table: Table, num_envs: int, agent: Agent | None) -> None:
        family = table.case.family()
        self._peer, self._loop = peer, Loop(agent, family, num_envs) if agent is not None else None
        space = family.spec.action_space
        self._constant = np.zeros((num_envs, *(space.shape or ())), space.dtype)
        self._now: Batch = (peer.reset(), np.zeros(num_envs), np.ones(num_envs, np.bool_))
        self._fresh = np.zeros(num_envs, np.bool_)

    def run(self, seconds: float) -> float:
        """Run for so many seconds; env-steps per second."""
        steps, start, now = 0, perf_counter(), 0.0
        while now - start < seconds:
            actions = self._constant if self._loop is None else self._loop.act(*self._now)
            self._now = self._peer.step(actions)
            ignored = int(np.count_nonzero(self._fresh)) if self._peer.resets_in_next_step else 0
            self._fresh = self._now[2]
            steps += len(self._fresh) - ignored
            now = perf_counter()
        return steps / (now - start)

    def worker_mib(self) -> float:
        """Not asked of other libraries."""
        return 0.0

    def close(self) -> None:
        """Stop its workers."""
        self._peer.close()


def peers_of(table: Table) -> Iterator[tuple[str, Callable[[], Peer], int]]:
    """(name, how it is opened, environments) of every peer that can be asked to step this table's
    environments.
    """
    slots, cores = table.slots, available_cores()
    if slots <= MOST_PROCESSES:
        yield (
            f"Gymnasium AsyncVectorEnv, {slots} processes",
            lambda: GymnasiumPeer(AsyncVectorEnv([table.case.gym] * slots)),
            slots,
        )
    yield (
        f"Gymnasium SyncVectorEnv, {slots} environments",
        lambda: GymnasiumPeer(SyncVectorEnv([table.case.gym] * slots)),
        slots,
    )
    if slots <= MANY_PROCESSES:
        yield f"SB3 SubprocVecEnv, {slots} processes", lambda: Sb3Peer(_subprocesses(table)), slots
        yield f"TorchRL ParallelEnv, {slots} processes", lambda: TorchRlPeer(table), slots
    # Our slots behind the faces of others.
    for workers in sorted({1, cores}):
        yield (
            f"make_vec of Retrial, {workers} workers",
            partial(_as_gymnasium, table, workers),
            slots,
        )
        yield f"SB3 VecEnv of Retrial, {workers} workers", partial(_as_sb3, table, workers), slots
    if table.case.envpool is not None:
        yield f"EnvPool, {cores} threads", lambda: EnvPoolPeer(table, cores), slots
    if table.case.mujoco:
        yield f"bare loop of mujoco.batch, {cores} threads", lambda: BarePeer(table), slots
    if table.case.name == "cyber":
        yield "bare loop of the shard", lambda: BarePeer(table), slots
    yield "batch-1 loop", lambda: SinglePeer(table), 1
