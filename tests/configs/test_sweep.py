"""A sweep ends with a report of its runs, and leaves joblib's start method behind."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from configs.sweep import ReportAtEnd, leave_loky
from tests.utils.report.made_runs import make_run

TABLES = [[[1.0]], [[2.0]], [[3.0]]]


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
