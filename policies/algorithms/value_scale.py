"""ValueScale: the units in which a value head predicts, whatever the size of the rewards."""

from __future__ import annotations

from math import sqrt

from torch import Tensor


class ValueScale:
    """Deviations of recent returns from their mean (MAPPO, Yu et al. 2022); an update counts a tenth."""

    # How much of the averages so far each update keeps.
    KEPT = 0.9

    def __init__(self) -> None:
        self.weight, self.mean, self.square = 0.0, 0.0, 1.0

    @property
    def deviation(self) -> float:
        """The standard deviation of returns; 1 before there are any, and never 0."""
        return sqrt(max(self.square - self.mean**2, 1e-8))

    def update(self, returns: Tensor) -> None:
        """Take in the returns [n] of one update."""
        returns = returns.cpu().double()  # not every device has float64
        # Averages that decay, divided by the sum of their weights: the first update sets them, as Adam's
        # bias correction does.
        self.weight = self.KEPT * self.weight + 1.0 - self.KEPT
        part = (1.0 - self.KEPT) / self.weight
        self.mean += part * (float(returns.mean()) - self.mean)
        self.square += part * (float(returns.square().mean()) - self.square)

    def to_returns(self, values: Tensor) -> Tensor:
        """Convert values from these units to those of the rewards."""
        return values * self.deviation + self.mean

    def from_returns(self, returns: Tensor) -> Tensor:
        """Convert returns from the units of the rewards to these."""
        return (returns - self.mean) / self.deviation
