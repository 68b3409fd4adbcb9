"""What a report says of the runs beside their numbers, and how settings compare over environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.utils.report.made_runs import make_run
from utils.report.comparison import MOST_COMPARED, aggregates, compare, option_rows, profiles
from utils.report.scores import TRIAL
from utils.report.tables import main_table


def end(value: float) -> list[list[list[float]]]:
    """A run whose last evaluation has this return on each of its two tasks."""
    return [[[0.0], [0.0]], [[0.0], [0.0]], [[value], [value]]]


def sweep(folder: Path, ends: Mapping[str, Mapping[str, Sequence[float]]], **changes: Any) -> Path:
    """Runs by environment, algorithm and seed, each with its last return."""
    for family, algorithms in ends.items():
        for name, values in algorithms.items():
            for seed, value in enumerate(values):
                chosen = {"env__family": family, "algorithm__name": name, "seed": seed, **changes}
                make_run(folder / f"{family}-{name}-{seed}", end(value), **chosen)
    return folder


def test_missing_unfinished_and_unreadable_runs_and_repetitions_are_named(tmp_path: Path) -> None:
    sweep(tmp_path, {"Wind": {"SAC": [1, 2, 3], "TD3": [1, 2]}})
    make_run(tmp_path / "x/stopped", end(1)[:1], env__family="Wind", algorithm__name="TD3", seed=5)
    make_run(tmp_path / "x/twice", end(1), env__family="Wind", algorithm__name="SAC", seed=0)
    (tmp_path / "x/old").mkdir()
    (tmp_path / "x/old/config.yaml").write_text("seed: 0\n")
    (tmp_path / "multirun.yaml").write_text("hydra: {overrides: {task: ['seed=0,1,2']}}\n")
    said = "\n".join(compare([tmp_path]).remarks)
    assert "3 jobs of the sweep have not begun." in said
    assert f"{tmp_path / 'x/old'} is left out: its config.yaml has no format" in said
    assert "twice repeats" in said
    assert "algorithm=TD3, seed 5" in said
    assert "1,000 of 3,000 env steps; its numbers are left out." in said
    assert "Wind, algorithm=SAC has no run with seed 5." in said
    assert "Wind, algorithm=TD3 has no run with seed 2." in said


def test_a_setting_that_was_never_evaluated_is_named_and_its_options_are_compared(tmp_path: Path) -> None:
    sweep(tmp_path, {"Wind": {"SAC": [1]}})
    make_run(tmp_path / "x", [], env__family="Wind", algorithm__name="TD3", seed=0)
    comparison = compare([tmp_path])
    assert [setting.label for setting in comparison.settings] == ["algorithm=SAC"]
    assert comparison.differing == ("algorithm.name",)
    assert any("it was not evaluated yet; its numbers are left out" in one for one in comparison.remarks)


def test_other_numbers_of_episodes_and_other_lengths_are_said(tmp_path: Path) -> None:
    make_run(tmp_path / "0", end(1))
    make_run(tmp_path / "1", [[[1.0, 2.0]]] * 4, train__n_env_steps_total=4000)
    comparison = compare([tmp_path])
    assert not comparison.improvements and profiles(comparison) is None
    said = "\n".join(comparison.remarks)
    assert "trials have 1 or 2 episodes" in said and "train for 3,000 or 4,000 env steps" in said


def test_every_option_that_differs_is_listed_with_its_values(tmp_path: Path) -> None:
    make_run(tmp_path / "0", end(1), algorithm__clip=0.2)
    make_run(tmp_path / "1", end(2), algorithm__name="SAC", agent__hidden=[8])
    rows = dict(option_rows(compare([tmp_path])))
    assert rows == {
        "agent.hidden": ["[64,64]", "[8]"],
        "algorithm.name": ["PPO", "SAC"],
        "algorithm.clip": ["0.2", "-"],
    }


def test_settings_compare_within_each_environment_and_on_average(tmp_path: Path) -> None:
    ends = {"Wind": {"SAC": [3, 4, 5], "TD3": [0, 1, 2]}, "AntDir": {"SAC": [100, 300], "TD3": [200, 400]}}
    comparison = compare([sweep(tmp_path, ends)])
    ((x, y, interval),) = comparison.improvements
    # In Wind SAC wins every pair, in AntDir one of four.
    assert (x, y, interval.mean) == ("algorithm=SAC", "algorithm=TD3", pytest.approx((1 + 0.25) / 2))
    # Wind scaled: SAC .6 .8 1, TD3 0 .2 .4; AntDir scaled: SAC 0 2/3, TD3 1/3 1.
    scores = {label: one.mean for label, one in aggregates(comparison).items()}
    assert scores == {
        "algorithm=SAC": pytest.approx((0.6 + 2 / 3 + 0.8) / 3),
        "algorithm=TD3": pytest.approx((0.2 + 1 / 3 + 0.4) / 3),
    }


def test_what_is_not_in_every_environment_is_not_compared_over_them(tmp_path: Path) -> None:
    comparison = compare([sweep(tmp_path, {"Wind": {"SAC": [1], "TD3": [2]}, "AntDir": {"SAC": [3]}})])
    assert comparison.shared_labels == ["algorithm=SAC"] and not comparison.improvements


def test_profiles_are_of_tasks_in_one_environment_and_of_scaled_runs_over_several(tmp_path: Path) -> None:
    one = profiles(compare([sweep(tmp_path / "one", {"Wind": {"SAC": [1, 2], "TD3": [3, 4]}})]))
    assert one is not None and not one.normalised
    share = one.curves["algorithm=SAC"][0]
    assert np.interp(1.5, one.thresholds, share) == pytest.approx(0.5)
    ends = {"Wind": {"SAC": [0], "TD3": [8]}, "AntDir": {"SAC": [100], "TD3": [-100]}}
    several = profiles(compare([sweep(tmp_path / "several", ends)]))
    assert several is not None and several.normalised
    assert np.interp(0.5, several.thresholds, several.curves["algorithm=SAC"][0]) == pytest.approx(0.5)


def test_of_too_many_settings_the_best_are_compared(tmp_path: Path) -> None:
    names = [f"A{number}" for number in range(MOST_COMPARED + 2)]
    comparison = compare([sweep(tmp_path, {"Wind": {name: [float(i)] for i, name in enumerate(names)}})])
    assert comparison.best == [f"algorithm={name}" for name in names[2:]]
    assert len(comparison.improvements) == MOST_COMPARED * (MOST_COMPARED - 1) / 2
    assert comparison.intervals(comparison.settings[-1])[TRIAL].mean == MOST_COMPARED + 1


def test_what_an_oracle_returns_is_shown_where_the_runs_of_each_seed_agree(tmp_path: Path) -> None:
    # Measured on a run's own tasks it differs by seed, and is the same for both learning rates.
    for seed, rate in ((0, 0.1), (0, 0.2), (1, 0.1), (1, 0.2)):
        levels = {"oracle, measured": 10.0 + seed, "random, measured": float(rate == 0.1)}
        folder = tmp_path / f"{seed}-{rate}"
        make_run(folder, [[[1.0, 2.0]]] * 3, levels=levels, seed=seed, algorithm__learning_rate=rate)
    comparison = compare([tmp_path])
    assert comparison.levels("PointRobot") == {"oracle, measured": 10.5}
    assert comparison.trial_levels("PointRobot") == {"oracle, measured": 21.0}
    assert "| oracle, measured " in main_table(comparison)

    # A longer trial has no sum that could be compared; a run that knows no levels leaves none.
    changes = {"algorithm__learning_rate": 0.3, "levels": {"oracle, measured": 10.0}}
    make_run(tmp_path / "longer", [[[1.0, 2.0, 3.0]]] * 3, **changes)
    comparison = compare([tmp_path])
    assert comparison.levels("PointRobot") == {"oracle, measured": 10.5}
    assert comparison.trial_levels("PointRobot") == {}
    make_run(tmp_path / "unknown", [[[1.0, 2.0]]] * 3, algorithm__learning_rate=0.4)
    assert compare([tmp_path]).levels("PointRobot") == {}
