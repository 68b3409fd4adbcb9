"""The plain game beside the family's: the same scores, so that their speeds can be compared."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from benchmarks.parts.defence.plain_defence import PlainDefence
from envs.meta.cyber import scenario as sc


def played(episodes: int, policy: str) -> tuple[float, float]:
    """Mean return of 100 steps, and its standard error."""
    env, rng, returns = PlainDefence(), np.random.default_rng(1), np.zeros(episodes)
    for episode in range(episodes):
        env.reset(seed=episode)
        for step in range(100):
            action = rng.integers(145) if policy == "random" else 0
            if policy == "server" and step == 0:
                action = sc.action_number(sc.RESTORE, sc.OP_SERVER)
            returns[episode] += env.step(np.int64(action))[1]
    return float(returns.mean()), float(returns.std() / np.sqrt(episodes))


# Of the real simulator, as the specification of the family has them, and their errors.
@pytest.mark.parametrize(
    ("policy", "mean", "error"), [("sleep", -1133.7, 1.4), ("random", -744.9, 11.2), ("server", -280.9, 2.0)]
)
def test_its_returns_are_those_of_the_real_simulator(policy: str, mean: float, error: float):
    found, own = played(60, policy)
    assert found == pytest.approx(mean, abs=3.5 * np.hypot(own, error))


def test_it_is_a_gymnasium_environment():
    check_env(PlainDefence(), skip_render_check=True)
