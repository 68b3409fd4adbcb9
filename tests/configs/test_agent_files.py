"""An agent's file is evaluated as the run that it came from, and the zoo's agents by their names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from configs import agent_files
from configs.agent_files import agent_file, unpacked
from configs.compose import Composer, load
from configs.evaluating import evaluate_runs
from configs.runs import evaluated
from policies.learner import Learner
from policies.play import save_agent
from utils.options import OptionError

WORDS = [
    "env=PointRobot",
    "backend=serial",
    "wandb.mode=disabled",
    "num_slots=2",
    "train.n_env_steps_total=100",
    "env.num_eval_tasks=3",
    "evaluation.every=1000000",
]


def returns_of(run: Path | str) -> tuple[Path, Any]:
    """What `evaluate=` measures, and the folder that it wrote to."""
    with Composer() as composer:
        (found,) = evaluated(composer, composer.parse([f"evaluate={run}"]))

    def run_with(act: Any, config: Any, family: Any, run_dir: Path, **how: Any) -> float:
        with Learner(config, run_dir, family=family, **how) as learner:
            return act(learner)

    evaluate_runs([found], run_with, failed=1)
    metrics = json.loads((found.run_dir / "evaluation.json").read_text())
    return found.run_dir, {key: value for key, value in metrics.items() if key.startswith("eval/")}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run with an agent's file beside it, in the folder where one stands."""
    monkeypatch.chdir(tmp_path)
    with Learner(load(WORDS), tmp_path / "run") as learner:
        learner.save()
        save_agent(learner, tmp_path / "agent.pt")
    return tmp_path / "run"


def test_a_file_has_the_returns_of_its_run_and_results_go_below_outputs(run: Path) -> None:
    _, expected = returns_of(run)
    folder, found = returns_of("agent.pt")
    assert found == expected and expected
    assert folder.parent == run.parent / "outputs" / "agents" / "agent"


def test_the_agents_of_the_zoo_are_known_by_name(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_files, "ZOO_FOLDER", run.parent)
    assert agent_file(Path("zoo/agent")) == run.parent / "agent.pt"
    assert agent_file(Path("run")) is None
    with pytest.raises(OptionError, match=r"The zoo has no agent agnet\. Did you mean 'agent'"):
        agent_file(Path("zoo/agnet"))


def test_a_file_that_holds_something_else_is_a_sentence(run: Path) -> None:
    stored = torch.load(run.parent / "agent.pt", weights_only=True)
    torch.save(stored | {"config": {"seed": torch.zeros(2)}}, run.parent / "odd.pt")
    with pytest.raises(OptionError, match="its config holds more than plain values"):
        unpacked(run.parent / "odd.pt")
    Path("text.pt").write_text("nothing")
    with pytest.raises(OptionError, match="is not the file of an agent"):
        unpacked(Path("text.pt"))
