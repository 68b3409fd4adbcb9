"""Transitions: the rows of a batch that train, with the rows whose values follow them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from buffers.base import Batch
from policies.agents.base import Features, select_rows
from policies.algorithms.base import AlgorithmConfig, ReturnHorizon
from policies.returns import successor


@dataclass
class Transitions:
    """M rows that train, and what their targets need; rows are flat numbers into [T * B]."""

    rows: Tensor
    # The rows whose values follow.
    next_rows: Tensor
    # 1 where the value of the next row counts, 0 where the return stops.
    bootstraps: Tensor
    next_reward: Tensor


def transitions_of(batch: Batch, config: AlgorithmConfig) -> Transitions:
    """The transitions of a batch, by the target rule of policies/returns.py."""
    columns = batch.shape[1]
    # Where the value comes from, and whether it counts.
    index, bootstraps = successor(
        batch,
        whole_trial=config.return_horizon is ReturnHorizon.trial,
        timeout_bootstrap=config.timeout_bootstrap,
    )
    # Row t of column b has the flat number t * B + b, so the row after it is B further on.
    next_rows = index * columns + torch.arange(columns, device=index.device)
    # Padding, ended rows and rows of a burn-in are in no transition.
    rows = batch.trains.flatten().nonzero().squeeze(1)
    # The reward of an action stands one row later; a row that trains has one, for its episode goes on.
    return Transitions(
        rows,
        select_rows(next_rows, rows),
        select_rows(bootstraps, rows),
        select_rows(batch.reward, rows + columns),
    )


class HeadOnRows(NamedTuple):
    """A head and the features that it reads at M rows: called with the head's other inputs alone."""

    head: nn.Module
    features: Features

    def __call__(self, *inputs: Tensor) -> Any:
        """The policy of an actor; Q, [N, M] or [N, M, n], of a critic."""
        return self.head(self.features, *inputs)
