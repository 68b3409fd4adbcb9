"""Learning with a curriculum: each reaches more than `uniform` does for as many env steps."""

from __future__ import annotations

import pytest

from benchmarks.curricula import CASES, BesideUniform
from configs.compose import load
from policies.curriculum import CURRICULA
from policies.learner import Learner
from utils.statistics import iqm_interval

SEEDS = (0, 1, 2)
QUIET = ["wandb.mode=disabled", "backend=serial", "evaluation.every=1000000000"]


def score(case: BesideUniform, curriculum: str, seed: int) -> float:
    words = [word for word in case.words if not word.startswith("evaluation.every=")]
    with Learner(load([*words, *QUIET, f"curriculum={curriculum}", f"seed={seed}"])) as learner:
        learner.train()
        return learner.evaluate()[case.metric]


def test_every_curriculum_but_uniform_has_a_case() -> None:
    assert set(CASES) == set(CURRICULA) - {"uniform"}


@pytest.mark.learning
@pytest.mark.long_learning
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", CASES)
def test_a_curriculum_beats_uniform_by_more_than_the_interval_of_the_seeds(name: str) -> None:
    chosen, uniform = (
        iqm_interval([score(CASES[name], curriculum, seed) for seed in SEEDS])
        for curriculum in (name, "uniform")
    )
    assert chosen.low is not None and uniform.high is not None
    assert chosen.low > uniform.high, f"{chosen} beside {uniform}"
