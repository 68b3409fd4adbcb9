"""The training loop, stage by stage: collect, update, evaluate, and a line of metrics, from wherever the
counters stand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from policies.collection.wave import WaveInterrupted, WaveResult
from policies.run.config import Overlap
from policies.run.overlap import SideBySide
from policies.run.progress import Stage, by_episode
from policies.run.setup import wave_of
from utils.stopwatch import Stopwatch

if TYPE_CHECKING:
    from policies.learner import Learner


class Training:
    """Runs a learner until its env steps are taken or it is asked to stop; every stage can be left and
    entered again by a resume.
    """

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self._config = learner.config
        overlaps = self._config.learner.overlap is Overlap.bounded
        self._side_by_side = SideBySide(learner, self._update_once) if overlaps else None

    def run(self) -> None:
        """Go from stage to stage."""
        stages = {
            Stage.random_pool: self._fill_pool,
            Stage.collect: self._collect,
            Stage.update: self._update,
            Stage.evaluate: self._conclude,
        }
        counters = self._learner.counters
        while self._learner.stop_signal is None:
            if counters.stage == Stage.collect and counters.env_steps >= self._config.train.n_env_steps_total:
                return
            try:
                stages[counters.stage]()
            except WaveInterrupted:
                return

    def _fill_pool(self) -> None:
        learner, num = self._learner, self._config.train.num_init_rollouts_pool
        if learner.needs.on_policy and learner.agent.normaliser is None:
            num = 0  # nobody would learn anything from it
        if num:
            self._note("pool", learner.collect(num, True, learner.train_env_parallel))
        if learner.needs.on_policy:
            learner.counters.stage = Stage.evaluate
        else:
            self._earn_updates(learner.counters.env_steps)

    def _collect(self) -> None:
        learner, counters = self._learner, self._learner.counters
        if self._side_by_side is not None:
            result = self._side_by_side.collect()
        else:
            most, budget = wave_of(self._config, learner.family.config)
            result = learner.collect(most, False, learner.train_env_parallel, budget)
        counters.iteration += 1
        self._note("train", result)
        self._earn_updates(result.env_steps)
        if self._side_by_side is None:
            return
        if counters.env_steps < self._config.train.n_env_steps_total:
            counters.stage = Stage.evaluate  # they are made beside the next wave
        else:
            self._side_by_side.keep_agent()  # who would play the next wave, should the run be prolonged

    def _note(self, prefix: str, result: WaveResult) -> None:
        """Put a wave into the line of metrics."""
        record, whole = self._learner.counters.record, ~result.dropped
        if not whole.all():
            record[f"{prefix}/dropped_trials"] = int(result.dropped.sum())
        if not whole.any():
            return
        record |= by_episode(f"{prefix}/return", result.returns[whole].mean(0))
        record[f"{prefix}/trial_steps"] = float(result.lengths[whole].sum(1).mean())
        if self._learner.family.spec.success:
            record |= by_episode(f"{prefix}/success", result.successes[whole].mean(0))

    def _earn_updates(self, env_steps: int) -> None:
        counters = self._learner.counters
        counters.stage = Stage.update
        if self._learner.needs.on_policy:
            counters.updates_due = 1
            return
        counters.update_credit += env_steps * self._config.train.updates_per_step
        counters.updates_due = int(counters.update_credit)
        counters.update_credit -= counters.updates_due

    def _update(self) -> None:
        counters = self._learner.counters
        while counters.updates_due:
            if self._learner.tick():
                return
            self._update_once()
        self._learner.guard.settle()
        counters.stage = Stage.evaluate

    def _update_once(self, watch: Stopwatch | None = None) -> None:
        counters, sums = self._learner.counters, self._learner.loss_sums
        for name, value in self._learner.update_once(watch).items():
            sums[name] = sums.get(name, torch.zeros_like(value)) + value
        counters.updates_in_record += 1
        counters.updates_due -= 1

    def _conclude(self) -> None:
        """Evaluate if it is time, write the iteration's line, and save if it is time."""
        learner, counters = self._learner, self._learner.counters
        if counters.env_steps >= min(counters.next_evaluation, self._config.train.n_env_steps_total):
            counters.record |= learner.evaluate()
            counters.next_evaluation = _after(counters.env_steps, self._config.evaluation.every)
        losses = {
            f"loss/{name}": float(value) / counters.updates_in_record
            for name, value in learner.loss_sums.items()
        }
        progress = {
            "iteration": counters.iteration,
            "updates": counters.updates,
            "trials": counters.trials + counters.warmup_trials,
        }
        if learner.record is not None:
            learner.record.line(learner, {**progress, **counters.record, **losses})
        learner.loss_sums.clear()
        counters.record = {}
        counters.updates_in_record = 0
        counters.stage = Stage.collect
        if counters.env_steps >= counters.next_checkpoint:
            counters.next_checkpoint = _after(counters.env_steps, self._config.checkpoint_every)
            learner.save()


def _after(env_steps: int, every: int) -> int:
    """The next multiple of `every`."""
    return (env_steps // every + 1) * every
