"""What evaluate= shows of one run and of several, and which exit code it has."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import pytest

from configs import exporting
from configs.cli import CommandLine
from configs.evaluating import evaluate_runs, make_answer
from configs.runs import RecordedRun
from configs.search import running
from envs.meta.make_env import make_family
from policies.learner import Learner
from policies.run.config import EvaluationConfig
from tests.runs import tiny_config


def run_with(act: Any, config: Any, family: Any, run_dir: Path, /, **how: Any) -> float:
    """A run whose folder is called `torn` cannot go on, and a signal ends one that is called `signal`."""
    codes = {"torn": 1, "signal": 143}
    if run_dir.name in codes:
        sys.exit(codes[run_dir.name])
    with Learner(config, run_dir, family=family, **how) as learner:
        return act(learner)


MIXTURE = {"parts": {"easy": {"family": "GridNavi", "size": 3}, "hard": {"family": "GridNavi"}}}


def runs(
    tmp_path: Path, *names: str, family: str = "PointRobot", env: dict[str, Any] | None = None
) -> list[RecordedRun]:
    config = tiny_config(family, env=env)
    found: list[RecordedRun] = []
    for name in names:
        with Learner(config, tmp_path / name) as learner:
            learner.save()
        config.evaluation = EvaluationConfig(films=1)
        found.append(RecordedRun(config, make_family(config.env), tmp_path / name))
    return found


def test_one_run_has_its_own_table_and_its_films(tmp_path: Path) -> None:
    text, code = evaluate_runs(runs(tmp_path, "one"), run_with, failed=1)
    assert code == 0
    assert text.startswith("the last checkpoint: 0 env steps") and text.endswith("film_1.gif")
    assert (tmp_path / "one" / "evaluation.json").exists()


def test_several_runs_have_one_table_and_one_that_fails_ends_no_other(tmp_path: Path) -> None:
    text, code = evaluate_runs(runs(tmp_path, "0", "torn", "1"), run_with, failed=1)
    assert code == 1
    assert [line.split()[0] for line in text.splitlines()[:5]] == ["run", "0", "0", "1", "1"]
    assert (tmp_path / "1" / "evaluation.json").exists()


def test_runs_of_a_mixture_have_rows_of_their_parts(tmp_path: Path) -> None:
    """The returns of every task are recorded by list, so a part has its means and no interval."""
    both = runs(tmp_path, "0", "1", family="Mixture", env=MIXTURE)
    text, code = evaluate_runs(both[:1], run_with, failed=1)
    assert code == 0 and text.startswith("the last checkpoint")
    alone = next(line.split() for line in text.splitlines() if line.startswith("  in_distribution/easy "))
    assert len(alone) > 1

    text, code = evaluate_runs(both, run_with, failed=1)
    rows = [line.split() for line in text.splitlines()[1:]]
    own = [row for row in rows if row[0] in ("0", "1")]
    listed = {(row[0], cell) for row in own for cell in row if cell.startswith(("train", "in_dist"))}
    names = [f"{name}{part}" for name in ("train", "in_distribution") for part in ("", "/easy", "/hard")]
    assert code == 0 and listed == {(run, name) for run in ("0", "1") for name in names}
    part = next(row for row in own if "in_distribution/easy" in row)
    assert part[part.index("in_distribution/easy") + 1 :] == alone[1:]


@pytest.mark.parametrize(("name", "code"), [("torn", 1), ("signal", 143)])
def test_a_single_run_that_fails_and_a_signal_end_the_command(name: str, code: int, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as end:
        evaluate_runs(runs(tmp_path, name), run_with, failed=1)
    assert end.value.code == code


def test_each_command_reaches_its_own_maker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "run_search", lambda search, run_with, failed: (search, failed))
    monkeypatch.setattr(exporting, "run_export", lambda export, run_with: (export, 0))
    search, export = (cast(Any, name) for name in ("a search", "an export"))
    assert make_answer(CommandLine((), mode="search", search=search), run_with, failed=7) == ("a search", 7)
    assert make_answer(CommandLine((), mode="export", export=export), run_with, failed=7) == ("an export", 0)
