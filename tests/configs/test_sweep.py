"""A sweep ends with a report of its runs, and leaves joblib's start method behind."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from configs.sweep import FolderOfItsOwn, ReportAtEnd, leave_loky, let_jobs_import
from main import main
from tests.utils.report.made_runs import make_run
from utils.run_lock import RunLock

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


def test_the_report_of_a_sweep_stands_in_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "0", TABLES)
    config = OmegaConf.create({"hydra": {"sweep": {"dir": str(tmp_path)}}})
    ReportAtEnd().on_multirun_end(config)
    assert f"report  {tmp_path / 'report/report.md'}" in capsys.readouterr().out
    assert (tmp_path / "report/learning.svg").exists()


def test_a_sweep_whose_runs_all_failed_says_why_there_is_no_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ReportAtEnd().on_multirun_end(OmegaConf.create({"hydra": {"sweep": {"dir": str(tmp_path)}}}))
    assert capsys.readouterr().out.startswith("No report: There is no run in")
    assert not list(tmp_path.iterdir())


def test_joblibs_start_method_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[tuple[str, bool]] = []
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none=False: "loky")
    monkeypatch.setattr(
        multiprocessing, "set_start_method", lambda method, force=False: chosen.append((method, force))
    )
    leave_loky()
    assert chosen == [("fork", True)]


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
