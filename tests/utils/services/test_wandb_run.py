"""W&B: an offline run read back, and every failure of it kept away from training."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from utils.services import wandb_run as module
from utils.services.wandb_run import WandbConfig, WandbMode, WandbRun, redact

CANARY = "CANARY41f7"
RECORD = f"""
import os, sys
from pathlib import Path
from utils.services.wandb_run import WandbConfig, WandbRun
config = WandbConfig(tags=["mine", "by {CANARY}"], notes="for {CANARY}", job_type="probe")
env = {{"name": "Wind", "api_key": "{CANARY}"}}
settings = {{"env": env, "server": "https://me:{CANARY}@host/path", "versions": {{"torch": "2"}}}}
settings["note"] = ["{CANARY}"]
named = {{"name": "Wind seed 0", "group": "Wind Memory SAC", "tags": ["Wind"], "run_id": "abc12345"}}
run = WandbRun.start(config, folder=Path(sys.argv[1]), settings=settings, **named)
for step in (0, 100, 200):
    run.log(step, {{"loss": step / 10, "by_episode": [step, None, 2.0 * step], "nothing": None}})
child = os.fork()
if child == 0:
    run.log(999, {{"loss": -1.0}})
    run.close()
    os._exit(0)
os.waitpid(child, 0)
run.log(300, {{"loss": 30.0}})
run.summary({{"best": 5.0}})
run.close()
run.close()
run.log(400, {{"loss": 40.0}})
print(run.run_id, run.place)
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """An offline run made by a process of its own, with secrets in every place they could be taken from; and
    what it printed.
    """
    folder = tmp_path_factory.mktemp("run")
    environment = {
        **os.environ,
        "WANDB_API_KEY": CANARY + "0" * 30,
        "SERVICE_TOKEN": CANARY,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-c", RECORD, str(folder), f"env.token={CANARY}"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return folder, done.stdout + done.stderr


def inspect(place: Path, *options: str) -> str:
    command = [sys.executable, "-m", "wandb", "leet", "inspect", *options, "--json", str(place)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def test_an_offline_run_reads_back_as_it_was_logged(recorded: tuple[Path, str]) -> None:
    run_id, place = recorded[1].split()
    assert run_id == "abc12345" and Path(place).parent == recorded[0] / "wandb"
    records = [json.loads(line) for line in inspect(Path(place)).splitlines()]
    run = next(record["run"] for record in records if record["type"] == "run")
    assert (
        run["display_name"] == "Wind seed 0"
        and run["run_group"] == "Wind Memory SAC"
        and run["tags"] == ["Wind", "mine", "by ***"]
    )
    assert (run["notes"], run["job_type"]) == ("for ***", "probe")
    assert run["config"]["update"]["env"] == {"name": "Wind", "api_key": "***"} and run["config"]["update"][
        "versions"
    ] == {"torch": "2"}
    metrics = [record["metric"] for record in records if record["type"] == "metric"]
    assert any(metric.get("glob_name") == "*" and metric["step_metric"] == "env_steps" for metric in metrics)
    history = [_without_own(record["history"]) for record in records if record["type"] == "history"]
    assert [point["loss"] for point in history] == [
        0,
        10,
        20,
        30,
    ]  # nothing of the forked child, nothing after finish
    assert history[2] == {"env_steps": 200, "loss": 20, "by_episode/1": 200, "by_episode/3": 400}
    summary = json.loads(inspect(Path(place), "--summary"))
    assert summary["state"] == "finished" and summary["exit_code"] == 0 and summary["summary"]["best"] == 5


def _without_own(record: dict[str, Any]) -> dict[str, Any]:
    values = record.get("item", record)
    if isinstance(values, list):
        values = {item.get("key") or "/".join(item["nested_key"]): item["value_json"] for item in values}
    return {
        key: json.loads(value) if isinstance(value, str) else value
        for key, value in values.items()
        if not key.startswith("_")
    }


def test_no_secret_no_command_line_and_no_host_name_is_recorded(recorded: tuple[Path, str]) -> None:
    written = [path for path in recorded[0].rglob("*") if path.is_file()]
    content = b"".join(path.read_bytes() for path in written)
    assert CANARY.encode() not in content and CANARY not in recorded[1]
    assert b"Wind Memory SAC" in content  # it would be seen
    assert '"host"' not in inspect(Path(recorded[1].split()[1]))
    assert not [
        path.name
        for path in written
        if path.name in ("wandb-metadata.json", "requirements.txt") or path.suffix == ".py"
    ]


def test_redact_keeps_everything_else() -> None:
    plain = {"a": [1, {"b": "x/y@z"}], "tokens_per_s": 9, "num_keys": 2, "url": "https://host/path"}
    assert redact(plain) == plain
    assert redact(
        {"a": {"Api-Key": 1, "key": None, "apikey": "x", "wandb_password": "y"}, "b": ["ssh://u:p@h"]}
    ) == {
        "a": {"Api-Key": "***", "key": None, "apikey": "***", "wandb_password": "***"},
        "b": ["ssh://***@h"],
    }


class FakeRun:
    """Stands for wandb's run."""

    id, url, dir, offline = "fake", "https://host/fake", "/run/files", True

    def __init__(self) -> None:
        self.logged: list[dict[str, Any]] = []
        self.finished = threading.Event()
        self.error: Exception | None = None

    def define_metric(self, *_: Any, **__: Any) -> None: ...

    def log(self, values: dict[str, Any]) -> None:
        if self.error:
            raise self.error
        self.logged.append(values)

    def finish(self, exit_code: int = 0) -> None:
        self.finished.set()


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., WandbRun]:
    def start_with(
        init: Callable[..., Any], mode: WandbMode = WandbMode.offline, timeout: float = 5.0
    ) -> WandbRun:
        fake = types.ModuleType("wandb")
        vars(fake).update(init=init, Settings=dict, setup=lambda settings: None)
        monkeypatch.setitem(sys.modules, "wandb", fake)
        monkeypatch.setattr(module, "_GRACE_SECONDS", 0.0)
        return WandbRun.start(
            WandbConfig(mode=mode), folder=tmp_path, settings={}, name="n", group="g", timeout=timeout
        )

    return start_with


def broken(**_: Any) -> Any:
    raise ConnectionError("no network\nand a long story")


def test_a_start_that_fails_is_one_warning_and_an_inert_run(
    start: Callable[..., WandbRun], caplog: pytest.LogCaptureFixture
) -> None:
    run = start(broken)
    assert run.run_id is None and run.place is None
    assert (
        len(caplog.records) == 1
        and "ConnectionError: no network" in caplog.text
        and "long story" not in caplog.text
    )
    run.log(1, {"x": 1})
    run.summary({"x": 1})
    run.close()
    assert len(caplog.records) == 1


def test_a_list_becomes_numbers_and_a_table_of_tasks_stays_in_the_metrics(
    start: Callable[..., WandbRun],
) -> None:
    fake = FakeRun()
    start(lambda **_: fake).log(7, {"x": 1, "lost": None, "many": [2, 3], "returns": [[4.0], [5.0]]})
    assert fake.logged == [{"env_steps": 7, "x": 1, "many/1": 2, "many/2": 3}]


def test_online_that_fails_is_recorded_offline(
    start: Callable[..., WandbRun], caplog: pytest.LogCaptureFixture
) -> None:
    fake = FakeRun()
    run = start(lambda **options: broken() if options["mode"] == "online" else fake, WandbMode.online)
    assert run.run_id == "fake" and run.place == "/run"
    assert "wandb sync" in caplog.text


def test_a_start_that_hangs_is_given_up_and_closed_if_it_ever_comes(
    start: Callable[..., WandbRun], caplog: pytest.LogCaptureFixture
) -> None:
    let_go, fake = threading.Event(), FakeRun()
    run = start(lambda **_: let_go.wait(30) and fake, timeout=0.05)
    assert run.run_id is None and "no answer in 0.05 s" in caplog.text
    let_go.set()
    assert fake.finished.wait(10)


def test_without_wandb_training_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert WandbRun.start(WandbConfig(), folder=tmp_path, settings={}, name="n", group="g").run_id is None
    assert len(caplog.records) == 1


def test_disabled_does_not_touch_wandb(
    start: Callable[..., WandbRun], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    assert start(broken, WandbMode.disabled).run_id is None
    assert not caplog.records and not list(tmp_path.iterdir())


def test_a_failure_on_the_way_is_one_warning(
    start: Callable[..., WandbRun], caplog: pytest.LogCaptureFixture
) -> None:
    fake = FakeRun()
    run = start(lambda **_: fake)
    with caplog.at_level(logging.WARNING):
        run.log(1, {"x": 1})
        fake.error = BrokenPipeError("the service died")
        for step in range(2, 5):
            run.log(step, {"x": 1})
        run.close()
    assert fake.logged == [{"env_steps": 1, "x": 1}]
    assert len(caplog.records) == 1 and "the service died" in caplog.text
