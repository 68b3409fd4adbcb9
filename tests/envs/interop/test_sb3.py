"""as_sb3_vec_env: the data of SB3's own DummyVecEnv over make_env, and SB3's algorithms train on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from envs.interop.sb3 import as_sb3_vec_env
from envs.meta.make_env import make_env, make_parallel_env
from utils.options import OptionError


def test_a_missing_sb3_is_named_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "stable_baselines3.common.vec_env", None)
    with make_parallel_env("PointRobot", 2, 1) as manager, pytest.raises(OptionError, match="pip install"):
        as_sb3_vec_env(manager)


@pytest.fixture
def sb3() -> Any:
    return pytest.importorskip("stable_baselines3")


@pytest.mark.peers
@pytest.mark.parametrize(("name", "workers"), [("PointRobot", 1), ("PointRobot", 2), ("GridNavi", 1)])
def test_its_data_is_that_of_dummy_vec_env(sb3: Any, name: str, workers: int) -> None:
    options: dict[str, Any] = {"max_episode_steps": 4}
    ours = as_sb3_vec_env(make_parallel_env(name, 2, workers, num_envs=3, **options), seed=3)
    theirs = sb3.common.vec_env.DummyVecEnv([lambda: make_env(name, 2, **options)] * 3)
    theirs.seed(3)
    np.testing.assert_array_equal(ours.reset(), theirs.reset(), strict=True)
    ours.action_space.seed(0)
    ends = 0
    for _ in range(25):
        actions = np.stack([ours.action_space.sample() for _ in range(3)])
        row, expected = ours.step(actions), theirs.step(actions)
        for one, other in zip(row[:3], expected[:3], strict=True):
            np.testing.assert_array_equal(one, other, strict=True)
        for one, other in zip(row[3], expected[3], strict=True):
            assert one.keys() == other.keys()
            for key in one:
                np.testing.assert_array_equal(one[key], other[key])
        ends += int(row[2].sum())
    assert ends >= 6
    ours.close()
    theirs.close()


@pytest.mark.peers
def test_a_task_is_set_for_the_next_reset_alone(sb3: Any) -> None:
    env = as_sb3_vec_env(make_parallel_env("PointRobot", 2, 1, num_envs=2))
    env.set_options([{"task": [0.0, 1.0]}, {"task": [1.0, 0.0]}])
    env.reset()
    assert [info["task"].tolist() for info in env.reset_infos] == [[0.0, 1.0], [1.0, 0.0]]
    env.reset()
    assert [info["task"].tolist() for info in env.reset_infos] != [[0.0, 1.0], [1.0, 0.0]]
    env.set_options({"tsak": 1})
    with pytest.raises(ValueError, match="knows only 'task'"):
        env.reset()
    with pytest.raises(AttributeError, match="make_parallel_env"):
        env.set_attr("horizon", 3)
    env.close()


@pytest.mark.peers
def test_sb3_trains_on_it_with_and_without_a_memory(sb3: Any) -> None:
    contrib = pytest.importorskip("sb3_contrib")
    manager = make_parallel_env("PointRobot", 2, 1, num_envs=2, max_episode_steps=10)
    env = sb3.common.vec_env.VecMonitor(as_sb3_vec_env(manager))
    for kind, policy in ((sb3.PPO, "MlpPolicy"), (contrib.RecurrentPPO, "MlpLstmPolicy")):
        model = kind(policy, env, n_steps=32, batch_size=32, n_epochs=1, device="cpu")
        model.learn(128)
        assert model.num_timesteps == 128
        assert model.ep_info_buffer, "VecMonitor saw whole trials"
    env.close()
