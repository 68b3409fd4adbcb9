"""The machine's limit of a run, and the share of it that a run reaches."""

from __future__ import annotations

import pytest
from torch import nn

from benchmarks.parts.learning import share_of_limit
from benchmarks.parts.learning.share_of_limit import Limit, agent_of, flops_of_step, limit_of, weights_of
from configs.compose import load

WORDS = ["env=CheetahDir", "memory=LSTM", "memory.hidden_size=8"]


def test_a_matrix_counts_once_however_often_it_is_met() -> None:
    layer = nn.Linear(3, 4)
    assert weights_of([layer, nn.Sequential(layer)]) == 12


def test_learning_takes_three_passes_in_every_epoch_and_one_before() -> None:
    agent = agent_of(load(WORDS))
    acting, once = flops_of_step(agent, 0)
    _, thrice = flops_of_step(agent, 3)
    assert acting == 2 * weights_of([agent.actor]) and once == 2 * weights_of([agent])
    assert thrice == 10 * once


def test_the_parts_of_the_limit_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_of_limit, "gemm_peak", lambda threads: 100.0)
    monkeypatch.setattr(share_of_limit, "available_cores", lambda: 2)
    monkeypatch.setattr(share_of_limit, "env_seconds", lambda *_: (50e-6, 1.0))
    monkeypatch.setattr(share_of_limit, "visited_states", lambda *_: None)
    config = load([*WORDS, "algorithm.epochs=2"])
    limit = limit_of(config)
    assert limit is not None and limit.env_us == pytest.approx(25.0)
    acting, updating = flops_of_step(agent_of(config), 2)
    assert limit.act_us == pytest.approx(acting / 100e9 * 1e6)
    assert limit.update_us == pytest.approx(updating / 100e9 * 1e6)


def test_a_share_is_said_with_what_it_consists_of() -> None:
    limit = Limit(env_us=30.0, act_us=5.0, update_us=15.0, cores=2, gflops=120.0)
    assert limit.env_steps_per_s == pytest.approx(20_000)
    assert limit.text(15_000).startswith("0.75 of the machine's limit: 15,000 of 20,000 env-steps/s")


@pytest.mark.parametrize("words", [["env=GridNavi"], ["env=AntDir", "algorithm=SAC"]], ids=" ".join)
def test_where_no_limit_is_known_there_is_none(words: list[str]) -> None:
    assert limit_of(load(words)) is None
