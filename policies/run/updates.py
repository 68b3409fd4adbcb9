"""Updater: makes the gradient updates of a run, those that a script asks for and those that are due alike."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch import Tensor

from policies.algorithms.base import add_metrics
from policies.nn.averaging import follow
from policies.run.context import LearningParts, RunContext
from policies.run.nan_guard import NanGuard
from policies.run.progress import RunProgress
from utils.stopwatch import Stopwatch


class Updater:
    """The one path of an update: sample a batch, let the algorithm learn from it, and check its losses."""

    def __init__(
        self, context: RunContext, parts: LearningParts, progress: RunProgress, sampling: np.random.Generator
    ) -> None:
        self._context, self._parts, self._progress = context, parts, progress
        # The stream that draws batches from the buffer.
        self._sampling = sampling
        self._guard = NanGuard(context.run_dir)

    def update(self, watch: Stopwatch) -> dict[str, Tensor]:
        """Make one update; its metrics, still on the device."""
        parts, needs, counters = self._parts, self._context.needs, self._progress.counters

        # 1. Off-policy, a batch is drawn from the buffer; on-policy, it is the whole last wave.
        batch = parts.buffer.sample(needs, self._sampling)
        watch.lap("buffer")

        # 2. The algorithm changes the parameters of the agent.
        parts.algorithm.at(counters.env_steps, self._context.config.train.n_env_steps_total)
        metrics = parts.algorithm.update(batch)

        # 3. On-policy, the normaliser learns from the batch only now, so that the update has read its rows
        #    exactly as the policy that acted did. Off-policy it has done so when the rows were collected
        #    (policies/collection/collector.py).
        if needs.on_policy:
            parts.agent.update_normaliser(batch, self._context.config.algorithm.discount)

        # 4. The agent that is evaluated may be a running mean of the weights.
        if parts.averages:
            follow(parts.judged, parts.agent, 1.0 - self._context.config.evaluation.averaging)

        # 5. Losses are checked one update late, so that no device waits for the check.
        self._guard.watch(counters.updates, batch, metrics)
        watch.lap("update")
        counters.updates += 1
        return metrics

    def make_due(self, watch: Stopwatch, stops: Callable[[], bool]) -> bool:
        """Make the updates that are due; False where `stops()` was true before one of them."""
        # It may stop before every update: a resume makes the others.
        progress, counters = self._progress, self._progress.counters
        while counters.updates_due:
            if stops():
                return False
            add_metrics(progress.loss_sums, self.update(watch))
            counters.updates_in_record += 1
            counters.updates_due -= 1
        self.check_last()
        return True

    def check_last(self) -> None:
        """Check the losses of the last update too, before its parameters act or are saved."""
        self._guard.check_last()
