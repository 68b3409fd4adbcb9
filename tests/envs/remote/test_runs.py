"""Whole runs on a service: what they show and write of servers, and what they never write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from policies.learner import Learner
from tests.envs.remote.fake_server import FakeServer
from tests.envs.remote.played_service import OPTIONS
from tests.envs.remote.task_api import TaskApiServer
from tests.envs.remote.test_probe import STRICT, STRICT_SCHEMA, Strict
from tests.runs import tiny_config
from utils.logger import read_metrics

NAMES = ("messages", "in_flight_ms", "waiting_ms", "bytes_per_message", "reopenings", "refusals")
TOKEN = "hf_ThisIsTheSecretOfTheTest"


def trained(folder: Path, family: str, options: dict[str, Any], **root: Any) -> dict[str, Any]:
    """The last line of metrics of a tiny run."""
    config = tiny_config(family, env=options, train={"n_env_steps_total": 120}, **root)
    with Learner(config, folder) as learner:
        learner.train()
    return read_metrics(folder / "metrics.jsonl")[-1]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_reports_what_its_server_has_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], workers: int
) -> None:
    with FakeServer() as server:
        options = OPTIONS | {"urls": [server.url]}
        last = trained(tmp_path / "run", "OpenEnv", options, workers=workers)
        asked = sum(message["type"] != "close" for _, message in server.log)
    measured = {name: last[f"openenv/127.0.0.1:{server.port}/{name}"] for name in NAMES}
    # The probe asks less than once for each of 120 env steps; at the end more is played than is told.
    assert 120 <= measured["messages"] <= asked
    assert measured["in_flight_ms"] > 0 and measured["bytes_per_message"] > 50
    assert measured["reopenings"] == measured["refusals"] == 0
    assert "servers " in capsys.readouterr().out


@pytest.mark.parametrize("family", ["OpenEnv", "Mixture"])
def test_no_file_of_a_run_holds_the_token_that_its_server_was_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    monkeypatch.setenv("TOKEN_OF_THE_TEST", TOKEN)
    with FakeServer() as server:
        options = OPTIONS | {"urls": [server.url], "headers_from_env": ["Authorization:TOKEN_OF_THE_TEST"]}
        if family == "Mixture":
            options = {"parts": {"far": {"family": "OpenEnv"} | options}, "max_episode_steps": 0}
        trained(tmp_path / "run", family, options, workers=2)
        assert {headers.get("Authorization") for headers in server.headers} == {f"Bearer {TOKEN}"}
    files = [file for file in (tmp_path / "run").rglob("*") if file.is_file()]
    assert any("checkpoints" in file.parts for file in files) and len(files) > 5
    for file in files:
        written = file.read_bytes()
        assert TOKEN.encode() not in written and b"TOKEN_OF_THE_TEST" not in written, file


# -- kinds of tasks and actions ------------------------------------------------------------------------------


def test_an_agent_takes_only_what_the_flags_of_several_choices_allow(tmp_path: Path) -> None:
    """The server fails at anything else, which would end the run."""
    with FakeServer(make=Strict, schema=STRICT_SCHEMA) as server:
        trained(tmp_path / "run", "OpenEnv", OPTIONS | STRICT | {"urls": [server.url]})
        taken = {(step["column"], step["row"]) for _, step in server.steps()}
    assert taken == {(column, row) for column in range(3) for row in range(2)}


def test_tasks_of_the_task_api_are_held_out_and_never_met_in_training(tmp_path: Path) -> None:
    with TaskApiServer(counts={"train": 3, "test": 2}) as server:
        options = OPTIONS | {"tasks": [], "task_api": "maze", "urls": [server.url]}
        last = trained(tmp_path / "run", "OpenEnv", options)
    assert "eval/held_out/return/episode_1" in last or any(name.startswith("eval/held_out") for name in last)
    told = [message["data"] for _, message in server.log if message["type"] == "reset"]
    assert {(one["split"], one["index"]) for one in told if one["split"] == "train"} == {
        ("train", 0),
        ("train", 1),
        ("train", 2),
    }
    assert {one["index"] for one in told if one["split"] == "test"} <= {0, 1}
