"""RolloutBuffer: the trials of one wave, for algorithms that learn from the present policy's rows alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from buffers.base import Batch, Needs
from buffers.replay import Replay
from buffers.trial_storage import Segment


class RolloutBuffer(Replay):
    """A replay without a ring: it starts anew with every wave, and gives all of its trials at once."""

    def reserve(self, n: int) -> None:
        """A wave of at most n trials begins; the one before it is gone."""
        self._forget()
        super().reserve(n)

    def extend(self, segment: Segment) -> None:
        """Hold an exported wave; the one before it is gone."""
        self._forget()
        super().extend(segment)

    def _keep(self, first: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        """Leave the rows of the wave where they are."""
        self._first, self._lengths = first, lengths
        self.num_added += len(lengths)

    def sample(self, needs: Needs, rng: np.random.Generator) -> Batch:
        """[T, B] every trial of the wave, once; nothing is drawn."""
        return self.whole(self.oldest, self.num_added)
