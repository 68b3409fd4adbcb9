"""The scripts that see the true state, against the scores of the specification."""

from __future__ import annotations

import math

import numpy as np
import pytest

from envs.base import Reference
from envs.meta.cyber.cyber_defence import CyberDefence
from envs.meta.make_env import make_family, make_parallel_env
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


@pytest.mark.parametrize("reference", CyberDefence.references, ids=lambda one: str(one.options))
def test_the_scores_that_the_family_reports_are_those_that_are_measured(reference: Reference):
    family = make_family(CyberDefence.Config(**reference.options))
    tasks = family.sample_tasks(np.random.default_rng(1), 600, "test")
    for oracle, reported in ((True, reference.oracle), (False, reference.random)):
        returns = returns_of(family, tasks, oracle=oracle, seed=1)
        assert returns.mean() == pytest.approx(reported, abs=4 * returns.std() / math.sqrt(len(tasks)))


def test_env_oracle_tells_the_agent_all_numbers_of_a_hidden_task():
    with make_parallel_env("CyberDefence", None, 1, 0, oracle=True, num_envs=3, variant="hidden") as manager:
        rows = manager.reset()
        assert manager.layout.obs_space.shape == (52 + 29 + 1,)
        assert isinstance(rows.obs, np.ndarray) and (rows.obs[:, 52:81] == rows.task.astype(np.float32)).all()
