"""RunCheckpoints of a run: everything that decides what comes next, saved so that going on from one changes
nothing.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from buffers.replay import Replay
from policies.algorithms.base import Algorithm
from policies.run.config import holds_a_run
from policies.run.progress import Counters
from utils.checkpoint import CheckpointError, CheckpointStore
from utils.options import OptionError

MOST_FAILURES = 3
"""Saves that may fail in a row before the run stops."""

_log = logging.getLogger(__name__)


@dataclass
class Restored:
    """What a snapshot gives back besides the algorithm and the replay, which are restored in place."""

    counters: Counters
    loss_sums: dict[str, torch.Tensor]
    facts: dict[str, Any]
    acting: dict[str, Any]
    """The state of an agent that plays a wave while the other learns; empty between such waves."""


class RunCheckpoints:
    """Saves and loads one run. The replay is written incrementally: a save writes the trials that came since
    the last one.
    """

    def __init__(
        self,
        folder: Path,
        *,
        algorithm: Algorithm,
        replay: Replay,
        sampling: np.random.Generator,
        agent_only: bool = False,
    ) -> None:
        """With `agent_only` nothing is written, and the agent alone is loaded: on any device, and without the
        replay.
        """
        self._folder, self._agent_only = folder, agent_only
        self._is_ours = False
        self._store = CheckpointStore(folder)
        self._algorithm = algorithm
        self._replay = replay
        self._sampling = sampling
        self._segments: list[tuple[int, int]] = []
        self.saved_at: tuple[str, int, int] | None = None

    def claim(self) -> None:
        """From now on snapshots are written here: an error where they would push out those of a run that was
        not loaded.
        """
        if self._agent_only:
            raise RuntimeError("This learner was made to evaluate, with learns=False.")
        if not self._is_ours and self._store.has_any:
            raise OptionError(holds_a_run(self._folder.parent))
        self._is_ours = True

    def save(
        self,
        counters: Counters,
        loss_sums: dict[str, torch.Tensor],
        facts: dict[str, Any],
        acting: dict[str, Any],
        *,
        last: bool = False,
    ) -> None:
        """Write a snapshot, unless nothing has happened since the last one. If the `last` one fails, that is
        an error: nobody will try again.
        """
        self.claim()
        now = (counters.stage, counters.env_steps, counters.updates)
        if now == self.saved_at:
            return
        segments = self._cut_segments()
        try:
            self._store.save(
                counters.env_steps,
                tensors={
                    "algorithm": self._algorithm.state_dict(),
                    "loss_sums": dict(loss_sums),
                    "acting": acting,
                },
                facts=facts | self._facts() | {"segments": segments, "counters": counters.state_dict()},
                segments={_name(*segment): partial(self._replay.export, *segment) for segment in segments},
            )
        except CheckpointError as error:
            if last or self._store.failures >= MOST_FAILURES:
                raise
            _log.warning("%s Training goes on; the last good checkpoint is untouched.", error)
            return
        self.saved_at, self._segments = now, segments

    def _facts(self) -> dict[str, Any]:
        return {
            "sampling": self._sampling.bit_generator.state,
            "num_added": self._replay.num_added,
            "device": self._device,
        }

    @property
    def _device(self) -> str:
        return next(self._algorithm.agent.parameters()).device.type

    def _cut_segments(self) -> list[tuple[int, int]]:
        """The segments with one more for the new trials; those that the ring has overwritten are let go.

        Kept only once they have been written: of one that was not, the ring may overwrite a part before the
        next try.
        """
        oldest, segments = self._replay.oldest, list(self._segments)
        first = max(segments[-1][1] if segments else 0, oldest)
        if first < self._replay.num_added:
            segments.append((first, self._replay.num_added))
        return [segment for segment in segments if segment[1] > oldest]

    def load(self) -> Restored | None:
        """Restore the newest good snapshot; None where there is none."""
        checkpoint = self._store.latest(with_segments=not self._agent_only)
        if checkpoint is None:
            return None
        facts = checkpoint.facts
        if self._agent_only:
            self._algorithm.agent.load_state_dict(checkpoint.tensors["algorithm"]["agent"])
            return Restored(Counters.from_state_dict(facts["counters"]), {}, facts, {})
        here, there = self._device, facts.get("device", self._device)
        if here != there:
            raise CheckpointError(
                f"This run was on {there}, and what it would have drawn next cannot be drawn on {here}: go on where there is {there}."
            )
        self._segments = [(first, stop) for first, stop in facts["segments"]]
        self._replay.restore(
            (checkpoint.segments[_name(*segment)] for segment in self._segments), facts["num_added"]
        )
        self._algorithm.load_state_dict(checkpoint.tensors["algorithm"])
        self._sampling.bit_generator.state = facts["sampling"]
        counters = Counters.from_state_dict(facts["counters"])
        self.saved_at = (counters.stage, counters.env_steps, counters.updates)
        self._is_ours = True
        return Restored(
            counters, checkpoint.tensors["loss_sums"], facts, checkpoint.tensors.get("acting", {})
        )


def _name(first: int, stop: int) -> str:
    return f"trials-{first:09d}-{stop:09d}"
