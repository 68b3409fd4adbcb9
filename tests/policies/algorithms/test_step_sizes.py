"""Step sizes are scaled together, and loading an optimiser's state changes nothing of that."""

from __future__ import annotations

import torch
from torch import nn

from policies.algorithms.step_sizes import StepSizes


def test_all_groups_are_scaled_from_what_they_were_at_first() -> None:
    groups = [{"params": [nn.Parameter(torch.zeros(1))], "lr": size} for size in (0.1, 0.01)]
    optimizer = torch.optim.Adam(groups)
    step_sizes = StepSizes(optimizer)
    for factor in (0.5, 0.25, 1.0):
        step_sizes.scale(factor)
        optimizer.load_state_dict(optimizer.state_dict())
        assert [group["lr"] for group in optimizer.param_groups] == [0.1 * factor, 0.01 * factor]
