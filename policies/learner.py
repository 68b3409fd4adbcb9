"""The Learner: owns the environments, the agent, the replay and the records of one run, and advances it stage
by stage.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import MISSING, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from buffers.replay import Replay
from buffers.rollout import RolloutBuffer
from envs.base import TaskFamily
from envs.meta.make_env import make_family
from envs.parallel_env_manager import ParallelEnvManager
from policies.agents.base import AgentSpec
from policies.algorithms import ALGORITHMS
from policies.collection.collector import play, take_in
from policies.collection.wave import AgentActor, WaveResult
from policies.evaluation import TaskLists, evaluate_list, evaluation_table, held_out_name
from policies.memory import MEMORIES
from policies.run.checkpointing import RunCheckpoints
from policies.run.config import CHECKPOINTS, RECORD, Config
from policies.run.nan_guard import NanGuard
from policies.run.progress import Counters, by_episode
from policies.run.record import RunRecord, changes_since, save_settings
from policies.run.setup import (
    check_family,
    copies_to_device,
    in_process,
    layout_of,
    memory_of,
    needs_of,
    prepare_torch,
    replay_shape,
    settle_backend,
    slots_of,
)
from policies.run.training import Training
from utils.checkpoint import CheckpointError
from utils.seeding import Phase, generator
from utils.stop_signal import StopSignal
from utils.stopwatch import Stopwatch

_log = logging.getLogger(__name__)


class Learner:
    """One run: `Learner(config, run_dir).train()`.

    Without a `run_dir` nothing is written. What a run does next is all in `counters`, so it can stop before
    every stage and every update, and `load()` goes on from there bit for bit. One that `learns` no more
    evaluates: it has no room for trials, and loads the agent alone.
    """

    def __init__(
        self,
        config: Config,
        run_dir: Path | None = None,
        *,
        learns: bool = True,
        family: TaskFamily | None = None,
    ) -> None:
        """`family` is the one that validation has built and checked; without it, both happen here."""
        self.family = check_family(config, learns=learns) if family is None else family
        # A family may complete its options (a registered time limit, say): only the completed ones are used.
        self.config = config = replace(config, env=self.family.config)
        self.run_dir, self.learns = run_dir, learns
        self.device = prepare_torch(config)
        self.watch = Stopwatch()
        self.train_env_parallel: ParallelEnvManager | None = None
        self._build(self.family)
        self.backend = settle_backend(config, self.family, self.agent, self.device)
        env = config.env
        self.init_env(
            "meta",
            env.family,
            max_rollouts_per_task=env.max_rollouts_per_task,
            num_train_tasks=env.num_train_tasks,
            num_eval_tasks=env.num_eval_tasks,
            num_parallel_workers=self.backend.num_workers,
        )
        self.counters = Counters(next_evaluation=config.evaluation.every)
        self.loss_sums: dict[str, torch.Tensor] = {}
        self.acting: dict[str, Any] = {}
        """The state of the agent that plays the present wave, where updates go on beside it
        (policies/run/overlap.py).
        """
        self.guard = NanGuard(run_dir)
        self._sampling = generator(config.seed, Phase.UPDATE, 0)
        self._checkpoints = None
        if run_dir is not None:
            folder = run_dir / CHECKPOINTS
            self._checkpoints = RunCheckpoints(
                folder,
                algorithm=self.algorithm,
                replay=self.buffer,
                sampling=self._sampling,
                agent_only=not learns,
            )
        self.record: RunRecord | None = None
        self._resumed: dict[str, Any] = {}
        self._stop = StopSignal()

    @property
    def stop_signal(self) -> int | None:
        """The signal that ended training, if one did."""
        return self._stop.received

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
        """Make the task lists and the environments to train and to evaluate in.

        The family is built again only where a script asks for another one than the run's own.
        """
        if env_type != "meta":
            raise ValueError(f"env_type={env_type!r} is not known; there is only 'meta'.")
        self.close()
        options = family_options | {
            "family": env_name,
            "max_rollouts_per_task": max_rollouts_per_task,
            "num_train_tasks": num_train_tasks,
            "num_eval_tasks": num_eval_tasks,
        }
        present = vars(self.config.env)
        if any(present.get(name, MISSING) != value for name, value in options.items()):
            del options["family"]
            self.family = make_family(env_name, **options)
            self.config = replace(self.config, env=self.family.config)
        self.num_parallel_workers = num_parallel_workers
        self.tasks = TaskLists.draw(self.family, self.config.seed)
        self.train_tasks = self.tasks.train
        self.eval_tasks = self.tasks.evaluation[held_out_name(self.family.spec)]
        self.train_env_parallel = self._manager(num_parallel_workers) if num_parallel_workers > 1 else None

    @cached_property
    def train_env(self) -> ParallelEnvManager:
        """The sequential environment: the same slots, in this process (or in one worker, where
        `backend=process` asks for it).
        """
        return self._manager(1)

    @cached_property
    def eval_env(self) -> ParallelEnvManager:
        """The environment of evaluation, with slots of its own."""
        return self._manager(self.num_parallel_workers, self.config.evaluation.episodes_per_trial)

    def _manager(self, num_workers: int, episodes_per_trial: int | None = None) -> ParallelEnvManager:
        env = self.family.config
        return ParallelEnvManager(
            self.family,
            slots_of(self.config),
            episodes_per_trial=episodes_per_trial or env.max_rollouts_per_task,
            num_workers=num_workers,
            num_groups=self.config.num_groups,
            seed=self.config.seed,
            oracle=env.oracle,
            new_episode_flag=env.max_rollouts_per_task > 1,
            deterministic=self.config.deterministic,
            backend=in_process(self.config.backend)
            if num_workers < self.num_parallel_workers
            else self.backend.backend,
        )

    @property
    def env(self) -> ParallelEnvManager:
        """Where training collects."""
        return self.train_env if self.train_env_parallel is None else self.train_env_parallel

    @property
    def sampling_state(self) -> Mapping[str, Any]:
        """Where the stream is that draws batches from the replay."""
        return self._sampling.bit_generator.state

    @property
    def environments(self) -> list[ParallelEnvManager]:
        """Those that have been made so far."""
        made = [self.train_env_parallel, self.__dict__.get("train_env"), self.__dict__.get("eval_env")]
        return [env for env in made if env is not None]

    @property
    def worker_pids(self) -> list[int]:
        """The worker processes that are running now."""
        return [pid for env in self.environments for pid in env.pids]

    def _build(self, family: TaskFamily) -> None:
        """Agent, algorithm and replay."""
        config = self.config
        memory = MEMORIES[config.memory.name]
        init_seed, noise_seed = generator(config.seed, Phase.UPDATE, 1).integers(2**63, size=2).tolist()
        spaces = layout_of(config, family.spec).obs_space, family.spec.action_space
        sees = AgentSpec(*spaces, config.agent, memory, memory_of(config, family), self.device, init_seed)
        algorithm = ALGORITHMS[config.algorithm.name]
        self.needs = needs_of(config)
        self.agent = algorithm.make_agent(config.algorithm, sees)
        self.algorithm = algorithm(config.algorithm, self.agent, seed=noise_seed)
        shape = replay_shape(config, family)
        if not self.learns:
            shape["capacity_trials"] = 1
        device_copied = self.learns and copies_to_device(config, family, self.device)
        self.buffer = (RolloutBuffer if self.needs.on_policy else Replay)(
            **shape, device=self.device, device_copied=device_copied
        )

    # -- the three verbs -------------------------------------------------------------------------------------

    def collect_rollouts_parallel(
        self, num_rollouts: int, random_actions: bool = False, parallel_env: ParallelEnvManager | None = None
    ) -> int:
        """Run `num_rollouts` trials into the replay; the env steps taken. Without a `parallel_env`,
        sequentially, through the same code.
        """
        return self.collect(num_rollouts, random_actions, parallel_env).env_steps

    def collect(
        self,
        num_rollouts: int,
        random_actions: bool,
        parallel_env: ParallelEnvManager | None,
        budget: int | None = None,
    ) -> WaveResult:
        """The same, with all that happened in the trials; none is started once a budget of env steps has been
        taken.
        """
        env = self.train_env if parallel_env is None else parallel_env
        first, agent = self.buffer.num_added, None if random_actions else self.agent
        result = play(self, num_rollouts, agent, env, self.buffer, budget=budget, tick=self.tick)
        take_in(self, result, first=first, warmup=random_actions)
        return result

    def update(self, num_updates: int = 1) -> dict[str, float]:
        """That many gradient updates; their mean metrics."""
        sums: dict[str, torch.Tensor] = {}
        for _ in range(num_updates):
            for name, value in self.update_once().items():
                sums[name] = sums.get(name, torch.zeros_like(value)) + value
        self.guard.settle()
        return {name: float(value) / num_updates for name, value in sums.items()}

    def update_once(self, watch: Stopwatch | None = None) -> dict[str, torch.Tensor]:
        """One update; its metrics, still on the device. `watch`: whose laps it counts, where it runs in a
        thread of its own.

        On-policy, the normaliser takes the batch in only after the update, which so reads the rows exactly as
        the policy that acted did. Off-policy it has taken them in when they were collected
        (policies/collection/collector.py).
        """
        watch = watch or self.watch
        batch = self.buffer.sample(self.needs, self._sampling)
        watch.lap("buffer")
        metrics = self.algorithm.update(batch)
        if self.needs.on_policy:
            self.agent.update_normaliser(batch, self.config.algorithm.discount)
        self.guard.watch(self.counters.updates, batch, metrics)
        watch.lap("update")
        self.counters.updates += 1
        return metrics

    def evaluate(self) -> dict[str, float]:
        """Mean return (and success) by episode index on every task list, deterministic, and stochastic too
        where the config says so.
        """
        metrics: dict[str, float] = {}
        evaluation = self.config.evaluation
        for sampled in [False, True] if evaluation.stochastic else [False]:
            actor = AgentActor(self.agent, device=self.device, deterministic=not sampled)
            for name, tasks in self.tasks.evaluation.items():
                key = f"eval/{name}{'_stochastic' if sampled else ''}"
                result = evaluate_list(
                    self.eval_env,
                    actor,
                    tasks,
                    seed=self.config.seed,
                    trials_per_task=evaluation.trials_per_task,
                    tick=self._tick_evaluation,
                )
                metrics |= by_episode(f"{key}/return", result.returns.mean(0))
                if self.family.spec.success:
                    metrics |= by_episode(
                        f"{key}/success", np.where(result.dropped[:, None], np.nan, result.successes).mean(0)
                    )
        self.watch.lap("evaluate")
        return metrics

    def report(self) -> str:
        """Evaluate, keep the numbers in the run folder, and show them beside the family's oracle and random
        scores.
        """
        metrics = self.evaluate()
        if self.run_dir is not None:
            found = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
            text = json.dumps(
                {"env_steps": self.counters.env_steps, "updates": self.counters.updates, **found}, indent=1
            )
            try:
                (self.run_dir / "evaluation.json").write_text(text + "\n")
            except OSError as error:
                _log.warning("The evaluation is shown here only: %s.", error)
        return evaluation_table(metrics, self.family.spec)

    def train(self) -> float:
        """Go on until `train.n_env_steps_total`, or a signal; the return in the last episode on the test
        list, at the last evaluation.
        """
        if self._checkpoints is not None:
            self._checkpoints.claim()
        with self._stop, RunRecord(self.config, self.run_dir, self._resumed) as record:
            self.record = record
            record.open(self)
            Training(self).run()
            self.save(last=True)
            record.finish(self)
        return record.final_return

    def tick(self, wave: WaveResult | None = None) -> bool:
        """Once a round and once an update: show how far it has come; whether to stop."""
        if self.record is not None:
            self.record.show(self, 0 if wave is None else wave.env_steps)
        return self._stop.received is not None

    def _tick_evaluation(self, wave: WaveResult) -> bool:
        return self.tick()  # its env steps are not the run's

    # -- to and from the disk --------------------------------------------------------------------------------

    def save(self, *, last: bool = False) -> None:
        """Write a checkpoint into the run folder, unless the last update has gone wrong."""
        self.guard.settle()
        if self._checkpoints is None or self.run_dir is None:
            return
        if not (self.run_dir / RECORD).exists():  # who trains by hand may resume by a command
            save_settings(self, self.run_dir)
        self.watch.lap("other")
        self._checkpoints.save(
            self.counters,
            self.loss_sums,
            self.record.facts(self) if self.record else {},
            self.acting,
            last=last,
        )
        self.watch.lap("checkpoint")

    def load(self) -> None:
        """Go on from the newest good checkpoint of the run folder."""
        restored = None if self._checkpoints is None else self._checkpoints.load()
        if restored is None:
            raise CheckpointError(f"There is no checkpoint to load in {self.run_dir}.")
        self.counters, self.loss_sums, self._resumed, self.acting = (
            restored.counters,
            restored.loss_sums,
            restored.facts,
            restored.acting,
        )
        if self.learns and (changes := changes_since(restored.facts)):
            _log.warning(
                "This checkpoint was written with %s: what follows may differ in its last bits.",
                ", ".join(changes),
            )

    def close(self) -> None:
        """Stop the environments; idempotent."""
        for name in ("train_env", "eval_env"):
            if name in self.__dict__:  # made only where it was asked for
                self.__dict__.pop(name).close()
        if self.train_env_parallel is not None:
            self.train_env_parallel.close()
            self.train_env_parallel = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
