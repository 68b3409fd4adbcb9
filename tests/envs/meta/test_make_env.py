"""make_env and make_parallel_env: the trial as a Gymnasium episode, and what they refuse."""

from __future__ import annotations

from contextlib import AbstractContextManager, closing
from dataclasses import fields
from typing import Any

import gymnasium
import numpy as np
import pytest

from envs.backends.base import BackendConfig
from envs.interop.varibad_wrapper import VariBadWrapper
from envs.meta import FAMILIES
from envs.meta.make_env import make_env, make_family, make_parallel_env, recorded_spec
from envs.meta.toy.point_robot import PointRobotConfig, PointStart
from utils.options import OptionError

SHORT: dict[str, Any] = {"max_episode_steps": 5}


def opened(*args: Any, **kwargs: Any) -> AbstractContextManager[VariBadWrapper]:
    """make_env in a `with`."""
    return closing(make_env(*args, **kwargs))


def trial_of(env: VariBadWrapper, **reset: Any) -> list[tuple[np.ndarray, float, bool, bool, dict[str, Any]]]:
    """Every row of one trial of fixed actions, the first with reward 0."""
    obs, info = env.reset(**reset)
    rows = [(obs, 0.0, False, False, info)]
    while not (rows[-1][2] or rows[-1][3]):
        rows.append(env.step(np.full(env.action_space.shape or (), 0.5, np.float32)))
    return rows


@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_trial_takes_k_times_h_plus_one_minus_one_steps(k: int):
    with opened("PointRobot", k, seed=0, **SHORT) as env:
        rows = trial_of(env)
    assert len(rows) - 1 == k * (5 + 1) - 1
    assert [row[4]["episode_start"] for row in rows] == [at % 6 == 0 for at in range(len(rows))]
    assert [row[4]["truncated"] for row in rows] == [at % 6 == 5 for at in range(len(rows))]


def test_the_flag_stands_on_the_start_rows_of_later_episodes():
    with opened("PointRobot", 3, seed=0, **SHORT) as env:
        rows = trial_of(env)
    assert [row[0][-1] for row in rows] == [float(at in (6, 12)) for at in range(18)]


def test_without_a_second_episode_there_is_no_flag():
    with opened("Wind", None, seed=0) as env:
        assert env.observation_space.shape == (2,)
    with opened("Wind", 2, seed=0) as env:
        assert env.observation_space.shape == (3,)


def test_an_oracle_sees_the_task_before_the_flag():
    task = np.array([0.6, 0.8])
    with opened("PointRobot", 2, seed=0, oracle=True, **SHORT) as env:
        assert env.observation_space.shape == (2 + 2 + 1,)
        rows = trial_of(env, options={"task": task})
    assert all(np.array_equal(row[0][2:4], task.astype(np.float32)) for row in rows)
    assert all(np.array_equal(row[4]["task"], task) for row in rows)


def test_the_legacy_boundary_hides_the_start_of_later_episodes():
    with opened("PointRobot", 3, seed=0, boundary="legacy", **SHORT) as env:
        legacy = trial_of(env, seed=3)
    with opened("PointRobot", 3, seed=0, **SHORT) as env:
        plain = trial_of(env, seed=3)
    assert len(legacy) - 1 == 3 * 5
    starts = [row for row in legacy if "start_state" in row[4]]
    assert [at for at, row in enumerate(legacy) if "start_state" in row[4]] == [5, 10]
    assert [row[0][-1] for row in starts] == [1.0, 1.0]
    assert [row[4]["start_state"][:2].tolist() for row in starts] == [
        plain[at][0][:2].tolist() for at in (6, 12)
    ]
    assert sum(row[1] for row in legacy) == sum(row[1] for row in plain)


def test_seed_seeds_the_first_reset():
    def first(seed: int | None, reset: int | None) -> tuple[bytes, bytes]:
        with opened("PointRobot", 2, seed=seed) as env:
            obs, info = env.reset(seed=reset)
            return obs.tobytes(), info["task"].tobytes()

    assert first(1, None) == first(1, None) == first(None, 1) == first(2, 1)
    assert first(1, None) != first(2, None)


def test_none_takes_the_familys_number_of_episodes():
    with opened("PointRobot", None, **SHORT) as env:
        assert len(trial_of(env)) == 12
    with make_parallel_env("Wind", None, 1) as manager:
        assert manager.episodes_per_trial == 1


def test_the_published_calls_work_as_they_are_typed():
    """The calls of the published guide, with its positions and its keywords."""
    max_rollouts_per_task, tasks = 2, {"num_train_tasks": 5, "num_eval_tasks": 3}
    with (
        make_env("PointRobot", max_rollouts_per_task, seed=43, **tasks, **SHORT) as eval_env,
        make_parallel_env(
            "PointRobot", max_rollouts_per_task, num_workers=1, seed=42, oracle=False, **tasks, **SHORT
        ) as manager,
    ):
        assert len(trial_of(eval_env)) == 12
        assert (manager.episodes_per_trial, manager.num_envs) == (2, 1)


def test_no_option_of_a_family_has_the_name_of_an_option_of_the_backend():
    backend = {item.name for item in fields(BackendConfig)}
    for kind in FAMILIES.values():
        assert not backend & {item.name for item in fields(kind.Config)}


def test_options_reach_the_family_by_their_config_names():
    family = make_family("PointRobot", start="fixed", radius=0.4)
    assert isinstance(family.config, PointRobotConfig)
    assert (family.config.start, family.config.radius) == (PointStart.fixed, 0.4)
    assert make_family(family.config).config is family.config
    with pytest.raises(OptionError, match="not both"):
        make_family(family.config, radius=0.1)


def test_the_horizon_has_a_name_that_gymnasium_make_does_not_keep_to_itself():
    with closing(gymnasium.make("Retrial/Wind-v1", episodes_per_task=2, horizon=5)) as env:
        env.reset(seed=0)
        starts = [env.step(env.action_space.sample())[4]["episode_start"] for _ in range(11)]
    assert starts == [False] * 5 + [True] + [False] * 5


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        ({"env_id": "AntDirr"}, r"no environment 'AntDirr'. Did you mean 'AntDir'\?"),
        ({"env_id": "antdir"}, r"Did you mean 'AntDir'\?"),
        ({"env_id": "AntDir-v0"}, r'no version .* here: write .*make_env\("AntDir", episodes_per_task=2\)'),
        ({"env_id": "Retrial/AntDir-v1"}, r"no version and no prefix here: write 'AntDir'"),
        ({"env_id": "HalfCheetahVel-v00"}, r"write 'HalfCheetahVel'"),
        ({"env_id": "AntDirr-v0"}, r"Did you mean 'AntDir'\?"),
        ({"varient": "circle"}, r"AntDir has no option 'varient'. Did you mean 'variant'\?"),
        ({"boundry": "legacy"}, r"Did you mean 'boundary'\?"),
        ({"variant": "cirle"}, r"variant='cirle' is not one of its values. Did you mean 'circle'\?"),
        ({"boundary": "legcy"}, r"boundary='legcy' is not one of its values. Did you mean 'legacy'\?"),
        ({"horizon": 5, "max_episode_steps": 5}, r"give one of them"),
        ({"horizon": 0}, r"max_episode_steps=0 is out of range"),
        ({"max_episode_steps": 0}, r"max_episode_steps=0 is out of range: it must be at least 1"),
        ({"max_episode_steps": "ten"}, r"max_episode_steps='ten' should be of type int"),
        ({"episodes_per_task": 0}, r"max_rollouts_per_task=0 is out of range"),
        (
            {"max_rollouts_per_task": 3},
            r"'max_rollouts_per_task' is given by the argument 'episodes_per_task'",
        ),
        ({"family": "Wind"}, r"'family' is given by the argument 'env_id'"),
        ({"render_mode": "human"}, r"render_mode='human' must be None or 'rgb_array'"),
        ({"num_workers": 2}, r"AntDir has no option 'num_workers'"),
    ],
)
def test_what_is_wrong_is_refused_in_one_sentence(arguments: dict[str, Any], sentence: str):
    everything: dict[str, Any] = {"env_id": "AntDir", "episodes_per_task": 2, **arguments}
    with pytest.raises(OptionError, match=sentence) as caught:
        make_env(**everything)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        ({"start_metod": "spawn"}, r"PointRobot has no option 'start_metod'. Did you mean 'start_method'\?"),
        ({"start_method": "spwan"}, r"start_method='spwan' is not one of its values. Did you mean 'spawn'\?"),
        ({"call_timeout_s": 0}, r"call_timeout_s=0.0 is out of range: it must be more than 0"),
        ({"boundary": "legacy"}, r"PointRobot has no option 'boundary'"),
    ],
)
def test_the_parallel_form_refuses_in_one_sentence_too(arguments: dict[str, Any], sentence: str):
    with pytest.raises(OptionError, match=sentence):
        make_parallel_env("PointRobot", 2, 1, **arguments)


def test_parallel_slots_give_the_trials_of_the_single_environment():
    task, action = np.array([0.6, 0.8]), np.full((3, 2), 0.5, np.float32)
    with (
        make_parallel_env("PointRobot", 2, 1, seed=0, num_envs=3, threads=1, **SHORT) as manager,
        opened("PointRobot", 2, **SHORT) as env,
    ):
        assert manager.num_envs == 3
        first, info = env.reset(seed=9, options={"task": task})
        seed = int(np.random.Generator(type(env.np_random.bit_generator)(9)).integers(2**63))
        rows = manager.reset([task, -task, task], [1, 2, seed])
        assert isinstance(rows.obs, np.ndarray)
        assert np.array_equal(rows.obs[2], first)
        assert np.array_equal(rows.task[2], info["task"])
        over = False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(action[0])
            manager.step(action)
            assert np.array_equal(rows.obs[2], obs)
            assert rows.reward[2] == reward
            over = terminated or truncated
        assert rows.trial_end[2]


def test_a_finished_trial_wants_a_reset():
    with opened("PointRobot", 1, seed=0, **SHORT) as env:
        trial_of(env)
        with pytest.raises(gymnasium.error.ResetNeeded):
            env.step(np.zeros(2, np.float32))


def test_a_render_mode_gives_pictures():
    with opened("PointRobot", 1, seed=0, render_mode="rgb_array") as env:
        env.reset()
        assert np.asarray(env.render()).shape == (200, 200, 3)
    with opened("PointRobot", 1, seed=0) as env:
        env.reset()
        assert env.render() is None


def test_worker_processes_give_the_rows_of_this_process():
    def played(num_workers: int) -> list[bytes]:
        with make_parallel_env(
            "PointRobot", 2, num_workers, seed=0, num_envs=3, oracle=True, call_timeout_s=30, **SHORT
        ) as manager:
            assert len(manager.pids) == (num_workers if num_workers > 1 else 0)
            rows, rng, bits = manager.reset(), np.random.default_rng(1), []
            while manager.running.any():
                assert isinstance(rows.obs, np.ndarray)
                bits.append(rows.obs.tobytes() + rows.reward.tobytes() + rows.info.tobytes())
                manager.step(rng.uniform(-1, 1, (3, 2)).astype(np.float32))
            return bits

    assert played(1) == played(2)


@pytest.mark.parametrize(
    "name, options, sentence",
    [
        ("AntGoal", {"level": 6}, "level=6 is the radius of variant=level"),
        ("GridNavi", {"door_every": 2}, "door_every=2 is of the hall's doors"),
        ("PointRobot", {"goals": "square", "circle_radius": 2.0}, "goals=square has no circle"),
    ],
)
def test_an_option_of_another_variant_is_refused_instead_of_ignored(
    name: str, options: dict[str, Any], sentence: str
):
    with pytest.raises(OptionError, match=sentence):
        make_family(name, **options)


def test_the_spec_of_a_record_needs_no_server_that_served_its_run() -> None:
    options = {"family": "OpenEnv", "observation": ["board:42"], "actions": ["column:7"], "mask": "legal"}
    spec = recorded_spec(options)
    assert isinstance(spec.obs_space, gymnasium.spaces.Dict)
    assert spec.obs_space["observation"].shape == (42,) and spec.action_space == gymnasium.spaces.Discrete(7)
    with pytest.raises(OptionError, match="OpenEnv needs a server"):
        make_family("OpenEnv", observation=["board:42"], actions=["column:7"])
    assert recorded_spec({"family": "PointRobot"}) == make_family("PointRobot").spec
