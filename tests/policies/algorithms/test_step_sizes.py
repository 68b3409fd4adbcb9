"""Step sizes: what the run has left of them, and what the change of the policy makes of them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from policies.algorithms.base import AlgorithmConfig
from policies.algorithms.step_sizes import StepSizes


def optimizer() -> torch.optim.Optimizer:
    return torch.optim.Adam([{"params": [nn.Parameter(torch.zeros(1))], "lr": size} for size in (1e-3, 1e-5)])


def test_all_groups_are_scaled_from_what_they_were_at_first_and_never_exceed_that() -> None:
    adam = optimizer()
    step_sizes = StepSizes(adam)
    paces = list[float]()
    for kl in (0.001, 0.0121, 1.0, 0.0, 0.0):
        step_sizes.follow(kl, 0.01)
        adam.load_state_dict(adam.state_dict())
        paces.append(step_sizes.pace)
        assert [group["lr"] for group in adam.param_groups] == pytest.approx(
            [1e-3 * paces[-1], 1e-5 * paces[-1]]
        )
    assert paces == pytest.approx([1.0, 1 / 1.1, 1 / 1.32, 1 / 1.1, 1.0])


def test_they_fall_in_a_straight_line_whatever_else_scales_them() -> None:
    adam, config = optimizer(), AlgorithmConfig(name="PPO", learning_rate_left=0.2)
    step_sizes = StepSizes(adam)
    step_sizes.follow(1.0, 0.01)
    for env_steps, left in ((0, 1.0), (50, 0.6), (100, 0.2), (120, 0.2)):
        step_sizes.leave(config.step_size_left(env_steps, 100))
        assert adam.param_groups[0]["lr"] == pytest.approx(1e-3 * left / 1.2)
