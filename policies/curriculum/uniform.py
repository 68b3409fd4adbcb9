"""Uniform: every task of the list equally often, or a new draw of the family for every trial."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from policies.curriculum.base import Curriculum


class Uniform(Curriculum):
    """Every task is as likely as the environment makes it, whatever came of earlier trials."""

    def draw(self, number: int) -> NDArray[np.float64]:
        return self.tasks.uniform(number)
