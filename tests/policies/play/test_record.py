"""The record of an agent: from a run's folder or from a file, the same agent, and nothing is executed."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from gymnasium import spaces

from policies.agents.base import Arch, Conditioning, TaskInferenceConfig
from policies.learner import Learner
from policies.play import load_agent
from policies.play.record import AgentRecord, _plain_space, _space_of, typed
from policies.run.config import CHECKPOINTS, RECORD, Config, plain, save
from tests.policies.play.toy import agent_file
from tests.runs import digest, tiny_config
from utils.options import OptionError


@pytest.mark.parametrize("algorithm", ["SAC", "PPO"])
def test_a_run_and_the_file_of_its_agent_hold_the_same_agent(tmp_path: Path, algorithm: str) -> None:
    config = tiny_config(algorithm=algorithm, agent={"normalise_obs": True})
    with Learner(config, tmp_path / "run") as learner:
        learner.collect_rollouts_parallel(2, random_actions=True)
        learner.save()
        expected = {name: value for name, value in learner.agent.state_dict().items() if "critic" not in name}
    record = AgentRecord.load(tmp_path / "run")
    record.save(tmp_path / "agent.pt")
    again = AgentRecord.load(tmp_path / "agent.pt")
    assert digest(record.parameters) == digest(again.parameters) == digest(expected)
    assert record.config == again.config and record.env_steps == again.env_steps > 0
    assert (
        again.layout.obs_space == record.layout.obs_space
        and again.spec.action_space == record.spec.action_space
    )


def test_a_file_needs_no_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = agent_file(tmp_path)
    monkeypatch.setattr("policies.play.record.recorded_spec", None)
    assert load_agent(file).act(np.zeros(2)).shape == (2,)


def test_an_agent_of_the_default_size_is_less_than_a_megabyte(tmp_path: Path) -> None:
    from policies.agents.base import AgentConfig
    from policies.memory import MEMORIES

    config = tiny_config(algorithm="SAC")
    object.__setattr__(config, "agent", AgentConfig())
    object.__setattr__(config, "memory", MEMORIES["GRU"].Config(name="GRU"))
    with Learner(config) as learner:
        AgentRecord.of_agent(learner.agent, learner.family.spec, config).save(tmp_path / "agent.pt")
    assert (tmp_path / "agent.pt").stat().st_size < 1_000_000


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(5, start=-1),
        spaces.MultiDiscrete([5, 2]),
        spaces.Box(-np.inf, np.inf, (3,), np.float32),
        spaces.Box(np.array([0, -1], np.float32), np.array([1, 2], np.float32), dtype=np.float32),
        spaces.Dict({"picture": spaces.Box(0, 255, (4, 4, 3), np.uint8), "x": spaces.Box(-1.0, 1.0, (2,))}),
    ],
    ids=str,
)
def test_a_space_comes_back_from_its_numbers(space: spaces.Box) -> None:
    assert _space_of(_plain_space(space)) == space


def test_a_config_comes_back_from_its_plain_values() -> None:
    inference = TaskInferenceConfig(weight=0.5, rows=None)
    config: Config = tiny_config(
        arch=Arch.Memory_Markov, agent={"conditioning": Conditioning.film, "task_inference": inference}
    )
    values = plain(config)
    for name in ("agent", "memory", "algorithm", "env"):
        section = getattr(config, name)
        assert typed(type(section), name, values[name]) == section


class Malice:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (print, ("executed",))


def test_what_is_no_agent_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "crafted").write_bytes(pickle.dumps(Malice()))
    (tmp_path / "text").write_text("hello")
    torch.save({"agent_format": 99}, tmp_path / "newer")
    torch.save([1], tmp_path / "list")
    (tmp_path / "empty").mkdir()
    for name, sentence in {
        "missing": "does not exist",
        "crafted": "it cannot be read",
        "text": "it cannot be read",
        "newer": "not the file of an agent that this version",
        "list": "not the file of an agent that this version",
        "empty": "it has no config.yaml",
    }.items():
        with pytest.raises(OptionError, match=sentence):
            AgentRecord.load(tmp_path / name)
    assert "executed" not in capsys.readouterr().out


def test_a_run_without_an_agent_is_one_sentence(tmp_path: Path) -> None:
    for text, sentence in (
        (yaml.safe_dump({"format": 2, "env": {}}), "no checkpoint yet"),
        (yaml.safe_dump({"format": 1}), "has format 1"),
        ("- a\n- b\n", "cannot be read as the config"),
        ("{", "cannot be read as the config"),
        ("format: 2\na: &a [x]\nb: [*a, *a]", "it has an alias"),
    ):
        (tmp_path / "config.yaml").write_text(text)
        with pytest.raises(OptionError, match=sentence):
            AgentRecord.load(tmp_path)


def test_a_run_with_a_link_is_refused_but_for_the_segments_which_are_not_opened(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    (run_dir / CHECKPOINTS).mkdir(parents=True)
    save(tiny_config(), run_dir)
    (run_dir / CHECKPOINTS / "segments").symlink_to(tmp_path)
    with pytest.raises(OptionError, match="no checkpoint yet"):
        AgentRecord.load(run_dir)
    (run_dir / RECORD).rename(tmp_path / RECORD)
    (run_dir / RECORD).symlink_to(tmp_path / RECORD)
    with pytest.raises(OptionError, match=rf"{RECORD} is a link"):
        AgentRecord.load(run_dir)


def test_parameters_of_another_agent_are_refused(tmp_path: Path) -> None:
    record = AgentRecord.load(agent_file(tmp_path))
    record.parameters.popitem()
    with pytest.raises(OptionError, match="do not fit the agent of their config"):
        record.build(14, "cpu")
