"""A sweep has a folder of its own, and ends with a report of its runs and the names of those that failed."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from configs.sweep.plan import Job, SweepPlan
from configs.sweep.start import FolderOfItsOwn, let_jobs_import, run_sweep
from main import main
from tests.utils.report.made_runs import make_run
from utils.checkpoint import CheckpointStore
from utils.machine import CORES
from utils.run_lock import RunLock


@pytest.fixture(autouse=True)
def path_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What jobs import is passed on by a variable of this process."""
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))


TABLES = [[[1.0]], [[2.0]], [[3.0]]]


def sweep_in(folder: Path) -> DictConfig:
    return OmegaConf.create({"hydra": {"sweep": {"dir": str(folder)}}, "allow_links": False})


def test_of_two_sweeps_in_one_folder_the_second_is_refused_before_it_writes(tmp_path: Path) -> None:
    first, second = FolderOfItsOwn(), FolderOfItsOwn()
    first.on_multirun_start(sweep_in(tmp_path))
    # The lock is not for the processes of jobs, to which launchers send the callbacks.
    assert not vars(pickle.loads(pickle.dumps(first)))
    with pytest.raises(SystemExit, match="is in use by process"):
        second.on_multirun_start(sweep_in(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    first.on_multirun_end(sweep_in(tmp_path))
    second.on_multirun_start(sweep_in(tmp_path))
    second.on_multirun_end(sweep_in(tmp_path))


def test_a_folder_that_a_sweep_must_not_write_into_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "links" / "0").mkdir(parents=True)
    (tmp_path / "links" / "0" / "main.log").symlink_to(tmp_path / "file")
    said = {"file/x": "another one with hydra.sweep.dir=FOLDER", "links": r"main\.log is a link"}
    for folder, sentence in said.items():
        with pytest.raises(SystemExit, match=sentence) as caught:
            FolderOfItsOwn().on_multirun_start(sweep_in(tmp_path / folder))
        assert "\n" not in str(caught.value)
    RunLock(tmp_path / "links").release()  # who was refused keeps no lock


def test_a_sweep_from_the_command_line_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["-m", "seed=0,1", f"hydra.sweep.dir={tmp_path}", "hydra/hydra_logging=none"]
    monkeypatch.setattr("sys.argv", ["main.py", *words])
    # The process of the tests stays as it is.
    monkeypatch.setattr("utils.processes.jobs.end_with_this_process", lambda: False)
    monkeypatch.setenv("PYTHONPATH", "")
    with RunLock(tmp_path), pytest.raises(SystemExit, match="is in use by process"):
        main()
    assert [path.name for path in tmp_path.iterdir()] == [".lock"], "Hydra has written nothing"


def finish(folder: Path, env_steps: int = 3000, stage: str = "collect") -> None:
    """Leave the checkpoint of a run in its folder."""
    facts = {"counters": {"env_steps": env_steps, "stage": stage}}
    CheckpointStore(folder / "checkpoints").save(env_steps, tensors={}, facts=facts)


def plan_of(folder: Path, jobs: int) -> SweepPlan:
    numbers = range(jobs)
    return SweepPlan(folder, tuple(Job(n, f"seed={n}", folder / str(n), 3000) for n in numbers), ())


def ends(code: object) -> Callable[[], None]:
    """What Hydra does: nothing here, and then it may leave."""

    def start() -> None:
        if code is not None:
            raise SystemExit(code)

    return start


@pytest.mark.parametrize("code", [None, 0, 1])
def test_a_sweep_ends_with_its_report_and_the_jobs_that_failed(code: int | None, tmp_path: Path) -> None:
    """Also where a launcher has raised because of one of them, for which Hydra leaves with 1."""
    for job in (0, 1, 2, 3):
        make_run(tmp_path / str(job), TABLES, seed=job)
    finish(tmp_path / "0")
    finish(tmp_path / "1", 1000)
    finish(tmp_path / "2", stage="evaluate")
    finish(tmp_path / "3")
    (tmp_path / "3" / "failed.log").write_text("no room on the disk\n")
    report, failures, exit_code = run_sweep(ends(code), plan_of(tmp_path, 5), failed=1)
    assert f"report  {tmp_path / 'report/report.md'}" in report
    assert (tmp_path / "report/learning.svg").exists()
    early = [
        f"  [{job}] seed={job}: it was ended before its end, see {tmp_path / str(job)}" for job in (1, 2, 4)
    ]
    assert failures.splitlines()[1:-1] == [*early[:2], "  [3] seed=3: no room on the disk", early[2]]
    assert exit_code == 1


@pytest.mark.parametrize(("code", "expected"), [(None, 0), (0, 0), (1, 1)])
def test_a_sweep_whose_jobs_are_well_has_the_exit_code_of_its_launcher(
    code: int | None, expected: int, tmp_path: Path
) -> None:
    make_run(tmp_path / "0", TABLES)
    finish(tmp_path / "0")
    _, failures, exit_code = run_sweep(ends(code), plan_of(tmp_path, 1), failed=1)
    assert (failures, exit_code) == ("", expected)


@pytest.mark.parametrize("code", [143, "sweep is in use by process 7"])
def test_a_signal_and_a_refused_folder_end_a_sweep_at_once(code: object, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        run_sweep(ends(code), plan_of(tmp_path, 1), failed=1)
    assert caught.value.code == code
    assert not list(tmp_path.iterdir())


def test_a_sweep_whose_runs_all_failed_says_why_there_is_no_report(tmp_path: Path) -> None:
    report, _, _ = run_sweep(ends(None), plan_of(tmp_path, 1), failed=1)
    assert report.startswith("No report: There is no run in")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("before", [None, "elsewhere"])
def test_an_interpreter_of_a_job_finds_the_project_first_wherever_it_starts(
    before: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if before is not None:
        monkeypatch.setenv("PYTHONPATH", before)
    let_jobs_import()
    assert os.environ["PYTHONPATH"].split(os.pathsep)[1:] == [*filter(None, [before])]
    subprocess.run([sys.executable, "-c", "import policies.run.config"], cwd=tmp_path, check=True)


def test_jobs_that_run_side_by_side_share_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("configs.sweep.start.available_cores", lambda: 5)
    monkeypatch.setenv(CORES, "")
    shares: list[str] = []
    for at_once in (1, 2, 9):
        plan = replace(plan_of(tmp_path, 0), at_once=at_once)
        run_sweep(lambda: shares.append(os.environ[CORES]), plan, failed=1)
    assert shares == ["", "2", "1"]
