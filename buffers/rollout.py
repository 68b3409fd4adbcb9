"""RolloutBuffer: the trials of one wave, for algorithms that learn from the present policy's rows alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from buffers.base import Batch, Needs
from buffers.replay import Replay


class RolloutBuffer(Replay):
    """A replay that starts anew with every wave, and gives all of its trials at once."""

    # The number of the wave's first trial.
    _first = 0

    @property
    def oldest(self) -> int:
        """The number of the wave's first trial."""
        return self._first

    def reserve(self, n: int) -> None:
        """A wave of at most n trials begins; the one before it is gone."""
        # Trials are numbered on from wave to wave, and old ones are forgotten, used places or not.
        self._first = self.num_added
        self._lengths[:] = 0
        self._transitions[:] = 0
        super().reserve(n)

    def sample(self, needs: Needs, rng: np.random.Generator) -> Batch:
        """[T, B] every trial of the wave, once; nothing is drawn."""
        return self.whole(self.oldest, self.num_added)

    def restore(self, segments: Iterable[Mapping[str, NDArray[Any]]], num_added: int = 0) -> None:
        """Put the exported wave back."""
        waves = list(segments)  # one at most
        super().restore(waves, num_added)
        self._first = int(waves[0]["first"][0]) if waves else num_added
