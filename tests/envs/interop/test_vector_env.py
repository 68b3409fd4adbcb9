"""RetrialVectorEnv: the data of Gymnasium's vectoriser over make_env, from any backend, with wrappers."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import vector as wrappers

import envs.meta
from envs.backends.base import BackendConfig, OnFault
from envs.interop.vector_env import RetrialVectorEnv
from envs.parallel_env_manager import ParallelEnvManager
from tests.toys import CountingConfig, CountingFamily
from tests.toys_faulty import FaultyConfig, FaultyFamily
from utils.options import OptionError

# A family of each kind of observation and action, with trials short enough to see many of them.
KINDS = {"PointRobot": 3, "GridNavi": 4, "KeyToDoor": 5, "CyberDefence": 3, "AntDir": 3}


def made(
    family_name: str, mode: str = "vector_entry_point", **options: Any
) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    family = envs.meta.FAMILIES[family_name]
    options = {"num_envs": 3, "episodes_per_task": 2, **options}
    if family_name != "KeyToDoor":
        options.setdefault("horizon", KINDS[family_name])
    return gymnasium.make_vec(f"Retrial/{family_name}-v{family.version}", vectorization_mode=mode, **options)


def counting(num_envs: int = 3, **options: Any) -> RetrialVectorEnv:
    family = CountingFamily(CountingConfig(max_episode_steps=4))
    return RetrialVectorEnv(ParallelEnvManager(family, num_envs, episodes_per_trial=2, **options))


def assert_same(one: Any, other: Any) -> None:
    """Equal values, types and keys, however deep."""
    if isinstance(one, dict):
        assert isinstance(other, dict) and one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, tuple):
        for left, right in zip(one, other, strict=True):
            assert_same(left, right)
    else:
        np.testing.assert_array_equal(one, other, strict=True)


@pytest.mark.parametrize("name", KINDS)
def test_its_data_is_that_of_gymnasiums_own_vectoriser(name: str) -> None:
    ours, theirs = made(name), made(name, "sync")
    assert ours.observation_space == theirs.observation_space and ours.action_space == theirs.action_space
    assert ours.metadata["autoreset_mode"] is theirs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert_same(ours.reset(seed=5), theirs.reset(seed=5))
    ours.action_space.seed(0)
    ends = 0
    for _ in range(20):
        actions = ours.action_space.sample()
        row = ours.step(actions)
        assert_same(row, theirs.step(actions))
        ends += int((row[2] | row[3]).sum())
    assert ends > 0 or name == "KeyToDoor", "trials ended and began again"
    ours.close()
    theirs.close()


def test_it_has_the_default_mode_and_gymnasiums_repr() -> None:
    with_default = gymnasium.make_vec("Retrial/PointRobot-v1", num_envs=2)
    assert isinstance(with_default.unwrapped, RetrialVectorEnv)
    assert repr(with_default) == "RetrialVectorEnv(Retrial/PointRobot-v1, num_envs=2)"
    with_default.close()


@pytest.mark.parametrize("backend", ["process", "pipe", "thread"])
def test_workers_change_nothing(backend: str) -> None:
    alone, spread = made("PointRobot"), made("PointRobot", num_workers=2, name=backend)
    assert_same(alone.reset(seed=1), spread.reset(seed=1))
    for _ in range(9):
        actions = alone.action_space.sample()
        assert_same(alone.step(actions), spread.step(actions))
    alone.close()
    spread.close()


def test_slots_have_their_own_streams() -> None:
    few, many = counting(1), counting(4)
    few.reset(seed=7)
    many.reset(seed=[1, 2, 7, 3])
    for _ in range(30):
        assert_same(few.step(np.zeros((1, 2)))[0][0], many.step(np.zeros((4, 2)))[0][2])
    few.close()
    many.close()


def test_some_slots_are_reset_to_tasks_of_the_callers_choice() -> None:
    env = counting()
    env.reset(seed=0)
    before, *_ = env.step(np.zeros((3, 2)))
    mask = np.array([True, False, True])
    obs, infos = env.reset(seed=4, options={"mask": mask, "tasks": [[0.25, 0.5], [0.75, 1.0]]})
    assert infos["_task"].tolist() == mask.tolist()
    assert infos["task"].tolist() == [[0.25, 0.5], [0.0, 0.0], [0.75, 1.0]]
    assert obs[1].tolist() == before[1].tolist() and obs[0, :2].tolist() == [0.25, 0.5]
    again, _ = env.reset(seed=4, options={"reset_mask": mask, "tasks": [[0.25, 0.5], [0.75, 1.0]]})
    assert_same(again, obs)
    env.close()


def test_a_trial_given_up_after_a_fault_is_truncated_and_the_next_one_begins() -> None:
    family = FaultyFamily(FaultyConfig(max_episode_steps=4, task_above=0.5, fault="slot_error"))
    backend = BackendConfig(on_fault=OnFault.drop)
    env = RetrialVectorEnv(ParallelEnvManager(family, 2, episodes_per_trial=2, backend=backend))
    env.reset(seed=0, options={"tasks": [[0.1, 0.0], [0.9, 0.0]]})
    env.step(np.zeros((2, 2)))
    _, rewards, terminated, truncated, infos = env.step(np.zeros((2, 2)))
    assert truncated.tolist() == infos["dropped"].tolist() == [False, True] and not terminated.any()
    assert rewards[1] == 0.0 and rewards[0] != 0.0
    _, _, _, _, infos = env.step(np.zeros((2, 2)))
    assert infos["trial_start"].tolist() == [False, True]
    env.close()


def test_gymnasiums_wrappers_run_on_it() -> None:
    env = wrappers.RecordEpisodeStatistics(wrappers.ClipReward(made("PointRobot"), -1.0, 1.0))
    env.reset(seed=0)
    length = 2 * (KINDS["PointRobot"] + 1) - 1
    rows = [env.step(env.action_space.sample()) for _ in range(length)]
    returns = np.sum([row[1] for row in rows], axis=0)
    _, _, terminated, truncated, infos = rows[-1]
    assert (terminated | truncated).all() and infos["_episode"].all()
    np.testing.assert_allclose(infos["episode"]["r"], returns, rtol=1e-6)
    assert infos["episode"]["l"].tolist() == [length] * 3
    env.close()


def test_pictures_are_one_for_each_slot() -> None:
    env = made("PointRobot", render_mode="rgb_array")
    env.reset(seed=0)
    pictures = env.render()
    assert isinstance(pictures, tuple)
    assert [np.asarray(picture).shape[2] for picture in pictures] == [3, 3, 3]
    env.close()


def test_bad_input_is_refused_in_a_sentence_and_changes_nothing() -> None:
    env = counting()
    with pytest.raises(ResetNeeded, match="Slot 0"):
        env.step(np.zeros((3, 2)))
    env.reset(seed=0)
    for options, sentence in (
        ({"tsak": 1}, "knows 'tasks'"),
        ({"mask": [True, False]}, "each of 3 slots"),
        ({"mask": np.zeros(3, np.bool_)}, "one of them True"),
        ({"tasks": [[0.0, 0.0]]}, "each of 3 slots"),
    ):
        with pytest.raises(ValueError, match=sentence):
            env.reset(seed=1, options=options)
    with pytest.raises(ValueError, match="3 slots and 2 seeds"):
        env.reset(seed=[1, 2])
    with pytest.raises(ValueError, match="render_mode"):
        made("PointRobot", render_mode="human")
    with pytest.raises(OptionError, match="are the same"):
        made("PointRobot", horizon=3, max_episode_steps=3)
    with pytest.raises(ValueError, match="min_ready"):
        made("PointRobot", num_workers=2, min_ready=1)
    # The refused resets drew nothing: the trials are those of a reset with seed 0 alone.
    fresh = counting()
    fresh.reset(seed=0)
    assert_same(env.step(np.zeros((3, 2))), fresh.step(np.zeros((3, 2))))
    env.close()
    fresh.close()
