"""RayPool: the rows of the plain class with an actor killed on the way; sentences where that cannot be."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from policies.learner import Learner
from policies.run.config import CollectorConfig
from tests.actors import config_with_actors
from utils.options import OptionError

ROOT = Path(__file__).resolve().parents[4]


def test_a_missing_ray_is_named_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    config = replace(config_with_actors(), collector=CollectorConfig("ray", 2))
    with pytest.raises(OptionError, match=r"pip install .*\[ray\]"):
        Learner(config)


@pytest.mark.ray
@pytest.mark.parametrize("what", ["killed", "small"])
def test_a_run_with_ray(what: str) -> None:
    """The rows with a killed actor, and a cluster with too few CPUs (tests/ray_runs.py)."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.ray_runs", what], cwd=ROOT, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr[-3000:]
