"""Registered Gymnasium environments as families: what they report, their rows, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envs.base import Split
from envs.meta.make_env import make_family, make_parallel_env
from envs.parallel_env_manager import ParallelEnvManager
from tests.toys_gym import CountingEnv
from utils.options import OptionError
from utils.seeding import episode_seeds


@pytest.mark.parametrize(
    ("id", "obs", "action", "horizon"),
    [
        ("CartPole-v1", (4,), spaces.Discrete(2), 500),
        ("Pendulum-v1", (3,), spaces.Box(-1, 1, (1,)), 200),
        ("FrozenLake-v1", (16,), spaces.Discrete(4), 100),
        ("HalfCheetah-v5", (17,), spaces.Box(-1, 1, (6,)), 1000),
    ],
)
def test_registered_environments_report_themselves(
    id: str, obs: tuple[int, ...], action: Any, horizon: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its warnings into the working directory
    family = make_family("Gymnasium", id=id)
    assert family.spec.obs_space.shape == obs and family.spec.obs_space.dtype == np.float32
    assert family.spec.action_space == action
    assert family.config.max_episode_steps == horizon
    assert (family.spec.task_dim, family.spec.deterministic, family.spec.split) == (1, True, Split.shared)


@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "HalfCheetah-v5"])
def test_rows_are_those_of_the_environment_alone(
    id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    with (
        gymnasium.make(id, max_episode_steps=30) as env,
        make_parallel_env("Gymnasium", 2, 1, id=id, max_episode_steps=30) as manager,
    ):
        rows = manager.reset(seeds=[7])
        for episode in range(2):
            obs, _ = env.reset(
                seed=int(episode_seeds(np.array([7], np.uint64), np.array([episode]))[0]) % 2**31
            )
            assert same_obs(env, obs, rows)
            while True:
                action = random_action(rng, manager.single_action_space)
                rows = manager.step(action[None])
                theirs = (
                    env.action_space.high * action
                    if isinstance(env.action_space, spaces.Box)
                    else int(action)
                )
                obs, reward, terminated, truncated, _ = env.step(theirs)
                assert same_obs(env, obs, rows)
                assert (rows.reward[0], rows.terminated[0], rows.truncated[0]) == (
                    reward,
                    terminated,
                    truncated and not terminated,
                )
                if terminated or truncated:
                    break
            assert bool(rows.trial_end[0]) == (episode == 1)
            if episode == 0:
                rows = manager.step(action[None])
                assert rows.episode_start[0]


def same_obs(env: gymnasium.Env[Any, Any], obs: Any, rows: Any) -> bool:
    expected = (
        np.eye(env.observation_space.n)[obs] if isinstance(env.observation_space, spaces.Discrete) else obs
    )
    return np.array_equal(rows.obs[0][: len(expected)], expected.astype(np.float32))


def random_action(rng: np.random.Generator, space: Any) -> np.ndarray[Any, Any]:
    if isinstance(space, spaces.Box):
        return rng.uniform(-1, 1, space.shape).astype(np.float32)
    return np.asarray(rng.integers(space.nvec if isinstance(space, spaces.MultiDiscrete) else space.n))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"id": "CartPole-v7"}, "Gymnasium knows no environment 'CartPole-v7'. Did you mean 'CartPole-v1'"),
        ({"id": "pendulum-v1"}, "Did you mean 'Pendulum-v1'"),
        (
            {"id": "a_package_that_is_not_there:Env-v0"},
            "id=a_package_that_is_not_there:Env-v0 needs the package a_package_that_is_not_there",
        ),
        (
            {"id": "Blackjack-v1", "max_episode_steps": 9},
            "Blackjack-v1 cannot be read: the observation space is a Tuple",
        ),
        ({"id": "CliffWalking-v1"}, "CliffWalking-v1 has no time limit of its own: give max_episode_steps."),
        ({"arguments": ["g"]}, "arguments: 'g' should be name=value."),
        ({"arguments": ["gravity=9.8"]}, "Pendulum-v1 cannot be built: TypeError: .*'gravity'"),
        ({"wrappers": ["FlattenObservation"]}, "wrappers: 'FlattenObservation' should be module:name."),
        (
            {"wrappers": ["a_package_that_is_not_there:W"]},
            "wrappers: a_package_that_is_not_there:W needs the package a_package_that_is_not_there",
        ),
        ({"wrappers": ["gymnasium.wrappers:Flat"]}, "wrappers: gymnasium.wrappers has no 'Flat' to call."),
        ({"wrappers": ["gymnasium.wrappers:TimeLimit"]}, "Pendulum-v1 cannot be built: TypeError"),
        ({"task_by": "set_task"}, "Pendulum-v1 has no set_task"),
        ({"task_by": "options"}, r"Pendulum-v1 has no sample_tasks\(n\) to draw tasks from"),
        ({"task_by": "goal"}, "task_by='goal' is not one of its values"),
    ],
    ids=str,
)
def test_what_cannot_be_served_is_one_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence) as caught:
        make_family("Gymnasium", **options)
    assert "\n" not in str(caught.value)


def test_a_package_is_imported_by_its_name_before_the_id() -> None:
    assert make_family("Gymnasium", id="gymnasium:CartPole-v1").spec.action_space == spaces.Discrete(2)


def test_arguments_are_read_as_json_or_as_words() -> None:
    family = make_family("Gymnasium", id="FrozenLake-v1", arguments=["map_name=8x8", "is_slippery=false"])
    assert family.spec.obs_space.shape == (64,)


def test_wrappers_are_put_around_it_the_innermost_first() -> None:
    flat, normal = "gymnasium.wrappers:FlattenObservation", "gymnasium.wrappers:NormalizeObservation"
    family = make_family("Gymnasium", id="Blackjack-v1", max_episode_steps=9, wrappers=[flat, normal])
    assert (family.spec.obs_space.shape, family.spec.obs_space.dtype) == ((32 + 11 + 2,), np.float32)
    with ParallelEnvManager(family, 2, num_workers=2) as manager:
        obs = manager.reset().obs
        assert isinstance(obs, np.ndarray) and obs.any()
    with pytest.raises(OptionError, match="Blackjack-v1 cannot be built"):
        make_family("Gymnasium", id="Blackjack-v1", max_episode_steps=9, wrappers=[normal, flat])


class DrawsByInheritance(CountingEnv):
    """Its parent can draw, and its own constructor takes nothing."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(self) -> None:
        super().__init__()


def test_an_environment_that_takes_no_render_mode_is_not_given_one() -> None:
    entry_point: Any = DrawsByInheritance
    gymnasium.register("Silent-v0", entry_point=entry_point, max_episode_steps=3)
    try:
        assert make_family("Gymnasium", id="Silent-v0").config.max_episode_steps == 3
    finally:
        gymnasium.registry.pop("Silent-v0")


def test_a_time_limit_that_is_given_replaces_the_registered_one() -> None:
    for given, lasts in ((0, 200), (3, 3), (250, 250)):
        with make_parallel_env("Gymnasium", 1, 1, id="Pendulum-v1", max_episode_steps=given) as manager:
            assert manager.max_episode_steps == lasts
            manager.reset(seeds=[0])
            steps = 0
            while manager.running.any():
                manager.step(np.zeros((1, 1), np.float32))
                steps += 1
            assert (steps, manager.rows.truncated[0]) == (lasts, True)
