"""RayPool: the rows of the plain class with an actor killed on the way; sentences where that cannot be."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from configs.cli import read
from configs.compose import Composer, checked
from policies.learner import Learner
from policies.run.config import CollectorConfig
from tests.actors import config_with_actors
from utils.options import OptionError

ROOT = Path(__file__).resolve().parents[4]


def test_a_missing_ray_is_named_with_its_line_before_anything_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    config = replace(config_with_actors(), collector=CollectorConfig("ray", 2))
    with pytest.raises(OptionError, match=r"pip install .*\[ray\]"):
        Learner(config)
    # At the front door the sentence comes before the folder of the run.
    words = ["collector=ray", "num_slots=4", f"hydra.run.dir={tmp_path / 'run'}"]
    with pytest.raises(OptionError, match="collector=ray needs Ray, which is not installed"):
        read(words)
    assert not list(tmp_path.iterdir())
    # Who evaluates needs no actors.
    with Composer() as composer:
        checked(composer.dict_config(composer.parse(words)), learns=False)


@pytest.mark.ray
@pytest.mark.parametrize("what", ["killed", "silent", "small", "crowded", "full", "nodes"])
def test_a_run_with_ray(what: str) -> None:
    """The rows after faults of actors and of nodes, and clusters without room (tests/ray_runs.py)."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.ray_runs", what], cwd=ROOT, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.ray
def test_nothing_stays_of_a_run_that_is_killed() -> None:
    command = [sys.executable, "-m", "tests.ray_runs", "endless"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        lines = iter(run.stdout.readline, "")
        assert any(line == "playing\n" for line in lines)
        started = psutil.Process(run.pid).children(recursive=True)
        assert len(started) >= 4, "a raylet, its store of names, and two actors"
        run.kill()
    # Ray's agents look after their node now and then, and end themselves after a minute.
    _, alive = psutil.wait_procs(started, timeout=200)
    assert not [process.cmdline() for process in alive]
