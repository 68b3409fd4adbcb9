"""MetaWorld against the package itself: its benchmarks, its rewards, its scripted policies.

The tests run only with -m metaworld, where the package is installed.
"""

from __future__ import annotations

import functools
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.scores import scores_of
from envs.base import Split
from envs.meta.make_env import make_family
from envs.meta.third_party.meta_world import (
    INFO_NAMES,
    Benchmark,
    MetaWorld,
    MetaWorldConfig,
    RewardVersion,
    env_names,
)
from envs.parallel_env_manager import ParallelEnvManager
from policies.learner import Learner
from tests.envs.meta.played import Played, random_actions
from tests.runs import tiny_config
from utils.options import OptionError

ROOT = Path(__file__).resolve().parents[4]

TEN = [
    "reach",
    "push",
    "pick-place",
    "door-open",
    "drawer-close",
    "button-press-topdown",
    "peg-insert-side",
    "window-open",
    "sweep",
    "basketball",
]
TESTED = {
    "ML10": ["drawer-open", "door-close", "shelf-place", "sweep-into", "lever-pull"],
    "ML45": ["bin-picking", "box-close", "hand-insert", "door-lock", "door-unlock"],
}


def pins(name: str) -> dict[str, str]:
    lines = [line for line in (ROOT / name).read_text(encoding="utf-8").splitlines() if "==" in line]
    return {package.lower(): version for package, _, version in (line.partition("==") for line in lines)}


def test_its_environment_is_the_tested_set_but_for_mujoco() -> None:
    its, tested = pins("requirements-metaworld.txt"), pins("requirements.txt")
    assert its["metaworld"] == "3.1.1" and its["mujoco"] == "3.3.0"
    others = {name for name in tested if not name.startswith("mujoco")}
    assert {name: its[name] for name in others} == {name: tested[name] for name in others}
    tools = pins("requirements-dev.txt")
    assert {name: its[name] for name in tools if name in its} == {
        name: version for name, version in tools.items() if name in its
    }
    assert "pytest" in its


def test_it_reports_itself_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "metaworld", None)
    family = MetaWorld(MetaWorldConfig(places_seed=987))
    spec = family.spec
    assert (spec.obs_space.shape, spec.action_space.shape, spec.task_dim, spec.split) == (
        (39,),
        (4,),
        7,
        Split.disjoint,
    )
    assert spec.success == "success"
    for need in (
        lambda: family.sample_tasks(np.random.default_rng(0), 1, "train"),
        lambda: family.make_shard(1),
    ):
        with pytest.raises(OptionError, match=r"pip install -r requirements-metaworld\.txt"):
            need()


# -- with the package ----------------------------------------------------------------------------------------


@pytest.fixture
def package() -> Any:
    if find_spec("metaworld") is None:
        pytest.skip("pip install -r requirements-metaworld.txt, in an environment of its own")
    import metaworld  # pyright: ignore[reportMissingImports]

    return metaworld


def all_tasks(split: str, **options: Any) -> NDArray[np.float64]:
    """Every task of a split, in an order of its own."""
    many = make_family("MetaWorld", **options).sample_tasks(np.random.default_rng(0), 2250, split)
    return np.unique(many, axis=0)


def names_in(tasks: NDArray[np.float64]) -> dict[str, int]:
    """How many tasks of each environment."""
    numbers, counts = np.unique(tasks[:, 0], return_counts=True)
    return {
        env_names()[int(number)].removesuffix("-v3"): int(count)
        for number, count in zip(numbers, counts, strict=True)
    }


@functools.cache
def of_everything() -> NDArray[np.float64]:
    """[50, 2, 7] two tasks of every environment, from the middle of their places.

    At the edge scripted policies fail in Meta-World too.
    """
    tasks = np.concatenate([all_tasks(split, benchmark="ML45") for split in ("train", "test")])
    return np.stack([tasks[tasks[:, 0] == number][[12, 37]] for number in range(50)])


@pytest.mark.metaworld
@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("benchmark", ["ML10", "ML45"])
def test_the_splits_are_those_that_were_published(benchmark: str) -> None:
    train, test = (names_in(all_tasks(split, benchmark=benchmark)) for split in ("train", "test"))
    assert test == dict.fromkeys(TESTED[benchmark], 50)
    assert set(train.values()) == {50} and not set(train) & set(test)
    if benchmark == "ML10":
        assert set(train) == set(TEN)
    else:
        assert len(train) == 45


@pytest.mark.metaworld
@pytest.mark.usefixtures("package")
def test_ml1_tests_other_places_of_the_same_thing_to_do() -> None:
    train, test = (all_tasks(split, ml1_env_name="door-open-v3") for split in ("train", "test"))
    assert names_in(train) == names_in(test) == {"door-open": 50}
    assert not {task.tobytes() for task in train} & {task.tobytes() for task in test}
    assert np.ptp(train[:, 1:3], axis=0).min() > 0.05 and not train[:, 4:].any(), "three numbers place a door"
    assert (all_tasks("train", ml1_env_name="door-open-v3", places_seed=1) != train).any()


@pytest.mark.metaworld
@pytest.mark.usefixtures("package")
def test_a_list_as_long_as_the_split_is_all_of_it() -> None:
    family = make_family("MetaWorld", benchmark="ML10")
    tasks = family.sample_tasks(np.random.default_rng(3), 250, "test")
    assert len(np.unique(tasks, axis=0)) == 250
    assert (tasks != family.sample_tasks(np.random.default_rng(4), 250, "test")).any()


@pytest.mark.metaworld
@pytest.mark.usefixtures("package")
def test_a_wrong_name_is_one_sentence() -> None:
    with pytest.raises(
        OptionError, match=r"ml1_env_name='reach' is not one of its environments\. Did you mean 'reach-v3'\?"
    ):
        make_family("MetaWorld", ml1_env_name="reach").sample_tasks(np.random.default_rng(0), 1, "train")


@pytest.mark.metaworld
@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize(
    ("name", "split"), [("reach-v3", "train"), ("pick-place-v3", "test"), ("drawer-open-v3", "train")]
)
def test_rows_are_those_of_the_package_alone(package: Any, name: str, split: str, version: str) -> None:
    built = package.ML1(name, seed=5)
    family = make_family("MetaWorld", ml1_env_name=name, reward_version=version, places_seed=5)
    ours = {tuple(task[1:]) for task in all_tasks(split, ml1_env_name=name, places_seed=5)}
    played, rng = Played(family, 1), np.random.default_rng(0)
    for task in getattr(built, f"{split}_tasks")[:3]:
        env = built.train_classes[name](reward_function_version=version)
        env.set_task(task)
        obs, _ = env.reset()
        places = np.zeros(6)
        places[: len(env._last_rand_vec)] = env._last_rand_vec
        assert tuple(places) in ours
        rows = played.reset([0], [[env_names().index(name), *places]], [7])
        assert isinstance(rows.obs, np.ndarray)
        assert np.array_equal(rows.obs[0], obs.astype(np.float32)) and not rows.obs[0, 36:].any()
        for _ in range(60):
            action = random_actions(rng, family, 1)
            obs, reward, _, _, info = env.step(action[0])
            played.step([0], action)  # writes into the same rows
            assert np.array_equal(rows.obs[0], obs.astype(np.float32))
            assert rows.reward[0] == reward
            assert rows.info[0].tolist() == [
                *(float(info[key]) for key in INFO_NAMES[:4]),
                *env._target_pos.tolist(),
            ]
        env.close()


@pytest.mark.metaworld
@pytest.mark.slow
@pytest.mark.usefixtures("package")
def test_an_environment_that_was_played_before_shows_nothing_of_it() -> None:
    """Slots in used environments equal new slots, for all fifty environments.

    One slot has played another task, and one takes over the environment of another slot.
    """
    family, rng = make_family("MetaWorld", benchmark="ML45"), np.random.default_rng(1)
    used = Played(family, 2)
    other = of_everything()[(np.arange(50) + 1) % 50, 0]
    for (before, task), elsewhere in zip(of_everything(), other, strict=True):
        fresh, actions = Played(family, 1), random_actions(rng, family, 60)
        used.reset([0, 1], [before, elsewhere], [0, 0])
        for action in actions[:30]:
            used.step([0, 1], [action, -action])
        used.reset([0], [elsewhere], [0])  # gives back what the other slot takes
        used.reset([1], [task], [0])
        fresh.reset([0], [task], [0])
        assert used.bits(1) == fresh.bits(0)
        for action in actions[30:]:
            assert used.step([1], [action]).reward[1] == fresh.step([0], [action]).reward[0]
            assert used.bits(1) == fresh.bits(0)
        fresh.shard.close()
    used.shard.close()


def successes(family: MetaWorld, tasks: NDArray[np.float64]) -> NDArray[np.bool_]:
    """[n] whether the oracle succeeds in an episode of each task."""
    played = Played(family, len(tasks))
    rows, going = played.reset(np.arange(len(tasks)), tasks, np.zeros(len(tasks))), np.arange(len(tasks))
    for _ in range(500):
        assert isinstance(rows.obs, np.ndarray)
        rows = played.step(going, family.oracle_action(rows.obs[going], tasks[going], rows.info[going]))
        going = going[~rows.terminated[going]]
        if not len(going):
            break
    played.shard.close()
    return rows.terminated.copy()


@pytest.mark.metaworld
@pytest.mark.slow
@pytest.mark.usefixtures("package")
def test_the_scripted_policies_solve_their_tasks() -> None:
    family = MetaWorld(MetaWorldConfig(benchmark=Benchmark.ML45, end_on_success=True))
    solved = {
        env_names()[number]: successes(family, tasks).tolist() for number, tasks in enumerate(of_everything())
    }
    assert len(solved) == 50
    assert not [name for name, won in solved.items() if not any(won)]
    assert sum(map(sum, solved.values())) >= 97


@pytest.mark.metaworld
@pytest.mark.slow
@pytest.mark.usefixtures("package")
def test_the_reference_is_what_oracle_and_random_play_get() -> None:
    family = make_family("MetaWorld")
    assert (
        family.spec.reference is not None
        and make_family("MetaWorld", reward_version="v1").spec.reference is None
    )
    found = scores_of(family, family.spec.reference)
    for name in ("oracle", "random"):
        assert found[name]["mean"] == pytest.approx(found[name]["reported"], abs=0.1)


@pytest.mark.metaworld
@pytest.mark.usefixtures("package")
def test_the_two_reward_versions_are_different_rewards() -> None:
    best: dict[RewardVersion, float] = {}
    for version in RewardVersion:
        family = MetaWorld(MetaWorldConfig(ml1_env_name="pick-place-v3", reward_version=version))
        task = family.sample_tasks(np.random.default_rng(0), 1, "test")
        played = Played(family, 1)
        rows, rewards = played.reset([0], task, [0]), []
        for _ in range(100):
            assert isinstance(rows.obs, np.ndarray)
            rewards.append(float(played.step([0], family.oracle_action(rows.obs, task, rows.info)).reward[0]))
        best[version] = max(rewards)
    assert best[RewardVersion.v2] <= 10.0 < 500.0 < best[RewardVersion.v1] < 1500.0


@pytest.mark.metaworld
@pytest.mark.usefixtures("package")
def test_episodes_end_at_their_first_success_only_where_that_is_asked_for() -> None:
    lasted = {}
    for end in (False, True):
        family = make_family("MetaWorld", end_on_success=end, max_episode_steps=120)
        with ParallelEnvManager(family, 1, episodes_per_trial=2, seed=0) as manager:
            rows, steps, won = manager.reset(), [0], False
            while manager.running.any():
                assert isinstance(rows.obs, np.ndarray)
                rows = manager.step(family.oracle_action(rows.obs[:, :39], rows.task, rows.info))
                won |= bool(rows.info[0, 0])
                steps = [*steps, 0] if rows.episode_start[0] else [*steps[:-1], steps[-1] + 1]
            assert won and len(steps) == 2
            lasted[end] = steps
    assert lasted[False] == [120, 120]
    assert lasted[True][0] == lasted[True][1] < 100, "the same task, the same start"


@pytest.mark.metaworld
@pytest.mark.usefixtures("package")
def test_ten_episodes_of_adaptation_and_three_of_evaluation_are_scored_each() -> None:
    with Learner(
        tiny_config("MetaWorld", evaluation={"episodes_per_trial": 13}, env={"num_eval_tasks": 2})
    ) as learner:
        learner.collect_rollouts_parallel(2, random_actions=True)
        metrics = learner.evaluate()
    rates = [value for key, value in metrics.items() if "/success_episode_" in key]
    assert len(rates) == 13 * len({key.split("/")[1] for key in metrics}) and all(
        0 <= rate <= 1 for rate in rates
    )
