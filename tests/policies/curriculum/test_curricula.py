"""The promises of a curriculum, tested over the registry: one that is added to it is tested by these."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envs.meta.make_env import make_family
from policies.curriculum import CURRICULA
from policies.curriculum.base import Curriculum, PlayedTrials, TrainingTasks
from policies.learner import Learner
from policies.run.config import Config
from tests.runs import metrics_of, state_of, stop_at, stored_rows, tiny_config
from utils.seeding import Phase, Purpose, generator

# Options with which a curriculum changes what it draws within a few trials.
EAGER: dict[str, dict[str, Any]] = {
    "stages": {"trials": 3, "threshold": 0.5},
    "learning_progress": {"slow": 0.01, "fast": 0.5},
}


def tasks_of(seed: int = 0, num_train_tasks: int | None = 12) -> TrainingTasks:
    family = make_family("Mixture", num_train_tasks=num_train_tasks)
    listed = None
    if num_train_tasks is not None:
        listed = family.sample_tasks(np.random.default_rng(seed), num_train_tasks, "train")
    return TrainingTasks(family, listed, seed)


def fresh(name: str, seed: int = 0) -> Curriculum:
    kind = CURRICULA[name]
    return kind(kind.Config(name=name, **EAGER.get(name, {})), tasks_of(seed))


def results(curriculum: Curriculum, first: int, count: int) -> PlayedTrials:
    """Results of trials that depend on nothing but their numbers and tasks."""
    tasks = np.stack([curriculum.draw(number) for number in range(first, first + count)])
    rng = np.random.default_rng(first)
    returns = tasks[:, :1] + rng.random((count, 2))
    return PlayedTrials(tasks, returns, returns > 0.7, rng.random(count))


def drawn(curriculum: Curriculum, first: int = 100, count: int = 40) -> list[list[float]]:
    return [curriculum.draw(number).tolist() for number in range(first, first + count)]


@pytest.fixture(params=CURRICULA)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def test_a_curriculum_is_registered_under_its_name_and_explains_itself(name: str) -> None:
    kind = CURRICULA[name]
    assert kind.__doc__ and kind.Config(name=name).name == name


def test_a_draw_is_a_training_task_and_changes_nothing(name: str) -> None:
    curriculum = fresh(name)
    curriculum.learn(results(curriculum, 0, 20))
    listed = curriculum.tasks.listed
    assert listed is not None
    before = drawn(curriculum)
    assert drawn(curriculum) == before
    assert [curriculum.draw(number).tolist() for number in reversed(range(100, 140))] == before[::-1]
    assert all(task in listed.tolist() for task in before)


def test_draws_are_a_function_of_the_seed_the_numbers_and_the_results(name: str) -> None:
    one, two, other = fresh(name), fresh(name), fresh(name, seed=1)
    for first in (0, 20):
        for curriculum in (one, two, other):
            curriculum.learn(results(curriculum, first, 20))
    assert drawn(one) == drawn(two) != drawn(other)
    assert drawn(one) != drawn(one, first=200)


def test_what_it_has_learned_survives_json_exactly(name: str) -> None:
    before, after = fresh(name), fresh(name)
    before.learn(results(before, 0, 25))
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    assert drawn(after) == drawn(before)
    for curriculum in (before, after):
        curriculum.learn(results(curriculum, 25, 25))
    assert drawn(after) == drawn(before)
    assert after.state_dict() == before.state_dict() and after.metrics() == before.metrics()


def test_every_curriculum_but_uniform_draws_by_results(name: str) -> None:
    one, two = fresh(name), fresh(name)
    played = results(one, 0, 60)
    one.learn(played)
    failed = np.zeros_like(played.successes)
    worse = PlayedTrials(played.tasks, -played.returns, failed, np.roll(played.returns[:, 0], 3))
    two.learn(worse)
    assert (drawn(one) == drawn(two)) == (name == "uniform")


def test_each_group_has_a_name(name: str) -> None:
    curriculum = fresh(name)
    tasks = np.array(drawn(curriculum))
    groups = curriculum.group_of(tasks)
    assert groups.min() >= 0 and groups.max() < len(curriculum.groups)


@pytest.mark.parametrize("num_train_tasks", [None, 12])
def test_uniform_draws_as_it_always_was(num_train_tasks: int | None) -> None:
    tasks = tasks_of(3, num_train_tasks)
    uniform = CURRICULA["uniform"](CURRICULA["uniform"].Config("uniform"), tasks)
    for number in range(20):
        rng = generator(3, Phase.TRAIN, Purpose.TASK, number)
        if tasks.listed is None:
            wanted = tasks.family.sample_tasks(rng, 1, "train")[0]
        else:
            wanted = tasks.listed[rng.integers(12)]
        assert np.array_equal(uniform.draw(number), wanted)


# -- in runs -------------------------------------------------------------------------------------------------


def config_of(name: str, workers: int = 1, algorithm: str = "PPO") -> Config:
    eager = EAGER.get(name, {}) | ({"threshold": 0.0} if name == "stages" else {})
    parts = {"easy": {"family": "GridNavi", "size": 3}, "hard": {"family": "GridNavi"}}
    return tiny_config(
        "Mixture",
        algorithm=algorithm,
        workers=workers,
        env={"parts": parts, "num_train_tasks": 9},
        curriculum=CURRICULA[name].Config(name=name, **eager),
    )


@pytest.mark.parametrize("algorithm", ["PPO", "DiscreteSAC"])
def test_a_run_is_resumed_bit_for_bit_and_its_workers_change_nothing(
    name: str, algorithm: str, tmp_path: Path
) -> None:
    with Learner(config_of(name, 1, algorithm), tmp_path / "whole") as whole:
        whole.train()
    with Learner(config_of(name, 2, algorithm), tmp_path / "cut") as cut:
        # Before the updates of a wave, from which the curriculum has learned already.
        stop_at(cut, "update")
        cut.train()
        assert 0 < cut.counters.iteration
    with Learner(config_of(name, 2, algorithm), tmp_path / "cut") as resumed:
        resumed.load()
        resumed.train()
        assert state_of(resumed) == state_of(whole)
        assert resumed.progress.curriculum.state_dict() == whole.progress.curriculum.state_dict()
        assert stored_rows(resumed).keys() == stored_rows(whole).keys()
    assert metrics_of(tmp_path / "cut") == metrics_of(tmp_path / "whole")


def test_a_run_tells_which_tasks_it_has_played(name: str, tmp_path: Path) -> None:
    with Learner(config_of(name), tmp_path / "run") as learner:
        learner.train()
        groups = learner.progress.curriculum.groups
    lines = [line for line in metrics_of(tmp_path / "run") if "curriculum/trials" in line]
    assert lines
    for line in lines:
        assert len(line["curriculum/trials"]) == len(groups)
        shares = [line[f"curriculum/share/{group}"] for group in groups]
        assert sum(shares) == pytest.approx(1)
