"""The Learner: one run, with its environments, its agent and its buffer, from the first trial to the last."""

from __future__ import annotations

import logging
import math
from dataclasses import MISSING
from pathlib import Path
from typing import Any, Self

import torch

from envs.base import TaskFamily
from envs.meta.make_env import make_family
from envs.parallel_env_manager import ParallelEnvManager
from policies.algorithms.base import add_metrics
from policies.collection.collector import account_for
from policies.collection.collectors import Collectors
from policies.collection.remote import pool_of
from policies.collection.wave import WaveResult
from policies.evaluation import evaluate_agent
from policies.evaluation.levels import levels_of
from policies.evaluation.outcome import assess
from policies.evaluation.table import curves_of
from policies.run.checkpointing import RunCheckpoints
from policies.run.config import CHECKPOINTS, RECORD, Config, recordable
from policies.run.context import LearningParts, RunContext, RunEnvironments, RunHost
from policies.run.film import film
from policies.run.hardware import pick_backend, prepare_torch
from policies.run.progress import Counters
from policies.run.record import RunRecord, changes_since, save_settings
from policies.run.sizes import check_family
from policies.run.training import TrainingLoop
from policies.run.updates import Updater
from utils.checkpoint import CheckpointError
from utils.seeding import Phase, generator
from utils.stop_signal import StopSignal
from utils.stopwatch import Stopwatch

_log = logging.getLogger(__name__)


class Learner:
    """One run: `Learner(config, run_dir).train()`.

    Without a `run_dir` nothing is written. What a run does next is all in `counters`, so it can stop before
    every stage and every update, and `load()` goes on from there bit for bit. With `learns=False` the Learner
    only evaluates: it has no room for trials, and loads the agent alone.
    """

    def __init__(
        self,
        config: Config,
        run_dir: Path | None = None,
        *,
        learns: bool = True,
        family: TaskFamily | None = None,
        host: RunHost | None = None,
    ) -> None:
        """`family` is one that is checked already; by default it follows from the config."""
        family = family or check_family(config, learns=learns)
        self.learns, self.watch, self._host = learns, Stopwatch(), host or RunHost()
        self._use(RunContext.of(config, family, prepare_torch(config), run_dir, learns=learns))

        # What learns: the agent, its algorithm and the buffer.
        self.parts = LearningParts.build(self.context, learns=learns)
        self.agent, self.algorithm, self.buffer = self.parts.agent, self.parts.algorithm, self.parts.buffer

        # How far it is, and what is learned from, which may depend on how fast the agent acts.
        self.progress = self.context.before_the_first_trial()
        env = self.config.env
        self.backend = pick_backend(self.config, family, self.agent, self.device, self._host.backends)
        self.actors = pool_of(self.config) if learns else None  # their actors are started when needed
        self.environments = RunEnvironments(self.context, self.backend.backend, 1)  # none of them is made yet
        regime = env.max_rollouts_per_task, env.num_train_tasks, env.num_eval_tasks
        self.init_env("meta", env.family, *regime, num_parallel_workers=self.backend.num_workers)

        # What learns next, and what is left behind.
        self._sampling = generator(self.config.seed, Phase.UPDATE, 0)
        self._updater = Updater(self.context, self.parts, self.progress, self._sampling)
        self._checkpoints = None
        if run_dir is not None:
            what = run_dir / CHECKPOINTS, self.parts, self.progress, self._sampling
            damaged = self.config.resume_without_damaged
            self._checkpoints = RunCheckpoints(*what, agent_only=not learns, without_damaged=damaged)
        self._record: RunRecord | None = None
        self._resumed: dict[str, Any] = {}
        self._stop = StopSignal()

    # -- what it owns ----------------------------------------------------------------------------------------

    def init_env(
        self,
        env_type: str,
        env_name: str,
        max_rollouts_per_task: int,
        num_train_tasks: int | None,
        num_eval_tasks: int,
        num_parallel_workers: int = 4,
        **family_options: Any,
    ) -> None:
        """Make the environments to train and to evaluate in.

        The family and its task lists are made again only where a script asks for other ones than the run's.
        """
        if env_type != "meta":
            raise ValueError(f"env_type={env_type!r} is not known; there is only 'meta'.")
        self.close()

        # Compared as options, since to build the family only for that could start a user's environment.
        asked = family_options | {
            "family": env_name,
            "max_rollouts_per_task": max_rollouts_per_task,
            "num_train_tasks": num_train_tasks,
            "num_eval_tasks": num_eval_tasks,
        }
        present = vars(self.config.env)
        if any(present.get(name, MISSING) != value for name, value in asked.items()):
            options = asked if env_name != present["family"] else present | asked
            family = make_family(env_name, **{key: options[key] for key in options if key != "family"})
            self._use(RunContext.of(self.config, family, self.device, self.run_dir))
            self.progress.curriculum = self.context.make_curriculum()
        self.environments = RunEnvironments(self.context, self.backend.backend, num_parallel_workers)
        self.collectors = Collectors(self.context, self.progress, self.environments, self.actors, self.watch)

    def _use(self, context: RunContext) -> None:
        """Take the facts of the run, and publish those that scripts ask for."""
        self.context = context
        self.config, self.family, self.tasks = context.config, context.family, context.tasks
        self.device, self.run_dir = context.device, context.run_dir
        self.train_tasks, self.eval_tasks = context.tasks.train, context.tasks.evaluation[context.tasks.test]

    @property
    def train_env(self) -> ParallelEnvManager:
        """The sequential environment: the same slots, in this process."""
        return self.environments.train_env

    @property
    def train_env_parallel(self) -> ParallelEnvManager | None:
        """The parallel environment; None where the run has one worker only."""
        return self.environments.train_env_parallel

    @property
    def eval_env(self) -> ParallelEnvManager:
        """The environment of evaluation, with slots of its own."""
        return self.environments.eval_env

    @property
    def counters(self) -> Counters:
        """How far the run is."""
        return self.progress.counters

    @property
    def stop_signal(self) -> int | None:
        """The signal that ended training, if one did."""
        return self._stop.received

    # -- the three verbs -------------------------------------------------------------------------------------

    def collect_rollouts_parallel(
        self, num_rollouts: int, random_actions: bool = False, parallel_env: ParallelEnvManager | None = None
    ) -> int:
        """Collect `num_rollouts` trials into the buffer; returns the env steps taken.

        Without a `parallel_env` they are collected sequentially, through the same code.
        """
        env = self.train_env if parallel_env is None else parallel_env
        return self.collect_wave(num_rollouts, env=env, random=random_actions).env_steps

    def collect_wave(
        self,
        most: int,
        budget: int | None = None,
        *,
        env: ParallelEnvManager | None = None,
        random: bool = False,
    ) -> WaveResult:
        """Collect at most so many trials, and account for them.

        None is started once `budget` env steps are taken. By default they are collected as training does.
        """
        first, parts = self.buffer.num_added, self.parts
        collector = self.collectors.make(parts.agent, parts.buffer, self.tick, env=env, random=random)
        result = collector.collect(most, budget)
        account_for(result, self.context, parts, self.progress, first=first, warmup=random)
        return result

    def update(self, num_updates: int = 1) -> dict[str, float]:
        """Make that many gradient updates; their mean metrics."""
        sums: dict[str, torch.Tensor] = {}
        for _ in range(num_updates):
            add_metrics(sums, self._updater.update(self.watch))
        self._updater.check_last()
        return {name: float(value) / num_updates for name, value in sums.items()}

    def evaluate(self) -> dict[str, Any]:
        """Return (and success) by episode index on every task list: the means, and those of every task."""
        # The display may be refreshed, and the run stopped; the env steps are not those of the run.
        metrics = evaluate_agent(
            self.eval_env, self.parts.judged, self.tasks, self.config, self.device, lambda _: self.tick()
        )
        self.watch.lap("evaluate")
        return metrics

    def report(self) -> str:
        """Evaluate, write what was found into the run folder, and return a table of it."""
        return assess(self).table()

    def film(self) -> list[Path]:
        """Draw the films that the config asks for; the files."""
        return film(self.context, self.parts.judged, self.backend.backend, self.tick)

    # -- training --------------------------------------------------------------------------------------------

    def train(self) -> float:
        """Go on until `train.n_env_steps_total`, or a signal.

        Returns the return in the last episode on the test list, at the last evaluation.
        """
        if self._checkpoints is not None:
            self._checkpoints.claim()
        # Everything is recorded from here on; whatever ends training, the record is closed.
        shown = self.context, self.progress, self.environments, self.watch
        record = RunRecord(*shown, self._resumed, self._host)
        with self._stop, record:
            self._record = record
            record.open(self.agent, self.backend.reason)
            self.training_loop().run()
            self.save(last=True)
            record.finish(levels_of(self), stopped=self.stop_signal is not None)
            if self.run_dir is not None:
                record.show_films(self.film())  # last, since it may take a while
        return record.final_return

    def training_loop(self) -> TrainingLoop:
        """The loop that `train` runs, without the display and the files of a run."""
        collectors, updater = self.collectors, self._updater
        return TrainingLoop(self, self.context, self.parts, self.progress, collectors, updater, self.watch)

    def tick(self, wave: WaveResult | None = None) -> bool:
        """Refresh the display, once a round and once an update; returns whether to stop."""
        if self._record is not None:
            self._record.show(wave.env_steps if wave is not None else 0)
        return self.stop_signal is not None

    def keep_best(self, metrics: dict[str, Any]) -> None:
        """Keep the agent if this evaluation is the best so far, by whole trials of the test list."""
        if self._checkpoints is not None:
            self._checkpoints.keep_best(math.fsum(curves_of(metrics)[self.tasks.test]))

    def write_line(self, metrics: dict[str, Any]) -> None:
        """Write a line of metrics, where the run has a record."""
        if self._record is not None:
            self._record.write_line(metrics)

    # -- to and from the disk --------------------------------------------------------------------------------

    def save(self, *, last: bool = False) -> None:
        """Write a checkpoint into the run folder, unless the last update has gone wrong."""
        self._updater.check_last()
        if self._checkpoints is None or self.run_dir is None:
            return
        if not (self.run_dir / RECORD).exists():  # a script that trains by hand may go on by a command
            save_settings(self.context, self.run_dir)
        self.watch.lap("other")
        facts = {} if self._record is None else self._record.facts()
        self._checkpoints.save({"config": recordable(self.config)} | facts, last=last)
        self.watch.lap("checkpoint")

    def load(self) -> None:
        """Go on from the newest good checkpoint of the run folder; to evaluate, maybe from the best."""
        facts = self._checkpoints.load(self.config.evaluation.checkpoint) if self._checkpoints else None
        if facts is None:
            raise CheckpointError(f"There is no checkpoint to load in {self.run_dir}.")
        self._resumed = facts
        if self.learns and (changes := changes_since(facts)):
            _log.warning(
                "This checkpoint was written with %s: what follows may differ in its last bits.",
                ", ".join(changes),
            )

    def close(self) -> None:
        """Stop the environments and the actors; idempotent."""
        self.environments.close()
        if self.actors is not None:
            self.actors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
