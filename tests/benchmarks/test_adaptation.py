"""The measure of adaptation: gains task by task, the gap to a told agent, and what it refuses to compare."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.adaptation import ReturnsOfTasks, TaskMean, adaptation_of, adaptation_text, check_alike, main
from envs.meta.cyber.cyber_defence import CyberVariant
from policies.agents.base import Arch
from policies.evaluation.outcome import EVALUATION, assess
from policies.learner import Learner
from tests.runs import tiny_config
from utils.options import OptionError

SETTINGS = {"env": {"k": 2, "oracle": False}, "train": {}, "algorithm": {}, "seed": 0}


def evaluated(returns: list[list[float]], tasks: list[list[float]] | None = None, **settings: object):
    shown = np.array(tasks or [[float(number)] for number in range(len(returns))])
    return ReturnsOfTasks(Path("run"), SETTINGS | settings, shown, np.array(returns), 100)


def test_a_gain_is_compared_task_by_task_and_with_the_gap_to_the_told_agent():
    # Tasks differ a lot, and each is better by 1 or 3 in its last episode.
    memory = evaluated([[-100.0, -99.0], [0.0, 3.0], [50.0, 51.0], [7.0, 10.0]])
    told = evaluated([[-92.0, -92.0], [9.0, 7.0], [58.0, 58.0], [15.0, 15.0]])
    control = evaluated([[-5.0, -5.0], [1.0, 1.0], [3.0, 3.0], [3.0, 3.0]])
    found = adaptation_of({"memory": memory, "told": told, "control": control})
    assert found["memory"]["gain"].mean == 2.0
    # The deviation of 1, 3, 1, 3 is 1; over the root of four tasks.
    assert found["memory"]["gain"].error == 0.5
    assert found["memory"]["episodes"][0] == TaskMean.of(memory.returns[:, 0])
    assert found["gap"].mean == 8.0 and found["part"] == 0.25
    assert found["control"]["gain"] == TaskMean(0.0, 0.0)
    text = adaptation_text("tasks", {"memory": memory, "told": told, "control": control}, found)
    assert "2.000 ± 0.500" in text and "25%" in text
    some = adaptation_of(
        {"memory": memory, "told": told, "control": control}, np.array([True, False, True, False])
    )
    assert some["memory"]["gain"] == TaskMean(1.0, 0.0)


def test_without_a_gap_no_part_of_it_is_told():
    runs = {name: evaluated([[0.0, 1.0], [0.0, 0.0]]) for name in ("memory", "control")}
    found = adaptation_of(runs | {"told": evaluated([[-1.0, -1.0], [0.0, 0.0]])})
    assert found["part"] is None and "%" not in adaptation_text("tasks", runs, found)


def test_only_runs_that_differ_in_what_is_compared_are_compared():
    one = evaluated([[0.0, 1.0]])
    check_alike(one, evaluated([[0.0, 2.0]], env={"k": 2, "oracle": True}))
    with pytest.raises(OptionError, match="settings of env"):
        check_alike(one, evaluated([[0.0, 2.0]], env={"k": 3, "oracle": True}))
    with pytest.raises(OptionError, match="settings of seed"):
        check_alike(one, evaluated([[0.0, 2.0]], seed=1))
    with pytest.raises(OptionError, match="different tasks"):
        check_alike(one, evaluated([[0.0, 2.0]], tasks=[[5.0]]))


def test_the_command_reads_folders_of_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for name, oracle, arch in (
        ("memory", False, Arch.Memory),
        ("told", True, Arch.Memory),
        ("control", False, Arch.Markov),
    ):
        env = {"variant": CyberVariant.hidden, "oracle": oracle, "max_rollouts_per_task": 2}
        config = tiny_config("CyberDefence", arch, algorithm="PPO", env=env)
        with Learner(config, tmp_path / name) as learner:
            learner.train()
            assess(learner)
    words = [str(tmp_path / "memory"), "--told", str(tmp_path / "told"), "--control"]
    output = tmp_path / "found.json"
    main([*words, str(tmp_path / "control"), "--by", "0", "--output", str(output)])
    found = json.loads(output.read_text())
    printed = capsys.readouterr().out
    assert "tasks: all" in printed and "tasks: 1" in printed
    returns = json.loads((tmp_path / "memory" / EVALUATION).read_text())["eval/held_out/returns"]
    assert found["tasks"] == len(returns) == 3
    expected = np.mean([last - first for first, last in returns])
    assert found["adaptation"]["all"]["memory"]["gain"]["mean"] == pytest.approx(expected)
    assert found["runs"]["memory"]["curve"][-1]["returns"] == pytest.approx(np.mean(returns, axis=0))

    # The likeliest actions alone were played.
    with pytest.raises(SystemExit):
        main([*words, str(tmp_path / "control"), "--sampled"])
    assert "evaluation.stochastic=true" in capsys.readouterr().err
    (tmp_path / "control" / EVALUATION).unlink()
    with pytest.raises(SystemExit):
        main([*words, str(tmp_path / "control")])
    assert "was not evaluated last on its test list" in capsys.readouterr().err
