"""StepSizes: the step sizes of an optimiser, which a run lowers as it goes on."""

from __future__ import annotations

import torch


class StepSizes:
    """The step sizes that an optimiser was made with, times one factor for all of them."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._first = [float(group["lr"]) for group in optimizer.param_groups]

    def scale(self, factor: float) -> None:
        """Set all step sizes to the first ones times this."""
        # The groups are asked for each time: loading a state puts other ones in their place.
        for group, first in zip(self._optimizer.param_groups, self._first, strict=True):
            group["lr"] = first * factor
