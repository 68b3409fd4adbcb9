"""The study keeps every run: several processes share it, and what one of them has left goes on elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from configs.search.space import Choice, Range
from configs.search.study import JOURNAL, OpenRun, Study

pytestmark = pytest.mark.peers
pytest.importorskip("optuna")

SPACE = {"rate": Range(1e-4, 1e-2, log=True), "size": Range(16, 64, step=16), "arch": Choice(("a", "[1,2]"))}


def opened(folder: Path, *, seed: int = 0, prune: bool = True) -> Study:
    return Study(folder, SPACE, seed=seed, prune=prune)


DRAWN: list[OpenRun] = []


@pytest.fixture(autouse=True)
def _locks_released() -> Iterator[None]:
    """A run that a test has not ended holds its lock no longer than the test."""
    yield
    while DRAWN:
        DRAWN.pop().lock.release()


def drawn(study: Study, most: int | None = None) -> OpenRun:
    run = study.next_run(most)
    assert run is not None
    DRAWN.append(run)
    return run


def finish(run: OpenRun, objective: float) -> None:
    run.complete(objective)
    run.lock.release()


def left(study: Study, most: int | None = None) -> OpenRun:
    """A run whose process has died: nothing is told to the study, and the lock goes with the process."""
    run = drawn(study, most)
    run.lock.release()
    return run


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return opened(tmp_path)


def test_values_are_those_of_the_space(study: Study) -> None:
    for _ in range(12):
        run = drawn(study)
        rate, size = run.values["rate"], run.values["size"]
        assert 1e-4 <= rate <= 1e-2 and size in (16, 32, 48, 64) and run.values["arch"] in ("a", "[1,2]")
        finish(run, rate)


def test_a_study_that_goes_on_draws_what_it_would_have_drawn(tmp_path: Path) -> None:
    """The objective follows from the values, so that what is drawn depends on all that came before."""
    whole = opened(tmp_path / "whole")
    for _ in range(14):
        run = drawn(whole)
        finish(run, -abs(math.log(run.values["rate"])))
    for number in range(14):
        part = opened(tmp_path / "parts")
        if number in (3, 12):
            left(part)
        run = drawn(opened(tmp_path / "parts"))
        finish(run, -abs(math.log(run.values["rate"])))
    assert opened(tmp_path / "parts").runs() == whole.runs()
    other = drawn(opened(tmp_path / "other", seed=1))
    assert other.values != whole.runs()[0].values


def test_a_run_whose_process_has_died_is_given_out_again_with_its_folder(
    study: Study, tmp_path: Path
) -> None:
    first = left(study)
    again = drawn(opened(tmp_path), most=1)
    assert (again.name, again.values) == (first.name, first.values)
    # It is being made now: nobody else gets it, and no other run is left to make.
    assert opened(tmp_path).next_run(most=1) is None
    finish(again, 1.0)
    assert [(run.name, run.state, run.objective) for run in study.runs()] == [("0", "complete", 1.0)]


def test_a_run_that_waits_is_handed_out_before_a_new_one(study: Study, tmp_path: Path) -> None:
    lost, other = left(study), drawn(study)
    assert other.name == lost.name  # the one before it was found dead
    finish(other, 0.0)
    assert drawn(opened(tmp_path)).name == "1"


def test_processes_that_draw_at_once_get_runs_of_their_own(study: Study, tmp_path: Path) -> None:
    runs = [drawn(study), drawn(opened(tmp_path)), drawn(opened(tmp_path))]
    assert [run.name for run in runs] == ["0", "1", "2"]
    assert len({str(run.values) for run in runs}) == 3
    assert study.next_run(most=3) is None


def test_a_line_that_was_cut_off_by_a_kill_costs_nothing_else(study: Study, tmp_path: Path) -> None:
    finish(drawn(study), 2.0)
    with (tmp_path / JOURNAL).open("ab") as file:
        file.write(b'{"op_code":4,"worker')
    again = opened(tmp_path)
    finish(drawn(again), 3.0)
    assert [run.objective for run in opened(tmp_path).runs()] == [2.0, 3.0]


def test_a_run_below_the_median_is_to_be_stopped(study: Study, tmp_path: Path) -> None:
    for height in range(5):
        run = drawn(study)
        run.report(1, height)
        finish(run, height)
    bad, good = drawn(study), drawn(study)
    bad.report(1, 0.5)
    bad.report(1, 99.0)  # a run that goes on tells its evaluations again; the first word counts
    good.report(1, 3.5)
    assert bad.should_stop() and not good.should_stop()
    bad.prune()
    assert study.runs()[5].state == "pruned" and study.runs()[5].curve == {1: 0.5}
    untiring = drawn(opened(tmp_path, prune=False))
    untiring.report(1, -5.0)
    assert not untiring.should_stop()


def test_a_run_without_a_return_has_failed_and_says_why(study: Study) -> None:
    drawn(study).complete(math.nan)
    drawn(study).fail("no room on the disk")
    assert [run.state for run in study.runs()] == ["failed", "failed"]
    assert study.runs()[1].why == "no room on the disk"
    # They count: a search that can only fail comes to an end.
    assert study.next_run(most=2) is None
