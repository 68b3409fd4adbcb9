"""HumanoidDir against plain MuJoCo and against Gymnasium's Humanoid."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from envs.base import Split
from envs.meta.locomotion.humanoid_dir import HumanoidDirShard
from envs.meta.make_env import make_family
from tests.envs.meta.locomotion.gymnasium_peer import assert_random_returns_are_the_reported_ones, peer_of
from tests.envs.meta.locomotion.plain_mujoco import PlainRobot, assert_same_as_plain
from tests.envs.meta.played import Played, random_actions


class PlainHumanoid(PlainRobot):
    """The definition, in scalars."""

    file, frame_skip, noise, normal_speeds, gain = "humanoid.xml", 5, 0.01, False, 0.4

    def position(self) -> list[float]:
        bodies = range(1, 14)
        total = sum(self.model.body_mass[body] for body in bodies)
        return [
            sum(self.model.body_mass[body] * self.data.xipos[body, axis] for body in bodies) / total
            for axis in (0, 1)
        ]

    def reward(self, torques: list[float], velocity: list[float]) -> float:
        way = [speed * 0.015 for speed in velocity]
        reward = (
            0.25 * (way[0] * self.task[0] + way[1] * self.task[1]) / 0.003
            - 0.1 * sum(torque**2 for torque in torques)
            + 5
        )
        return (
            reward - min(0.5e-6 * sum(force**2 for force in self.data.cfrc_ext.flatten().tolist()), 10)
            if self.contacts
            else reward
        )

    def fallen(self) -> bool:
        return not 1.0 <= self.data.qpos[2] <= 2.0

    def obs(self) -> np.ndarray:
        data = self.data
        parts = [
            data.qpos[2:],
            data.qvel,
            data.cinert,
            data.cvel,
            data.qfrc_actuator,
            *([data.cfrc_ext] if self.contacts else []),
        ]
        return np.concatenate([np.asarray(part).flatten() for part in parts])


class PlainHumanoidWithContacts(PlainHumanoid):
    contacts = True


def humanoids(num_slots: int, **options: Any) -> tuple[Played, HumanoidDirShard]:
    played = Played(make_family("HumanoidDir", **options), num_slots)
    assert isinstance(played.shard, HumanoidDirShard)
    return played, played.shard


@pytest.mark.parametrize("plain", [PlainHumanoid, PlainHumanoidWithContacts])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_physics_equals_a_plain_mj_step_loop_bit_for_bit(plain: type[PlainHumanoid], threads: int):
    assert_same_as_plain(make_family("HumanoidDir", contacts=plain.contacts), plain, threads)


def test_observations_and_rewards_equal_gymnasiums_humanoid(monkeypatch: pytest.MonkeyPatch):
    """Along x the reward is Gymnasium's, except that its bonus is not paid on the row of a fall.

    Gymnasium's observation leaves the zeros out.
    """
    peer = peer_of(monkeypatch, "Humanoid-v5")
    played, shard = humanoids(1, contacts=True)
    world = np.r_[45:55, 185:191, 269:275, 292:298]
    assert world.max() < 376
    rng, falls, forces = np.random.default_rng(0), 0, 0
    for seed in range(4):
        rows = played.reset([0], [[1.0, 0.0]], [seed])
        peer.reset()
        peer.set_state(shard.qpos[0].copy(), shard.qvel[0].copy())
        assert isinstance(rows.obs, np.ndarray)
        # Gymnasium does not ask for the contact forces of a start.
        assert (np.delete(rows.obs[0], world)[:-78] == peer._get_obs().astype(np.float32)[:-78]).all()
        for _ in range(100):
            action = random_actions(rng, make_family("HumanoidDir"), 1)
            played.step([0], action)
            obs, reward, terminated, _, _ = peer.step(0.4 * action[0].astype(np.float64))
            assert (rows.obs[0, world] == 0).all()
            assert (np.delete(rows.obs[0], world) == obs.astype(np.float32)).all()
            assert rows.terminated[0] == terminated
            assert rows.reward[0] == pytest.approx(float(reward) + 5 * terminated, rel=1e-11, abs=1e-11)
            forces += bool((rows.obs[0, 292:] != 0).any())
            if terminated:
                falls += 1
                break
    peer.close()
    assert falls and forces > 10


def test_the_directions_are_uniform_and_the_splits_disjoint():
    family = make_family("HumanoidDir")
    assert family.spec.split is Split.disjoint
    tasks = family.sample_tasks(np.random.default_rng(0), 20_000, "train")
    assert np.abs(np.hypot(*tasks.T) - 1).max() < 1e-15
    angles = np.arctan2(tasks[:, 1], tasks[:, 0]) / (2 * math.pi) % 1
    assert np.abs(np.quantile(angles, np.linspace(0, 1, 11)) - np.linspace(0, 1, 11)).max() < 0.015


def test_the_task_decides_what_the_same_motion_is_worth():
    played, _ = humanoids(3)
    tasks = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    played.reset(np.arange(3), tasks, [4, 4, 4])
    before = played.rows.info[:, 1:].copy()
    rows = played.step(
        np.arange(3), np.tile(random_actions(np.random.default_rng(0), make_family("HumanoidDir"), 1), (3, 1))
    )
    way = rows.info[0, 1:] - before[0]
    assert rows.reward[0] - rows.reward[1] == pytest.approx(2 * 0.25 * way[0] / 0.003, abs=1e-9)
    assert rows.info[:, 0] == pytest.approx(np.array([way[0], -way[0], way[1]]) / 0.015, abs=1e-9)


def test_the_return_of_random_actions_is_the_reported_one():
    assert_random_returns_are_the_reported_ones(make_family("HumanoidDir"), tasks=100)
    assert make_family("HumanoidDir", contacts=True).spec.reference is None
