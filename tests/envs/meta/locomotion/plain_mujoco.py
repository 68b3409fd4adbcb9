"""Robots on plain MuJoCo data, frame by frame: every locomotion family is compared with them, bit for bit."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from envs.base import TaskFamily
from envs.meta.locomotion.mujoco_shard import MujocoShard
from tests.envs.meta.played import Played, random_actions

# Any, since its names come from C extensions, which a type checker cannot see.
mujoco: Any = importlib.import_module("mujoco")


class PlainRobot(ABC):
    """One robot on one MjData: the definition of a family, in scalars. It shares no code with the family."""

    file: str
    frame_skip: int
    noise: float
    normal_speeds: bool
    # From an action in [-1, 1] to a torque.
    gain: float = 1.0
    contacts: bool = False

    def __init__(self) -> None:
        self.model = mujoco.MjModel.from_xml_path(str(files("gymnasium") / "envs/mujoco/assets" / self.file))
        self.data = mujoco.MjData(self.model)
        self.task: list[float] = []

    def parametrise(self) -> None:
        """Set the fields of the model that the task changes."""
        return

    @abstractmethod
    def position(self) -> list[float]:
        """What the velocity is the change of."""

    @abstractmethod
    def reward(self, torques: list[float], velocity: list[float]) -> float:
        """The reward of the step that has been made."""

    def fallen(self) -> bool:
        """Whether the episode has ended."""
        return False

    @abstractmethod
    def obs(self) -> NDArray[Any]:
        """The observation, in float64."""

    def reset(self, task: NDArray[np.float64], seed: int) -> None:
        """Start an episode."""
        self.task = task.tolist()
        self.parametrise()
        rng = np.random.default_rng(seed)
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:] += rng.uniform(-self.noise, self.noise, self.model.nq)
        speeds = (
            rng.standard_normal(self.model.nv) * self.noise
            if self.normal_speeds
            else rng.uniform(-self.noise, self.noise, self.model.nv)
        )
        self.data.qvel[:] += speeds
        mujoco.mj_forward(self.model, self.data)
        self._contacts()

    def step(self, action: NDArray[np.float64]) -> float:
        """The reward."""
        before, torques = self.position(), [self.gain * float(one) for one in action]
        self.data.ctrl[:] = torques
        for _ in range(self.frame_skip):
            mujoco.mj_step(self.model, self.data)
        self._contacts()
        dt = float(self.model.opt.timestep) * self.frame_skip
        return self.reward(
            torques, [(after - old) / dt for after, old in zip(self.position(), before, strict=True)]
        )

    def _contacts(self) -> None:
        if self.contacts:
            mujoco.mj_rnePostConstraint(self.model, self.data)


def assert_same_as_plain(
    family: TaskFamily, plain: Callable[[], PlainRobot], threads: int, *, rounds: int = 200
) -> None:
    """Rounds of partial steps and partial resets, each slot with its own task.

    States, observations and ends are equal bit for bit, and rewards to rounding. Robots that fall are reset,
    and some that do not.
    """
    played = Played(family, 3, threads)
    shard = played.shard
    assert isinstance(shard, MujocoShard)
    rng, robots, starts = np.random.default_rng(threads), [plain() for _ in range(3)], 0

    def begin(slots: NDArray[np.int64]) -> None:
        tasks, seeds = family.sample_tasks(rng, len(slots), "train"), rng.integers(2**63, size=len(slots))
        played.reset(slots, tasks, seeds)
        for slot, task, seed in zip(slots, tasks, seeds, strict=True):
            robots[slot].reset(task, int(seed))
            assert_same_rows(slot)

    def assert_same_rows(slot: Any) -> None:
        data, obs = robots[slot].data, played.rows.obs
        assert isinstance(obs, np.ndarray)
        assert (shard.qpos[slot] == data.qpos).all() and (shard.qvel[slot] == data.qvel).all()
        assert (obs[slot] == robots[slot].obs().astype(np.float32)).all()

    begin(np.arange(3))
    for _ in range(rounds):
        slots = np.arange(3) if rng.random() < 0.6 else np.flatnonzero(rng.random(3) < 0.7)
        actions = random_actions(rng, family, len(slots))
        if len(slots):
            played.step(slots, actions)
        for slot, action in zip(slots, actions.astype(np.float64), strict=True):
            reward = robots[slot].step(action)
            assert_same_rows(slot)
            assert played.rows.terminated[slot] == robots[slot].fallen()
            assert played.rows.reward[slot] == pytest.approx(reward, rel=1e-12, abs=1e-12)
        again = np.array(
            [slot for slot in slots if played.rows.terminated[slot] or rng.random() < 0.02], np.int64
        )
        if len(again):
            begin(again)
            starts += 1
    assert starts > 2
    played.shard.close()
