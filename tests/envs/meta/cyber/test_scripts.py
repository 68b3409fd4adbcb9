"""The scripts that see the true state, against the scores of the specification."""

from __future__ import annotations

import math

import numpy as np
import pytest

from envs.meta.make_env import make_family
from tests.envs.meta.played import returns_of


@pytest.mark.parametrize(("red", "expected", "error"), [("bline", -12.89, 0.08), ("meander", -14.54, 0.12)])
def test_the_oracle_plays_as_well_as_the_script_of_the_specification(red: str, expected: float, error: float):
    family = make_family("CyberDefence", red=red)
    returns = returns_of(family, family.sample_tasks(np.random.default_rng(0), 1000, "test"), oracle=True)
    assert returns.mean() == pytest.approx(
        expected, abs=3 * math.hypot(error, returns.std() / math.sqrt(1000))
    )


def test_against_the_sleeper_the_oracle_loses_nothing():
    family = make_family("CyberDefence", red="sleep")
    returns = returns_of(family, family.sample_tasks(np.random.default_rng(0), 10, "test"), oracle=True)
    assert (returns == 0).all()
