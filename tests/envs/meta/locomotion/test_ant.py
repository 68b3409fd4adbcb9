"""What the ant's tasks share, against Gymnasium's Ant with contacts."""

from __future__ import annotations

import numpy as np
import pytest

from envs.meta.locomotion.ant import FORCES, AntShard
from envs.meta.make_env import make_family
from tests.envs.meta.locomotion.gymnasium_peer import peer_of
from tests.envs.meta.played import Played, random_actions


def test_the_contact_cost_is_gymnasiums(monkeypatch: pytest.MonkeyPatch):
    """Towards 0 radians the reward is that of Gymnasium's Ant with its own contact cost.

    Only the bonus differs: Gymnasium does not pay it on the row of a fall.
    """
    family = make_family("AntDir", variant="forward_backward", contacts=True)
    peer = peer_of(monkeypatch, "Ant-v5", contact_cost_weight=0.5e-3)
    played, rng, costs = Played(family, 1), np.random.default_rng(0), set[float]()
    assert isinstance(played.shard, AntShard)
    for seed in range(5):
        rows = played.reset([0], [[0.0]], [seed])
        peer.reset()
        peer.set_state(played.shard.qpos[0].copy(), played.shard.qvel[0].copy())
        for _ in range(60):
            action = random_actions(rng, family, 1)
            played.step([0], action)
            _, reward, terminated, _, info = peer.step(action[0].astype(np.float64))
            assert rows.reward[0] == pytest.approx(reward + terminated, rel=1e-12, abs=1e-12)
            costs.add(info["reward_contact"])
            if terminated:
                break
    peer.close()
    assert len(costs) > 20, "the ant touches the ground"


def test_the_observed_forces_are_gymnasiums_and_those_of_the_world(monkeypatch: pytest.MonkeyPatch):
    family = make_family("AntGoal", contacts=True)
    peer = peer_of(monkeypatch, "Ant-v5", exclude_current_positions_from_observation=False)
    played, rng, felt = Played(family, 1), np.random.default_rng(0), 0
    assert isinstance(played.shard, AntShard)
    rows = played.reset([0], [[1.0, 0.0]], [0])
    assert isinstance(rows.obs, np.ndarray) and rows.obs.shape == (1, 29 + FORCES)
    peer.reset()
    peer.set_state(played.shard.qpos[0].copy(), played.shard.qvel[0].copy())
    for _ in range(100):
        action = random_actions(rng, family, 1)
        played.step([0], action)
        obs = peer.step(action[0].astype(np.float64))[0].astype(np.float32)
        assert (rows.obs[0] == np.concatenate([obs[:29], np.zeros(6), obs[29:]])).all()
        felt += np.abs(obs[29:]).max() > 0
    peer.close()
    assert felt > 10


def test_forces_beyond_the_limits_count_as_the_limits():
    played = Played(make_family("AntGoal", contacts=True), 3)
    shard, rng = played.shard, np.random.default_rng(0)
    assert isinstance(shard, AntShard)
    played.reset(np.arange(3), np.zeros((3, 2)), np.arange(3))
    largest = 0.0
    for _ in range(40):
        played.step(np.arange(3), rng.uniform(-1, 1, (3, 8)))
        raw, clipped = (
            shard.contact_forces(slice(None)).reshape(3, FORCES),
            shard.clipped_forces(np.array([0, 1, 2])),
        )
        assert (clipped == np.clip(raw, -1, 1)).all()
        largest = max(largest, np.abs(raw).max())
    assert largest > 1
