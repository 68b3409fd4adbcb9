"""A copy goes a part of the way to the parameters, and has the buffers at once."""

from __future__ import annotations

import torch
from torch import nn

from policies.nn.averaging import follow


def test_parameters_are_averaged_and_buffers_copied() -> None:
    copy, online = (nn.BatchNorm1d(2) for _ in range(2))
    with torch.no_grad():
        online.weight.fill_(5.0)
        online.running_mean += 8.0  # pyright: ignore[reportOperatorIssue]
    follow(copy, online, 0.25)
    assert copy.weight.tolist() == [2.0, 2.0]
    assert copy.running_mean is not None and copy.running_mean.tolist() == [8.0, 8.0]
