"""A job begins its run, goes on with it, or sees that nothing is left to do; and says why it has failed."""

from __future__ import annotations

import json
import math
import multiprocessing
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from configs.compose import Composer, checked
from configs.sweep.job import has_finished, leave_loky, run_job
from policies.run.config import save
from tests.utils.report.made_runs import line
from utils.checkpoint import CheckpointStore

TOTAL = 3000
WORDS = ["env=Wind", f"train.n_env_steps_total={TOTAL}"]


@pytest.fixture
def composed(composer: Composer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DictConfig:
    made = composer.dict_config(composer.parse(WORDS))
    hydra = OmegaConf.create(
        {
            "runtime": {"output_dir": str(tmp_path)},
            "job": {"num": 7},
            "sweep": {"dir": str(tmp_path)},
            "launcher": {"_target_": "hydra.BasicLauncher"},
        }
    )
    monkeypatch.setattr(HydraConfig, "get", lambda: hydra)
    return made


def outcome(composed: DictConfig, ends: Callable[[], object] = lambda: None) -> tuple[str, float]:
    """(what the job did with a learner, what it returned)."""
    acts: list[Any] = ["nothing"]

    def run_with(act: Any, config: Any, family: Any, run_dir: Path, **how: Any) -> float:
        assert (
            how["host"].backends.name == "backends.json"
            and config.env.family == family.config.family == "Wind"
        )
        acts[0] = act
        ends()
        return 2.5

    names: Any = {"train": "train", "resume": "resume"}
    result = run_job(composed, run_with, failed=1, **names)
    return acts[0], result


def come_to(composed: DictConfig, folder: Path, env_steps: int, stage: str = "collect") -> None:
    """Let a folder hold the run of these words, which has come so far."""
    save(checked(composed)[0], folder)
    facts = {"counters": {"env_steps": env_steps, "stage": stage}}
    CheckpointStore(folder / "checkpoints").save(env_steps, tensors={}, facts=facts)


def test_a_job_trains_goes_on_or_has_nothing_to_do(composed: DictConfig, tmp_path: Path) -> None:
    assert outcome(composed) == ("train", 2.5)
    come_to(composed, tmp_path, 1000)
    assert outcome(composed) == ("resume", 2.5)
    come_to(composed, tmp_path, TOTAL, "evaluate")
    assert outcome(composed) == ("resume", 2.5), "its last evaluation is still to be made"
    come_to(composed, tmp_path, TOTAL)
    (tmp_path / "metrics.jsonl").write_text(f"{json.dumps(line(TOTAL, 1.0, [[1.0, 4.0]]))}\n")
    assert outcome(composed) == ("nothing", 4.0)
    (tmp_path / "metrics.jsonl").unlink()
    act, value = outcome(composed)
    assert act == "nothing" and math.isnan(value), "trials of the evaluation were given up"
    composed.train.n_env_steps_total = TOTAL + 1
    assert outcome(composed) == ("resume", 2.5)
    assert has_finished(tmp_path, TOTAL) and not has_finished(tmp_path / "none", TOTAL)


def test_why_a_job_failed_stands_in_its_folder_until_it_is_tried_again(
    composed: DictConfig, tmp_path: Path
) -> None:
    def refused() -> None:
        raise SystemExit(1) from OSError("no room\non the disk")

    def broken() -> None:
        raise ZeroDivisionError

    act, value = outcome(composed, refused)
    assert act == "train" and math.isnan(value)
    assert (tmp_path / "failed.log").read_text() == "no room on the disk\n"
    with pytest.raises(ZeroDivisionError):
        outcome(composed, broken)
    assert (tmp_path / "failed.log").read_text() == "ZeroDivisionError\n"
    assert outcome(composed) == ("train", 2.5)
    assert not (tmp_path / "failed.log").exists()


@pytest.mark.parametrize("code", [143, 144, -1])
def test_a_signal_or_a_launcher_that_queues_the_job_again_is_no_failure(
    code: int, composed: DictConfig, tmp_path: Path
) -> None:
    def leave() -> None:
        raise SystemExit(code)

    with pytest.raises(SystemExit) as caught:
        outcome(composed, leave)
    assert caught.value.code == code
    assert not (tmp_path / "failed.log").exists()


@pytest.mark.parametrize(("launcher", "prefix"), [("BasicLauncher", ""), ("JoblibLauncher", "[7] ")])
def test_the_lines_of_jobs_that_run_side_by_side_carry_their_numbers(
    launcher: str, prefix: str, composed: DictConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    HydraConfig.get().launcher._target_ = f"hydra.{launcher}"
    assert outcome(composed, lambda: sys.stdout.write("one\ntwo\n")) == ("train", 2.5)
    assert capsys.readouterr().out == f"{prefix}one\n{prefix}two\n"


def test_joblibs_start_method_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[tuple[str, bool]] = []
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none=False: "loky")
    monkeypatch.setattr(
        multiprocessing, "set_start_method", lambda method, force=False: chosen.append((method, force))
    )
    leave_loky()
    assert chosen == [("fork", True)]
