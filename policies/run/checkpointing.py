"""RunCheckpoints: everything that decides what a run does next, saved so that a resume changes nothing."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from policies.agents.acting import load_acting
from policies.run.config import WhichCheckpoint, holds_a_run
from policies.run.context import LearningParts
from policies.run.progress import Counters, RunProgress, Stage
from utils.checkpoint import Checkpoint, CheckpointError, CheckpointStore, LostSegmentsError
from utils.options import OptionError

# The folder of the best agent, among the checkpoints.
BEST = "best"
# The run stops when so many saves in a row have failed.
MOST_FAILURES = 3

_log = logging.getLogger(__name__)


class RunCheckpoints:
    """Saves and loads one run.

    The buffer is written incrementally: a save writes the trials that came since the last one.
    """

    def __init__(
        self,
        folder: Path,
        parts: LearningParts,
        progress: RunProgress,
        sampling: np.random.Generator,
        *,
        agent_only: bool = False,
        without_damaged: bool = False,
    ) -> None:
        """With `agent_only` nothing is written, and the agent alone is loaded, on any device.

        With `without_damaged` it goes on without the stored trials whose file is damaged.
        """
        self._folder, self._agent_only, self._without_damaged = folder, agent_only, without_damaged
        self._parts, self._progress, self._sampling = parts, progress, sampling
        self._store = CheckpointStore(folder)
        self._best = CheckpointStore(folder / BEST, keep=1)
        # Whether the checkpoints in the folder are those of this run.
        self._is_ours = False
        # The ranges of trials (first, stop) that have been written.
        self._segments: list[tuple[int, int]] = []
        self._saved_at: tuple[str, int, int] | None = None

    def claim(self) -> None:
        """Write checkpoints here from now on; refused where they would push out those of another run."""
        if self._agent_only:
            raise RuntimeError("This learner was made to evaluate, with learns=False.")
        if not self._is_ours and self._store.has_any:
            raise OptionError(holds_a_run(self._folder.parent))
        self._is_ours = True

    def save(self, facts: dict[str, Any], *, last: bool = False) -> None:
        """Write a checkpoint with these facts, unless nothing has happened since the last one.

        A save that fails is a warning, since another one follows; if the `last` one fails, it is an error.
        """
        # 1. A second save of the same moment would push out an older checkpoint for nothing.
        self.claim()
        now, counters, buffer = self._moment(), self._progress.counters, self._parts.buffer
        if now == self._saved_at:
            return
        # 2. The facts are small and become JSON: random streams, counters, and which trials are stored.
        segments = self._cut_segments()
        own_facts = {
            "sampling": self._sampling.bit_generator.state,
            "num_added": buffer.num_added,
            "device": self._device,
            "segments": segments,
            "counters": asdict(counters),
            "curriculum": self._progress.curriculum.state_dict(),
        }
        # 3. The store writes all of it or nothing. Segments that are on the disk are not written again.
        try:
            self._store.save(
                counters.env_steps,
                tensors={
                    "algorithm": self._parts.algorithm.state_dict(),
                    "loss_sums": dict(self._progress.loss_sums),
                    "acting": self._progress.acting_agent,
                    "judged": self._parts.judged.state_dict() if self._parts.averages else {},
                },
                facts=facts | own_facts,
                segments={_name(*segment): partial(buffer.export, *segment) for segment in segments},
            )
        except CheckpointError as error:
            if last or self._store.failures >= MOST_FAILURES:
                raise
            _log.warning("%s Training goes on.", error)
            return
        self._saved_at, self._segments = now, segments

    def keep_best(self, trial_return: float) -> None:
        """Keep the agent, by itself, if its mean return on the test list is the highest so far.

        What was best is a counter of the run, so after a resume the same agents are kept.
        """
        counters = self._progress.counters
        best = -math.inf if counters.best_return is None else counters.best_return
        if not trial_return > best:  # a mean that could not be taken is NaN, which is no improvement
            return
        self.claim()
        kept = replace(counters, best_return=trial_return, record={})
        try:
            self._best.save(
                counters.env_steps,
                tensors={"agent": self._parts.judged.state_dict()},
                facts={"counters": asdict(kept)},
            )
        except CheckpointError as error:
            _log.warning("%s Training goes on.", error)
            return
        counters.best_return = trial_return

    def _moment(self) -> tuple[str, int, int]:
        counters = self._progress.counters
        return counters.stage, counters.env_steps, counters.updates

    @property
    def _device(self) -> str:
        return next(self._parts.agent.parameters()).device.type

    def _cut_segments(self) -> list[tuple[int, int]]:
        """The segments with one more for the new trials, without those that the ring has overwritten.

        They count as written only once they have been: a segment that failed to be written may be overwritten
        in part before the next try.
        """
        # The ring overwrites the oldest trials, perhaps some that were never written.
        oldest, segments = self._parts.buffer.oldest, list(self._segments)
        written = segments[-1][1] if segments else 0
        first = max(written, oldest)
        if first < self._parts.buffer.num_added:
            segments.append((first, self._parts.buffer.num_added))
        return [segment for segment in segments if segment[1] > oldest]

    def load(self, which: WhichCheckpoint = WhichCheckpoint.last) -> dict[str, Any] | None:
        """Restore the newest good checkpoint in place, and return its facts; None where there is none.

        Of an agent alone it may be the best one instead.
        """
        if self._agent_only and which is WhichCheckpoint.best:
            return self._load_best()
        try:
            checkpoint = self._store.latest(
                with_segments=not self._agent_only, without_damaged=self._without_damaged, accept=RunFacts.of
            )
        except LostSegmentsError as error:
            raise CheckpointError(
                f"The stored trials {_trials(error.names)} are damaged in {self._folder}: bring their files "
                "back from a copy, or go on without them by resume_without_damaged=true."
            ) from error
        if checkpoint is None:
            return None
        try:
            self._take(checkpoint, RunFacts.of(checkpoint.facts))
        except CheckpointError:
            raise
        # What does not fit has passed all other checks: other sizes, or a checkpoint made by hand.
        except (LookupError, TypeError, ValueError, RuntimeError) as error:
            raise CheckpointError(
                f"The checkpoint {checkpoint.path} does not fit the options of this run "
                f"({' '.join(str(error).split())[:300]})."
            ) from error
        return checkpoint.facts

    def _take(self, checkpoint: Checkpoint, facts: RunFacts) -> None:
        tensors, progress = checkpoint.tensors, self._progress
        if self._agent_only:
            # What is evaluated is the mean of the weights, where the run takes one.
            load_acting(self._parts.agent, tensors.get("judged") or tensors["algorithm"]["agent"])
            progress.counters = facts.counters
            return

        # Random streams of another kind of device cannot be continued on this one.
        here, there = self._device, facts.device or self._device
        if here != there:
            raise CheckpointError(
                f"This run was on {there}, and what it would have drawn next cannot be drawn on {here}: "
                f"go on where there is {there}."
            )

        # The trials of the buffer, segment by segment; then parameters, optimisers and random streams.
        self._segments = [segment for segment in facts.segments if _name(*segment) not in checkpoint.lost]
        trials = (checkpoint.segments[_name(*segment)] for segment in self._segments)
        self._parts.buffer.restore(trials, facts.num_added)
        if checkpoint.lost:
            self._tell_of(checkpoint.lost)
        self._parts.algorithm.load_state_dict(tensors["algorithm"])
        if self._parts.averages:
            self._parts.judged.load_state_dict(tensors["judged"])
        self._sampling.bit_generator.state = facts.sampling
        progress.counters = facts.counters
        # A checkpoint of before there were curricula has none, and its run draws uniformly.
        if facts.curriculum is not None:
            progress.curriculum.load_state_dict(facts.curriculum)
        progress.loss_sums, progress.acting_agent = tensors["loss_sums"], tensors.get("acting", {})
        self._saved_at, self._is_ours = self._moment(), True

    def _load_best(self) -> dict[str, Any]:
        checkpoint = self._best.latest()
        if checkpoint is None:
            raise CheckpointError(
                f"{self._folder} has no best agent, since the run was not evaluated yet: "
                "evaluation.checkpoint=last takes the newest."
            )
        self._parts.agent.load_state_dict(checkpoint.tensors["agent"])
        self._progress.counters = Counters(**checkpoint.facts["counters"])
        return checkpoint.facts

    def _tell_of(self, lost: tuple[str, ...]) -> None:
        """Say which trials are lost; without any other there is nothing to learn from."""
        if not self._parts.buffer.num_trials:
            raise CheckpointError(
                f"The stored trials {_trials(lost)} are damaged, and there are no others: start a new run."
            )
        _log.warning(
            "The stored trials %s are damaged and left out. What follows is not what it would have been.",
            _trials(lost),
        )


def save_agent_alone(folder: Path, parameters: Mapping[str, Any], env_steps: int) -> None:
    """Write a checkpoint that can be evaluated and no more: it has no optimiser, no replay and no streams."""
    CheckpointStore(folder).save(
        env_steps,
        tensors={"judged": parameters},
        facts={
            "counters": asdict(Counters(env_steps=env_steps)),
            "segments": [],
            "num_added": 0,
            "sampling": np.random.default_rng(0).bit_generator.state,
        },
    )


@dataclass(frozen=True)
class RunFacts:
    """What a run reads from the facts of a checkpoint."""

    counters: Counters
    # The ranges of trials (first, stop) that the replay holds.
    segments: list[tuple[int, int]]
    num_added: int
    # The state of the random stream that draws batches.
    sampling: dict[str, Any]
    device: str | None
    # What the curriculum has learned.
    curriculum: dict[str, Any] | None

    @classmethod
    def of(cls, facts: dict[str, Any]) -> RunFacts:
        """The facts of a checkpoint; ValueError, KeyError or TypeError where nobody could go on with them."""
        for name, kind in _KINDS.items():
            if not isinstance(facts.get(name, kind()), kind):
                raise TypeError(f"{name} is {facts[name]!r}")
        for name, default in asdict(Counters()).items():
            if not isinstance(facts["counters"].get(name, default), _kinds_of(default)):
                raise TypeError(f"counters.{name} is {facts['counters'][name]!r}")
        np.random.default_rng().bit_generator.state = facts["sampling"]
        return cls(
            counters=Counters(**facts["counters"]),
            segments=[(int(first), int(stop)) for first, stop in facts["segments"]],
            num_added=int(facts["num_added"]),
            sampling=facts["sampling"],
            device=facts.get("device"),
            curriculum=facts.get("curriculum"),
        )


# Facts that others read, with their types.
_KINDS = {"metrics_offset": int, "spent": dict, "curriculum": dict, "versions": dict, "counters": dict}


def _kinds_of(default: Any) -> tuple[type, ...]:
    """The types that a counter may have, by its default; JSON writes a stage as text."""
    none = type(None)
    kinds: dict[type, tuple[type, ...]] = {float: (int, float), Stage: (str,), none: (none, int, float)}
    return kinds.get(type(default), (type(default),))


def _name(first: int, stop: int) -> str:
    return f"trials-{first:09d}-{stop:09d}"


def _trials(names: tuple[str, ...]) -> str:
    """The numbers of the trials in these segments, as text."""
    ranges = [name.split("-")[1:] for name in names]
    return ", ".join(f"{int(first)} to {int(stop) - 1}" for first, stop in ranges)
