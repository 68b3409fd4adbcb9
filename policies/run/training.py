"""The training loop: collect, update, evaluate and write a line of metrics, stage by stage."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Protocol

from numpy.typing import NDArray

from policies.collection.collectors import Collectors
from policies.collection.wave import WaveInterrupted, WaveResult
from policies.run.config import Overlap
from policies.run.context import LearningParts, RunContext
from policies.run.overlap import OverlappedCollector
from policies.run.progress import RunProgress, Stage, by_episode, by_part, played_text, tasks_played
from policies.run.sizes import pool_trials
from policies.run.updates import Updater
from utils.stopwatch import Stopwatch


class TrainingActions(Protocol):
    """The actions that the loop puts into an order; the Learner offers them."""

    # Collect a wave in the training environment, and account for it.
    def collect_wave(self, most: int, budget: int | None = None, *, random: bool = False) -> WaveResult: ...

    # The metrics of an evaluation.
    def evaluate(self) -> dict[str, Any]: ...

    # Keep the agent if this evaluation is the best so far.
    def keep_best(self, metrics: dict[str, Any]) -> None: ...

    # Write a line of metrics.
    def write_line(self, metrics: dict[str, Any]) -> None: ...

    # Write a checkpoint.
    def save(self) -> None: ...

    # Refresh the display; returns whether to stop.
    def tick(self, wave: WaveResult | None = None) -> bool: ...

    # The signal that ends training, if one came.
    @property
    def stop_signal(self) -> int | None: ...


class TrainingLoop:
    """Goes from stage to stage; each can be left when the run is stopped, and entered again by a resume."""

    def __init__(
        self,
        actions: TrainingActions,
        context: RunContext,
        parts: LearningParts,
        progress: RunProgress,
        collectors: Collectors,
        updater: Updater,
        watch: Stopwatch,
    ) -> None:
        self._actions, self._context, self._parts, self._progress = actions, context, parts, progress
        self._config, self._needs = context.config, context.needs
        self._updater, self._watch = updater, watch

        # Waves and updates take turns, unless the config asks for overlap.
        self._overlapped = None
        if self._config.learner.overlap is Overlap.bounded:
            self._overlapped = OverlappedCollector(
                context,
                parts,
                progress,
                collectors=collectors,
                updater=updater,
                watch=watch,
                tick=actions.tick,
            )

    def run(self) -> None:
        """Train until the env steps are taken, or the run is asked to stop."""
        # Each stage ends by setting the next one, so a checkpoint knows where to go on.
        stages = {
            Stage.random_pool: self._fill_pool,
            Stage.collect: self._collect,
            Stage.update: self._update,
            Stage.evaluate: self._conclude,
        }
        counters = self._progress.counters
        with suppress(WaveInterrupted):  # a resume plays the wave again, from its first trial
            while self._actions.stop_signal is None:
                if counters.stage == Stage.collect and self._is_over:
                    return
                stages[counters.stage]()

    @property
    def _is_over(self) -> bool:
        return self._progress.counters.env_steps >= self._config.train.n_env_steps_total

    def _fill_pool(self) -> None:
        """Collect the trials of random actions."""
        counters, num_trials = self._progress.counters, pool_trials(self._config)
        if num_trials:
            self._add_to_line("pool", self._actions.collect_wave(num_trials, random=True))
        if self._needs.on_policy:
            counters.stage = Stage.evaluate
        else:
            self._earn_updates(counters.env_steps)

    def _collect(self) -> None:
        """Collect a wave, which earns updates."""
        counters, sizes = self._progress.counters, self._context.sizes
        collect = self._actions.collect_wave if self._overlapped is None else self._overlapped.collect
        result = collect(sizes.wave_trials, sizes.wave_env_steps)
        counters.iteration += 1
        self._add_to_line("train", result)
        counters.record |= tasks_played(self._progress.curriculum, result.tasks)
        self._progress.played = played_text(counters.record)
        self._earn_updates(result.env_steps)
        if self._overlapped is None:
            return

        # With overlap the updates are made beside the next wave. The last wave has none: its updates follow,
        # and the agent of before them is saved, since it plays the next wave should the run be prolonged.
        if self._is_over:
            self._overlapped.save_acting_agent()
        else:
            counters.stage = Stage.evaluate

    def _add_to_line(self, prefix: str, result: WaveResult) -> None:
        """Add the means over a wave to the line of metrics, without trials that were given up."""
        # Trials that were given up are counted, and no mean is taken over their parts.
        line, whole = self._progress.counters.record, ~result.dropped
        if not whole.all():
            line[f"{prefix}/dropped_trials"] = int(result.dropped.sum())
        if not whole.any():
            return
        spec = self._context.family.spec
        played: dict[str, NDArray[Any]] = {"return": result.returns[whole]}
        if spec.success:
            played["success"] = result.successes[whole]
        line[f"{prefix}/trial_steps"] = float(result.lengths[whole].sum(1).mean())
        for what, values in played.items():
            line |= by_episode(f"{prefix}/{what}", values.mean(0))
            line |= by_part(f"{prefix}/{what}", values, result.tasks[whole], spec)

    def _earn_updates(self, env_steps: int) -> None:
        """On-policy a wave earns one update; off-policy each env step earns a part of one."""
        counters = self._progress.counters
        counters.stage = Stage.update
        if self._needs.on_policy:
            counters.updates_due = 1
            return
        # The fraction is carried over: in the long run there are exactly so many per env step.
        counters.update_credit += env_steps * self._context.sizes.updates_per_step
        counters.updates_due = int(counters.update_credit)
        counters.update_credit -= counters.updates_due

    def _update(self) -> None:
        """Make the updates that are due."""
        if self._updater.make_due(self._watch, self._actions.tick):
            self._progress.counters.stage = Stage.evaluate

    def _conclude(self) -> None:
        """Evaluate if it is time, write the iteration's line, and save if it is time."""
        progress, counters = self._progress, self._progress.counters
        # There is always an evaluation at the end.
        if counters.env_steps >= counters.next_evaluation or self._is_over:
            evaluated = self._actions.evaluate()
            self._actions.keep_best(evaluated)
            counters.record |= evaluated
            counters.next_evaluation = _next_multiple(counters.env_steps, self._config.evaluation.every)

        # One line: how far the run is, the waves and evaluations of this iteration, and its mean losses.
        counts = {
            "iteration": counters.iteration,
            "updates": counters.updates,
            "trials": counters.trials + counters.warmup_trials,
            "learning_rate": self._parts.algorithm.step_sizes[0].current,
        }
        if not self._needs.on_policy:
            counts["replay/rows"] = self._parts.buffer.num_rows
        losses = {
            f"loss/{name}": float(value) / counters.updates_in_record
            for name, value in progress.loss_sums.items()
        }
        self._actions.write_line({**counts, **counters.record, **losses})

        # The next iteration begins with an empty line; only now may a checkpoint be written.
        progress.loss_sums.clear()
        counters.record, counters.updates_in_record = {}, 0
        counters.stage = Stage.collect
        if counters.env_steps >= counters.next_checkpoint:
            counters.next_checkpoint = _next_multiple(counters.env_steps, self._config.checkpoint_every)
            self._actions.save()


def _next_multiple(env_steps: int, every: int) -> int:
    """The next multiple of `every` beyond `env_steps`."""
    return (env_steps // every + 1) * every
