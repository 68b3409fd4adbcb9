"""Rollouts of different lengths stand side by side, time first, and nothing is lost."""

from __future__ import annotations

import pytest
import torch

from buffers.rollout_tensors import pad
from envs.remote.rollouts import ParallelRolloutCollector
from tests.envs.remote.rollouts.clients import Plain, column
from utils.options import OptionError


def test_rollouts_become_tensors() -> None:
    with ParallelRolloutCollector() as collector:
        clients = [Plain(3), Plain(0), Plain(9)]
        rollouts, _ = collector.collect_with_stats(clients, column, max_steps=4, seeds=[5, 6, 7])
    padded = pad(rollouts, lambda obs: obs["numbers"], lambda action: action["column"])
    assert padded.observations.shape == (4, 3, 4) and padded.observations.dtype == torch.float32
    assert padded.observations[2, 0].tolist() == [5, 0, 2, 3] and not padded.observations[3, 0].any()
    assert padded.actions.T.tolist() == [[1, 2, 3, 0], [0, 0, 0, 0], [1, 2, 3, 0]]
    assert padded.rewards.T.tolist() == [[1, 3, 6, 0], [0, 0, 0, 0], [1, 3, 6, 6]]
    assert padded.valid.sum(0).tolist() == [3, 0, 4] and padded.valid[:3, 0].all()
    assert padded.dones.sum(0).tolist() == [1, 0, 0] and padded.terminated.tolist() == [True, True, False]
    assert padded.final_observations.tolist() == [[5, 0, 3, 6], [6, 0, 0, 0], [7, 0, 4, 6]]


def test_nothing_to_pad_is_a_sentence() -> None:
    with pytest.raises(OptionError, match="a rollout with one step at least"):
        pad([])
