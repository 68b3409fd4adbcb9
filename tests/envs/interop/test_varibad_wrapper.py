"""VariBadWrapper: a trial is one Gymnasium episode, with either boundary; it passes Gymnasium's check."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from envs.backends.base import BackendConfig, OnFault
from envs.interop.varibad_wrapper import Boundary, VariBadWrapper
from envs.parallel_env_manager import ParallelEnvManager, TrialDroppedError
from tests.toys import CountingConfig, CountingFamily
from tests.toys_faulty import FaultyFamily


def manager_of(
    num_envs: int = 1, *, k: int = 2, horizon: int = 5, oracle: bool = False
) -> ParallelEnvManager:
    """Slots of the counting toy, whose episodes all last until the horizon."""
    family = CountingFamily(CountingConfig(max_episode_steps=horizon, falls=False))
    return ParallelEnvManager(family, num_envs, episodes_per_trial=k, seed=0, oracle=oracle)


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
