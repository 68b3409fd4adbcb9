"""Averages of weights: a copy of a network that follows another one."""

from __future__ import annotations

import torch
from torch import nn


@torch.no_grad()
def follow(copy: nn.Module, online: nn.Module, part: float) -> None:
    """Move each parameter of a copy this part of the way to that of its online network."""
    # Polyak averaging of parameters; buffers are no averages of anything, and are copied.
    for target, parameter in zip(copy.parameters(), online.parameters(), strict=True):
        target.lerp_(parameter, part)
    for target, buffer in zip(copy.buffers(), online.buffers(), strict=True):
        target.copy_(buffer)
