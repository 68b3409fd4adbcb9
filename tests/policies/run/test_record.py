"""The record of a run: what the first line says, curves from metrics, and W&B read back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from configs.runs import load_run
from envs.meta.toy.point_robot import PointRobot
from policies.learner import Learner
from policies.recording.services import group_of
from policies.run.config import TASKS, plain
from policies.run.record import headline
from tests.runs import metrics_of, tiny_config
from utils.report.folders import find_runs

ROOT = Path(__file__).parents[3]


def test_the_first_line_says_what_will_happen_with_which_slots_workers_and_device_and_where(
    tmp_path: Path,
) -> None:
    with Learner(tiny_config(workers=2), tmp_path) as learner:
        line = headline(learner.context, learner.environments)
    for part in (
        "PointRobot",
        "Memory agent: learns by SAC until 240 env steps (how long that takes is measured, and said below)",
        "3 slots, 2 worker processes",
        "(forkserver)",
        "device cpu",
        str(tmp_path),
    ):
        assert part in line


def test_the_first_line_says_what_a_recorded_run_of_the_same_settings_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("policies.run.record.recorded_minutes", lambda _: 1.52)
    with Learner(tiny_config(), tmp_path) as learner:
        line = headline(learner.context, learner.environments)
    assert "until 240 env steps (which took 1.5 minutes of a core when it was recorded; " in line


def test_settings_are_plain_data() -> None:
    settings = plain(tiny_config())
    assert json.loads(json.dumps(settings)) == settings
    assert settings["agent"]["arch"] == "Memory"


def test_seeds_share_a_group_and_experiments_do_not() -> None:
    group = group_of(tiny_config())
    assert group.startswith("PointRobot-Memory-SAC-")
    assert group_of(tiny_config(seed=1, workers=2, checkpoint_every=7, evaluation={"films": 2})) == group
    assert group_of(tiny_config(env={"radius": 0.3})) != group


def test_a_profile_is_printed_at_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Learner(tiny_config(profile=True), tmp_path) as learner:
        learner.train()
    assert "tottime" in capsys.readouterr().out


def test_a_run_that_learned_nothing_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, train, reason in (
        (
            "pool",
            {
                "n_env_steps_total": 5,
                "num_init_rollouts_pool": 5,
                "num_rollouts_per_iter": 4,
                "updates_per_step": 0.001,
            },
            "num_init_rollouts_pool=5",
        ),
        (
            "steps",
            {
                "n_env_steps_total": 80,
                "num_init_rollouts_pool": 0,
                "num_rollouts_per_iter": 4,
                "updates_per_step": 1e-6,
            },
            "updates_per_step=1e-06",
        ),
        ("learns", {}, ""),
    ):
        folder = tmp_path / name
        folder.mkdir()
        with Learner(tiny_config(train=train), folder) as learner:
            learner.train()
        text = capsys.readouterr().out
        assert ("Nothing was learned: " in text, reason in text) == (bool(reason), True)


def test_a_display_ends_where_the_run_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Learner(tiny_config(), tmp_path) as learner:
        learner.train()
        steps = learner.counters.env_steps
    assert f"{steps:,}/240 env steps" in capsys.readouterr().out.splitlines()[-1]


def test_a_run_says_once_how_long_it_will_take(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As soon as it has a rate; a run that is over before that says nothing."""
    for limit, told in ((0.0, 1), (1e9, 0)):
        monkeypatch.setattr("policies.run.record.SECONDS_TO_TELL", limit)
        with Learner(tiny_config(), tmp_path / str(told)) as learner:
            learner.train()
        lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("time   ")]
        assert len(lines) == told
        assert all(line.endswith(" more, at the rate of the first iterations") for line in lines)


def test_what_is_trained_by_hand_goes_on_by_a_command(tmp_path: Path) -> None:
    run = tmp_path / "by" / "hand"
    with Learner(tiny_config(), run) as learner:
        learner.collect_rollouts_parallel(3, random_actions=True)
        learner.update(2)
        learner.save()
        config = learner.config
    again, folder = load_run(run, mode="resume")
    assert (plain(again), folder) == (plain(config), run)
    with Learner(again, folder) as learner:
        learner.load()
        assert learner.counters.updates == 2 and (run / TASKS).is_file()


def test_one_offline_wandb_run_with_workers_is_read_back(tmp_path: Path) -> None:
    script = f"""
from pathlib import Path
from policies.learner import Learner
from tests.runs import tiny_config
from utils.services.wandb_run import WandbMode
config = tiny_config(workers=2, evaluation={{"films": 1}})
config.wandb.mode, config.wandb.artifact = WandbMode.offline, True
with Learner(config, Path({str(tmp_path)!r})) as learner:
    learner.train()
"""  # in a process of its own: the W&B service lives as long as its process
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    runs = list((tmp_path / "wandb").glob("offline-run-*"))
    assert len(runs) == 1, "one run per process tree"
    command = [
        str(Path(sys.executable).with_name("wandb")),
        "leet",
        "inspect",
        "--summary",
        "--json",
        str(runs[0]),
    ]
    found = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    assert found["summary"]["env_steps"] == metrics_of(tmp_path)[-1]["env_steps"]
    key = "eval/held_out/return_episode_2"
    curve = [line[key] for line in metrics_of(tmp_path) if key in line]
    assert found["summary"][key] == {"max": max(curve), "last": curve[-1]}
    assert found["summary"]["eval/held_out/return_std_episode_2"]["last"] >= 0
    assert found["summary"]["learning_rate"] == 3e-4 and found["summary"]["replay/rows"] > 0
    assert found["summary"]["adaptation"]["_type"] == "image-file"
    assert found["summary"]["film_1"]["_type"] == "video-file"
    command.remove("--summary")
    records = [json.loads(line) for line in subprocess.check_output(command, text=True).splitlines()]
    (artifact,) = (record["artifact"] for record in records if record["type"] == "artifact")
    assert artifact["type"] == "model"
    assert found["config"]["env"]["family"] == "PointRobot" and "torch" in found["config"]["versions"]


def test_a_resumed_run_goes_on_counting_its_seconds_and_tells_of_other_versions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Learner(tiny_config(train={"n_env_steps_total": 100}), tmp_path) as learner:
        learner.watch._started -= 1000.0  # as if it had taken so long
        learner.train()
    with Learner(tiny_config(train={"n_env_steps_total": 240}), tmp_path) as learner:
        learner.load()
        assert not caplog.records
        with patch.object(torch, "__version__", "99.9"):
            learner.load()
        assert f"written with torch {torch.__version__} (now 99.9)" in caplog.text
        learner.train()
    seconds = [
        json.loads(line)["time/seconds"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()
    ]
    assert seconds == sorted(seconds) and 1000 < seconds[0] and seconds[-1] < 2000


def test_a_run_keeps_what_its_options_amounted_to(tmp_path: Path) -> None:
    with Learner(tiny_config(num_slots=None), tmp_path) as learner:
        learner.train()
        parameters = sum(values.numel() for values in learner.agent.parameters())
    used = json.loads((tmp_path / "used.json").read_text())
    assert used["num_slots"] == 4, "num_slots=null settles at num_rollouts_per_iter"
    assert used["device"] == "cpu" and used["num_workers"] == 1 and used["environments"]
    assert (used["backend"], used["encoders"]) == ("serial", "separate")
    assert sum(used["parameters"].values()) == parameters
    assert set(used["source"]) == {"commit", "clean", "unknown"} and used["versions"]["torch"]


def test_a_run_keeps_what_it_used_before_each_resume(tmp_path: Path) -> None:
    def train(total: int, workers: int = 1) -> dict[str, Any]:
        with Learner(tiny_config(workers=workers, train={"n_env_steps_total": total}), tmp_path) as learner:
            if (tmp_path / "checkpoints").exists():
                learner.load()
            learner.train()
        return json.loads((tmp_path / "used.json").read_text())

    assert "before_resumes" not in train(100)
    used = train(160, workers=2)
    (one,) = used["before_resumes"]
    assert used["num_workers"] == 2 and one["environments"].startswith("in process")
    assert set(one) == {"until_env_steps", "backend", "environments", "num_workers"}
    assert (one["until_env_steps"], one["backend"], one["num_workers"]) == (108, "serial", 1)


def test_a_run_keeps_what_its_returns_are_compared_with(tmp_path: Path) -> None:
    with Learner(tiny_config(), tmp_path / "measured") as learner:
        learner.train()
    (run,) = find_runs([tmp_path]).runs
    assert run.levels["oracle, measured"] > run.levels["random, measured"]

    # Those that are recorded with a family stand there from the start.
    config = tiny_config(num_slots=1)
    config.env = PointRobot.Config(num_eval_tasks=3)
    config.train.n_env_steps_total = 100
    with Learner(config, tmp_path / "recorded") as learner:
        learner.train()
    used = json.loads((tmp_path / "recorded/used.json").read_text())
    recorded = PointRobot.references[0]
    assert used["levels"] == {"oracle": recorded.oracle, "random": recorded.random}
