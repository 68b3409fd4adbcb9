"""A run is recorded by the services that it names, all told the same; an evaluation has its own record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from policies.learner import Learner
from policies.recording import services as module
from policies.recording.services import agent_files, record_evaluation
from policies.run.config import Config, LoggerName
from tests.runs import tiny_config
from utils.services.wandb_run import WandbConfig, WandbMode


class Told:
    """Stands for a service: it keeps what it is told."""

    made: list[Told]
    run_id = "told"

    def __init__(self, *given: Any, **how: Any) -> None:
        self.given, self.how, self.calls = given, how, list[tuple[Any, ...]]()
        self.place = "somewhere"
        self.made.append(self)

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **how: self.calls.append((name, *given))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Told]:
    Told.made = []
    monkeypatch.setattr(module, "TensorboardRun", Told)
    monkeypatch.setattr(module.WandbRun, "start", classmethod(lambda cls, config, **how: Told(config, **how)))
    return Told.made


def config_with(*loggers: str, **root: Any) -> Config:
    return replace(tiny_config(**root), loggers=[LoggerName[name] for name in loggers])


def train(config: Config, folder: Path) -> None:
    with Learner(config, folder) as learner:
        learner.train()


def test_all_services_are_told_the_same_and_closed(told: list[Told], tmp_path: Path) -> None:
    train(config_with("wandb", "tensorboard", evaluation={"films": 1}), tmp_path)
    wandb, tensorboard = told
    assert wandb.calls == tensorboard.calls
    names = [call[0] for call in wandb.calls]
    assert names[0] == "log" and names[-4:] == ["summary", "media", "media", "close"]
    summary, pictures, films, close = wandb.calls[-4:]
    assert "best/trial_return" in summary[1] and close == ("close", 0)
    assert (pictures[2], films[2]) == ([tmp_path / "adaptation.png"], [tmp_path / "film_1.gif"])


def test_a_run_that_names_none_has_none(told: list[Told], tmp_path: Path) -> None:
    train(config_with(), tmp_path / "none")
    with Learner(config_with("wandb")) as learner:  # and without a folder nothing is recorded
        learner.train()
    assert not told


def test_a_run_that_fails_is_closed_as_one_that_failed(
    told: list[Told], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Learner, "evaluate", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train(config_with("wandb"), tmp_path)
    assert told[0].calls[-1] == ("close", 1)


def test_a_resumed_run_goes_on_in_its_own(told: list[Told], tmp_path: Path) -> None:
    train(config_with("wandb", "tensorboard"), tmp_path)
    longer = config_with("wandb", "tensorboard", train={"n_env_steps_total": 400})
    with Learner(longer, tmp_path) as learner:
        learner.load()
        env_steps = learner.counters.env_steps
        learner.train()
    assert told[2].how["run_id"] == "told"
    assert told[3].given[2] == env_steps


def test_an_evaluation_is_a_run_of_its_own_in_the_group_of_the_run(told: list[Told], tmp_path: Path) -> None:
    config = config_with("wandb")
    train(config, tmp_path)
    with Learner(config, tmp_path, learns=False) as learner:
        record_evaluation(learner.context, 240, {"eval/far/return_episode_1": 2.0})
        record_evaluation(replace(learner.context, run_dir=None), 240, {})
        record_evaluation(replace(learner.context, config=config_with("tensorboard")), 240, {})
    assert len(told) == 2
    assert told[1].how["group"] == told[0].how["group"] and told[1].how["job_type"] == "evaluate"
    assert told[1].calls == [("log", 240, {"eval/far/return_episode_1": 2.0}), ("close",)]


def test_the_files_of_an_agent_can_be_evaluated_elsewhere(told: list[Told], tmp_path: Path) -> None:
    """What an artifact holds is a run folder without the stored trials."""
    wandb = WandbConfig(mode=WandbMode.disabled, artifact=True)
    config = replace(config_with("wandb"), wandb=wandb)
    train(config, tmp_path / "run")
    (files,) = [call[1] for call in told[0].calls if call[0] == "artifact"] or [{}]
    assert files == agent_files(tmp_path / "run") and not any("segments" in name for name in files)
    for name, path in files.items():
        (tmp_path / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "copy" / name).write_bytes(path.read_bytes())
    returns = []
    for folder in (tmp_path / "run", tmp_path / "copy"):
        with Learner(config, folder, learns=False) as learner:
            learner.load()
            returns.append(learner.evaluate())
    assert returns[0] == returns[1]
