"""Gymnasium's own robots, beside which ours are stepped."""

from __future__ import annotations

import importlib.util
import math
import sys
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest

from envs.base import TaskFamily
from tests.envs.meta.played import returns_of


def peer_of(monkeypatch: pytest.MonkeyPatch, name: str, **options: Any) -> Any:
    """Gymnasium's environment of that name, whose state can be set."""
    if importlib.util.find_spec("imageio") is None:
        # Gymnasium's MuJoCo environments import it to save videos, which nothing here does.
        monkeypatch.setitem(sys.modules, "imageio", ModuleType("imageio"))
    return gymnasium.make(name, max_episode_steps=1000, **options).unwrapped


def assert_random_returns_are_the_reported_ones(family: TaskFamily, tasks: int = 50) -> None:
    """Uniform actions earn what the family reports, within the errors of both means."""
    returns = returns_of(family, family.sample_tasks(np.random.default_rng(1), tasks, "test"), oracle=False)
    reference = family.spec.reference
    assert reference is not None and reference.oracle is None
    error = returns.std() * math.sqrt(1 / tasks + 1 / reference.tasks)
    assert returns.mean() == pytest.approx(reference.random, abs=4 * error + 0.01 * abs(reference.random))
