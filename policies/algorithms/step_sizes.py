"""StepSizes: the step sizes of an optimiser, as a run and the change of its policy scale them."""

from __future__ import annotations

from math import sqrt

import torch


class StepSizes:
    """The step sizes that an optimiser was made with, times two factors for all of them."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._first = [float(group["lr"]) for group in optimizer.param_groups]
        # What the run has left of them, and what the change of the policy makes of them.
        self._left, self.pace = 1.0, 1.0

    @property
    def current(self) -> float:
        """The step size of the first group of parameters, as it is now."""
        return float(self._optimizer.param_groups[0]["lr"])

    def leave(self, left: float) -> None:
        """From now on this part of the first step sizes is left."""
        self._left = left
        self._apply()

    def follow(self, kl: float, desired_kl: float) -> None:
        """Scale all step sizes by sqrt(desired_kl / kl); the pace stays at or below 1."""
        # The KL grows with the square of a step, hence the root. One update changes the pace by a fifth at
        # most.
        change = min(max(sqrt(desired_kl / max(kl, 1e-12)), 1 / 1.2), 1.2)
        self.pace = min(1.0, self.pace * change)
        self._apply()

    def _apply(self) -> None:
        # The groups are asked for each time: loading a state puts other ones in their place.
        for group, first in zip(self._optimizer.param_groups, self._first, strict=True):
            group["lr"] = first * self._left * self.pace
