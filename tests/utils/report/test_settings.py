"""Runs that differ in the seed alone are one setting, with a short name that tells it from the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.utils.report.made_runs import make_run
from utils.report.folders import RunFolder, find_runs
from utils.report.settings import RunSetting, differences, group_runs, option_text

TABLES = [[[1.0]], [[2.0]], [[3.0]]]


def runs_of(folder: Path, *changes: dict[str, Any], evaluations: int = 3) -> list[RunFolder]:
    for number, change in enumerate(changes):
        make_run(folder / str(number), TABLES[:evaluations], **change)
    return list(find_runs([folder]).runs)


def settings(folder: Path, *changes: dict[str, Any]) -> list[RunSetting]:
    return group_runs(runs_of(folder, *changes))[0]


def labels(found: list[RunSetting]) -> list[tuple[str, str]]:
    return [(setting.environment, setting.label) for setting in found]


def test_the_seed_and_what_changes_no_number_make_no_setting(tmp_path: Path) -> None:
    (only,) = settings(
        tmp_path,
        {"seed": 2},
        {"seed": 0, "num_parallel_workers": 3, "backend__name": "serial"},
        {"seed": 1, "wandb__mode": "disabled", "evaluation__films": 2},
    )
    assert only.seeds == [0, 1, 2] and only.label == "all runs" and only.environment == "PointRobot"


def test_as_few_options_as_needed_name_a_setting_and_choices_come_first(tmp_path: Path) -> None:
    # An algorithm brings other options with it: they differ, too, but do not belong into a name.
    found = settings(
        tmp_path,
        {"algorithm__name": "PPO", "algorithm__clip": 0.2},
        {"algorithm__name": "SAC", "algorithm__learning_rate": 0.0003, "agent__hidden": [128]},
    )
    assert labels(found) == [("PointRobot", "algorithm=PPO"), ("PointRobot", "algorithm=SAC")]
    names = ["agent.hidden", "algorithm.name", "algorithm.learning_rate", "algorithm.clip"]
    assert sorted(differences(found)) == sorted(names)
    assert [found[1].value(name) for name in ("agent.hidden", "algorithm.clip")] == [[128], "-"]


def test_what_was_left_open_differs_where_it_came_to_something_else(tmp_path: Path) -> None:
    """Both have num_slots=null, and a number that each algorithm has led to; it is no part of a name."""
    found = settings(
        tmp_path,
        {"num_slots": None, "used": {"num_slots": 64, "encoders": "shared", "backend": "serial"}},
        {
            "num_slots": None,
            "algorithm__name": "SAC",
            "used": {"num_slots": 24, "encoders": "shared", "backend": "process"},
        },
        {"num_slots": None, "algorithm__name": "TD3", "used": {"num_slots": {"not": "a number"}}},
    )
    assert [setting.label for setting in found] == [f"algorithm={name}" for name in ("PPO", "SAC", "TD3")]
    names = ["algorithm.name", "num_slots (used)", "encoders (used)"]
    assert differences(found) == names and differences(found[:2]) == names[:2]
    assert [one.value("num_slots (used)") for one in found] == [64, 24, "-"]
    assert found[0].value("num_slots") is None


def test_two_options_name_a_setting_where_one_does_not_tell_it_apart(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        *({"algorithm__learning_rate": rate, "agent__arch": arch}
          for rate in (0.1, 0.2) for arch in ("Memory", "Markov")),
    )  # fmt: skip
    assert [setting.label for setting in found] == [
        f"agent={arch} algorithm.learning_rate={rate}" for rate in (0.1, 0.2) for arch in ("Memory", "Markov")
    ]


def test_families_and_texts_of_an_environment_make_environments_and_its_numbers_settings(
    tmp_path: Path,
) -> None:
    found = settings(
        tmp_path,
        {"env__reward": "dense"},
        {"env__reward": "sparse", "env__circle_radius": 2.0},
        {"env__reward": "sparse"},
        {"env__family": "Wind"},
    )
    assert labels(found) == [
        ("PointRobot reward=dense", "env.circle_radius=1"),
        ("PointRobot reward=sparse", "env.circle_radius=2"),
        ("PointRobot reward=sparse", "env.circle_radius=1"),
        ("Wind", "env.circle_radius=1"),
    ]


def test_a_name_means_the_same_in_every_environment(tmp_path: Path) -> None:
    # Environments have their own defaults, here the rate: it tells nothing apart within one of them.
    found = settings(
        tmp_path,
        *({"env__family": family, "algorithm__name": name, "algorithm__learning_rate": rate}
          for family, rate in (("Wind", 0.1), ("AntDir", 0.2)) for name in ("SAC", "TD3")),
    )  # fmt: skip
    assert labels(found) == [
        (family, f"algorithm={name}") for family in ("Wind", "AntDir") for name in ("SAC", "TD3")
    ]


def test_a_seed_counts_once_and_the_run_that_came_farther_stays(tmp_path: Path) -> None:
    make_run(tmp_path / "0", TABLES[:1])
    make_run(tmp_path / "1", TABLES)
    make_run(tmp_path / "2", TABLES)
    ((only,), repeated) = group_runs(find_runs([tmp_path]).runs)
    assert [run.folder.name for run in only.runs] == ["1"]
    assert [(run.folder.name, other.folder.name) for run, other in repeated] == [("0", "1"), ("2", "1")]


def test_numbers_are_those_of_finished_runs_or_of_where_all_have_been(tmp_path: Path) -> None:
    for seed, evaluations in enumerate((3, 2, 1)):
        make_run(tmp_path / str(seed), TABLES[:evaluations], seed=seed)
    ((some,), _) = group_runs(find_runs([tmp_path]).runs)
    assert [run.seed for run in some.counted] == [0] and some.last[0].env_steps == 3000
    ((none,), _) = group_runs(find_runs([tmp_path / "1", tmp_path / "2"]).runs)
    assert [run.seed for run in none.counted] == [1, 2]
    assert [one.env_steps for one in none.last] == [1000, 1000]


def test_values_are_written_as_they_are_typed() -> None:
    values = [True, None, 0.0003, 0.036000000000000004, [64, 64], "relu"]
    assert list(map(option_text, values)) == ["true", "null", "0.0003", "0.036", "[64,64]", "relu"]
