"""The trial: the table of boundaries, for random horizons, k and early ends."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.parallel_env_manager import ParallelEnvManager
from tests.toys import CountingConfig, CountingFamily, fall_step, noise_of
from utils.seeding import episode_seeds


def manager_of(*, k: int = 2, horizon: int = 5, falls: bool = False) -> ParallelEnvManager:
    """One slot of the counting toy."""
    family = CountingFamily(CountingConfig(max_episode_steps=horizon, falls=falls))
    return ParallelEnvManager(family, 1, episodes_per_trial=k, seed=0)


def test_the_rows_of_a_trial_are_those_of_the_table() -> None:
    horizon = 3
    with manager_of(horizon=horizon) as manager:
        rows = manager.reset()
        assert isinstance(rows.obs, np.ndarray)
        seen = [rows.copy()]
        flags = [float(rows.obs[0, -1])]
        while manager.running.any():
            seen.append(manager.step(np.full((1, 2), 0.5, np.float32)).copy())
            flags.append(float(rows.obs[0, -1]))
    assert len(seen) == 2 * (horizon + 1)
    #                                                              start      end start      end
    assert [int(row.episode_start[0]) for row in seen] == [1, 0, 0, 0, 1, 0, 0, 0]
    assert [int(row.trial_start[0]) for row in seen] == [1, 0, 0, 0, 0, 0, 0, 0]
    assert [int(row.ended[0]) for row in seen] == [0, 0, 0, 1, 0, 0, 0, 1]
    assert [int(row.trial_end[0]) for row in seen] == [0, 0, 0, 0, 0, 0, 0, 1]
    assert [float(row.prev_action[0, 0]) for row in seen] == [0, 0.5, 0.5, 0.5, 0, 0.5, 0.5, 0.5]
    assert [row.reward[0] != 0 for row in seen] == [False, True, True, True, False, True, True, True]
    assert flags == [0, 0, 0, 0, 1, 0, 0, 0]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(k=st.integers(1, 4), horizon=st.integers(1, 9), seed=st.integers(0, 2**62))
def test_boundaries_for_any_horizon_k_and_early_end(k: int, horizon: int, seed: int) -> None:
    task = np.array([0.3, 0.1])
    episodes = [episode_seeds(np.array([seed], np.uint64), np.array([episode])) for episode in range(k)]
    lengths = [min(horizon, int(fall_step(task[None], own, horizon)[0])) for own in episodes]
    with manager_of(k=k, horizon=horizon, falls=True) as manager:
        rows = manager.reset([task], seeds=[seed])
        assert isinstance(rows.obs, np.ndarray)
        for episode, (length, own) in enumerate(zip(lengths, episodes, strict=True)):
            for t in range(length + 1):
                assert (bool(rows.episode_start[0]), bool(rows.trial_start[0])) == (
                    t == 0,
                    t == 0 and episode == 0,
                )
                assert (bool(rows.ended[0]), bool(rows.trial_end[0])) == (
                    t == length,
                    t == length and episode == k - 1,
                )
                falls = length < horizon or int(fall_step(task[None], own, horizon)[0]) == horizon
                assert (bool(rows.terminated[0]), bool(rows.truncated[0])) == (
                    t == length and falls,
                    t == length and not falls,
                )
                assert rows.obs[0, 3] == t and rows.obs[0, 2] == np.float32(noise_of(own)[0])
                manager.step(np.zeros((1, 2), np.float32))
        assert not rows.valid[0]


def test_a_fall_ends_the_episode_and_not_the_trial() -> None:
    with manager_of(k=3, horizon=50, falls=True) as manager:
        rows = manager.reset(tasks=[[0.0, 0.0]], seeds=[1])
        starts, falls = 1, 0
        while manager.running.any():
            rows = manager.step(np.zeros((1, 2), np.float32))
            starts += int(rows.episode_start[0])
            falls += int(rows.terminated[0] and not rows.trial_end[0])
        assert starts == 3 and falls > 0
