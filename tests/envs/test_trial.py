"""The trial: the table of boundaries, for random horizons, k and early ends; and its single-environment face."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.backends.base import BackendConfig, OnFault
from envs.parallel_env_manager import ParallelEnvManager, TrialDroppedError
from envs.trial import Boundary, VariBadWrapper
from tests.toys import CountingConfig, CountingFamily, FaultyFamily, fall_step, noise_of
from utils.seeding import episode_seeds


def manager_of(
    num_envs: int = 1, *, k: int = 2, horizon: int = 5, falls: bool = False, oracle: bool = False
) -> ParallelEnvManager:
    family = CountingFamily(CountingConfig(max_episode_steps=horizon, falls=falls))
    return ParallelEnvManager(family, num_envs, episodes_per_trial=k, seed=0, oracle=oracle)


def test_the_rows_of_a_trial_are_those_of_the_table() -> None:
    horizon = 3
    with manager_of(horizon=horizon) as manager:
        rows = manager.reset()
        seen = [rows.copy()]
        while manager.running.any():
            seen.append(manager.step(np.full((1, 2), 0.5, np.float32)).copy())
    assert len(seen) == 2 * (horizon + 1)
    #                                                              start      end start      end
    assert [int(row.episode_start[0]) for row in seen] == [1, 0, 0, 0, 1, 0, 0, 0]
    assert [int(row.trial_start[0]) for row in seen] == [1, 0, 0, 0, 0, 0, 0, 0]
    assert [int(row.ended[0]) for row in seen] == [0, 0, 0, 1, 0, 0, 0, 1]
    assert [int(row.trial_end[0]) for row in seen] == [0, 0, 0, 0, 0, 0, 0, 1]
    assert [float(row.prev_action[0, 0]) for row in seen] == [0, 0.5, 0.5, 0.5, 0, 0.5, 0.5, 0.5]
    assert [row.reward[0] != 0 for row in seen] == [False, True, True, True, False, True, True, True]
    assert [float(row.obs[0, -1]) for row in seen] == [0, 0, 0, 0, 1, 0, 0, 0]  # pyright: ignore[reportArgumentType, reportCallIssue] - a Box


@settings(max_examples=40, deadline=None, derandomize=True)
@given(k=st.integers(1, 4), horizon=st.integers(1, 9), seed=st.integers(0, 2**62))
def test_boundaries_for_any_horizon_k_and_early_end(k: int, horizon: int, seed: int) -> None:
    task = np.array([0.3, 0.1])
    episodes = [episode_seeds(np.array([seed], np.uint64), np.array([episode])) for episode in range(k)]
    lengths = [min(horizon, int(fall_step(task[None], own, horizon)[0])) for own in episodes]
    with manager_of(k=k, horizon=horizon, falls=True) as manager:
        rows = manager.reset([task], seeds=[seed])
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
                assert rows.obs[0, 3] == t and rows.obs[0, 2] == np.float32(noise_of(own)[0])  # pyright: ignore[reportArgumentType, reportCallIssue]
                rows = manager.step(np.zeros((1, 2), np.float32))
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


# -- VariBadWrapper ------------------------------------------------------------------------------------------


def steps_of(env: VariBadWrapper) -> list[tuple[np.ndarray, float, bool, bool, dict[str, object]]]:
    """A whole trial, from its reset."""
    seen = []
    while not seen or not (seen[-1][2] or seen[-1][3]):
        seen.append(env.step(np.zeros(2, np.float32)))
    return seen


def test_a_trial_is_k_times_h_plus_one_minus_one_steps() -> None:
    env = VariBadWrapper(manager_of(k=3, horizon=4))
    env.reset(seed=1)
    seen = steps_of(env)
    assert len(seen) == 3 * (4 + 1) - 1
    assert [step[4]["episode_start"] for step in seen].count(True) == 2
    assert [step[4]["truncated"] for step in seen].count(True) == 3, "inner ends are in info"
    env.close()


def test_the_legacy_boundary_hides_the_start_row() -> None:
    env = VariBadWrapper(manager_of(k=2, horizon=4), boundary=Boundary.legacy)
    env.reset(seed=1)
    seen = steps_of(env)
    assert len(seen) == 2 * 4
    flags = [step[0][-1] for step in seen]
    assert flags == [0, 0, 0, 1, 0, 0, 0, 0], "the flag stands on the last row of episode 1"
    start = seen[3][4]["start_state"]
    assert isinstance(start, np.ndarray) and start[3] == 0 and seen[3][0][3] == 4
    env.close()


def test_the_legacy_boundary_leaves_an_observation_without_a_flag_alone() -> None:
    family = CountingFamily(CountingConfig(max_episode_steps=4, falls=False))
    env = VariBadWrapper(
        ParallelEnvManager(family, 1, episodes_per_trial=2, new_episode_flag=False, seed=0),
        boundary=Boundary.legacy,
    )
    env.reset(seed=1)
    last = steps_of(env)[3][0]
    assert last.shape == family.spec.obs_space.shape and last[3] == 4 and last[-1] != 1
    env.close()


def test_the_task_is_chosen_by_options_and_shown_to_an_oracle() -> None:
    env = VariBadWrapper(manager_of(oracle=True))
    obs, info = env.reset(seed=0, options={"task": np.array([0.25, 0.5])})
    assert obs[5:7].tolist() == [0.25, 0.5] and np.asarray(info["task"]).tolist() == [0.25, 0.5]
    with pytest.raises(ValueError, match="'task'"):
        env.reset(options={"tsak": 1})
    env.close()


def test_a_seed_repeats_the_trial_and_its_absence_does_not() -> None:
    env = VariBadWrapper(manager_of())
    first, _ = env.reset(seed=3)
    again, _ = env.reset(seed=3)
    other, _ = env.reset()
    assert first.tolist() == again.tolist() != other.tolist()
    env.close()


def test_stepping_past_the_end_is_refused() -> None:
    env = VariBadWrapper(manager_of(k=1, horizon=1))
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.zeros(2, np.float32))
    env.reset()
    env.step(np.zeros(2, np.float32))
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.zeros(2, np.float32))
    env.close()


@pytest.mark.filterwarnings("ignore:.*Box observation space (minimum|maximum) value.*")
def test_the_wrapper_passes_gymnasiums_check() -> None:
    env = VariBadWrapper(manager_of(oracle=True), render_mode="rgb_array")
    check_env(env, skip_render_check=True)
    env.reset()
    assert env.render().shape == (4, 6, 3)
    env.close()


@pytest.mark.parametrize("boundary", list(Boundary))
@pytest.mark.parametrize("where", ["reset", "step"])
def test_a_trial_that_is_given_up_is_an_error_instead_of_an_old_row(
    boundary: Boundary, where: str, tmp_path: Path
) -> None:
    """The fault comes in the second episode (the reset that starts it, or a step), once."""
    family = FaultyFamily(
        fault="raise", where="step", at=2, times=1, folder=str(tmp_path), max_episode_steps=3
    )
    if where == "reset":
        family = FaultyFamily(
            fault="raise", where="reset", times=1, folder=str(tmp_path), max_episode_steps=3
        )
    env = VariBadWrapper(
        ParallelEnvManager(family, 1, episodes_per_trial=2, backend=BackendConfig(on_fault=OnFault.drop)),
        boundary=boundary,
    )

    def play() -> int:
        env.reset(seed=0)
        return len(steps_of(env))

    with pytest.raises(
        TrialDroppedError,
        match=r"The trial of slot 0 was given up after a fault, so there is no row of it: a reset starts",
    ):
        play()
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.zeros(2, np.float32))
    assert play() == (6 if boundary is Boundary.legacy else 7)
    env.close()


def test_the_wrapper_is_the_face_of_one_slot() -> None:
    with manager_of(2) as manager, pytest.raises(ValueError, match="one slot"):
        VariBadWrapper(manager)
