"""What a run is made of: the facts that never change, the parts that learn, and the environments."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from buffers.base import Needs
from buffers.replay import Replay
from buffers.rollout import RolloutBuffer
from envs.backends.base import BackendConfig
from envs.base import Reference, TaskFamily
from envs.parallel_env_manager import ParallelEnvManager
from policies.agents.agent import Agent
from policies.agents.base import AgentSpec
from policies.algorithms import ALGORITHMS
from policies.algorithms.base import Algorithm
from policies.curriculum import CURRICULA
from policies.curriculum.base import Curriculum, TrainingTasks
from policies.evaluation.lists import TaskLists
from policies.evaluation.training import RecordedTraining, evaluation_lists
from policies.memory import MEMORIES
from policies.run.config import Config
from policies.run.hardware import copies_to_device
from policies.run.progress import Counters, RunProgress
from policies.run.sizes import RunSizes, fitted_memory, needs_of, row_layout
from utils.disk.own_files import check_run_folder
from utils.logger import Follower
from utils.run_lock import RunLock
from utils.seeding import Phase, generator


@dataclass(frozen=True)
class RunHost:
    """What a run gets from whoever starts it, a command, a sweep or a search; by itself it has none of it."""

    # The lock of its folder, which the host keeps.
    lock: RunLock | None = None
    # The file in which the jobs of a sweep note what backend=auto has chosen.
    backends: Path | None = None
    # They get a copy of every line of metrics, and may end the run.
    followers: tuple[Follower, ...] = ()


@dataclass(frozen=True)
class RunContext:
    """The facts of a run that all of its parts may read, and none may change."""

    config: Config
    family: TaskFamily
    # Which rows the algorithm asks for.
    needs: Needs
    sizes: RunSizes
    tasks: TaskLists
    device: str
    # The folder that the run writes into; None: it writes nothing.
    run_dir: Path | None
    # What the folder of a run that is evaluated records of its training; None: nothing, or the run learns.
    training: RecordedTraining | None = None

    @property
    def reference(self) -> Reference | None:
        """The recorded returns to compare with; None where tasks are played that nobody recorded them for."""
        chosen = self.training is not None and self.config.evaluation.tasks is not None
        return None if chosen else self.family.spec.reference

    @classmethod
    def of(
        cls,
        config: Config,
        family: TaskFamily,
        device: str,
        run_dir: Path | None,
        *,
        learns: bool = True,
    ) -> RunContext:
        """The context of a run over this family, with the sizes and the task lists that follow.

        With `learns=False` it is evaluated, maybe on other tasks than those of the training in its folder.
        """
        # Before anything opens the folder: a link in it may lead to what is not the run's.
        if run_dir is not None:
            check_run_folder(run_dir, allow_links=config.allow_links)
        # A family may complete its options (a registered time limit, say): only completed ones are used.
        config = replace(config, env=family.config)
        sizes, training = RunSizes.of(config, family), None
        if learns:
            tasks = TaskLists.draw(family, config.seed)
        else:
            training = RecordedTraining.of(run_dir)
            tasks = evaluation_lists(config, family, training)
        return cls(config, family, needs_of(config), sizes, tasks, device, run_dir, training)

    @property
    def training_tasks(self) -> TrainingTasks:
        """The tasks that trials of training are drawn from."""
        return TrainingTasks(self.family, self.tasks.train, self.config.seed)

    def make_curriculum(self) -> Curriculum:
        """A curriculum that has not seen any trial."""
        config = self.config.curriculum
        return CURRICULA[config.name](config, self.training_tasks)

    def before_the_first_trial(self) -> RunProgress:
        """The progress of a run that has none yet."""
        return RunProgress(Counters(next_evaluation=self.config.evaluation.every), self.make_curriculum())

    @property
    def evaluation_episodes(self) -> int:
        """The episodes of a trial of evaluation."""
        return self.config.evaluation.episodes_per_trial or self.config.env.max_rollouts_per_task


@dataclass(frozen=True)
class LearningParts:
    """The agent, the algorithm that changes it, and the buffer between collection and updates."""

    agent: Agent
    algorithm: Algorithm
    buffer: Replay
    # The agent that is evaluated: the agent itself, or a running mean of its weights.
    judged: Agent

    @property
    def averages(self) -> bool:
        """Whether another agent is evaluated than the one that acts and learns."""
        return self.judged is not self.agent

    @classmethod
    def build(cls, context: RunContext, *, learns: bool) -> LearningParts:
        """The parts of a run; with `learns=False` the buffer has room for a single trial."""
        config, spec, device = context.config, context.family.spec, context.device

        # The agent's first parameters and the algorithm's noise have streams of their own, by the run's seed.
        agent_seed, noise_seed = generator(config.seed, Phase.UPDATE, 1).integers(2**63, size=2).tolist()
        obs_space, memory = row_layout(config, spec).obs_space, MEMORIES[config.memory.name]
        memory_config = fitted_memory(config, context.family)
        agent_spec = AgentSpec(
            obs_space, spec.action_space, config.agent, memory, memory_config, device, agent_seed
        )
        kind = ALGORITHMS[config.algorithm.name]
        agent = kind.make_agent(config.algorithm, agent_spec)
        algorithm = kind(config.algorithm, agent, seed=noise_seed)

        # On-policy, the buffer holds one wave; off-policy, the last trials whose rows fit.
        shape = dict(context.sizes.buffer_shape)
        if not learns:
            shape["wave_trials"] = 1
            shape["capacity_rows"] = min(shape["capacity_rows"], shape["rows_per_trial"])
        device_copied = learns and copies_to_device(config, context.sizes, device)
        buffer_kind = RolloutBuffer if context.needs.on_policy else Replay
        buffer = buffer_kind(**shape, device=device, device_copied=device_copied)

        # The mean of the weights starts as they do. Where a run is only evaluated, its checkpoint puts the
        # mean into their place.
        judged = agent
        if learns and config.evaluation.averaging > 0:
            judged = deepcopy(agent).requires_grad_(False)
        return cls(agent, algorithm, buffer, judged)


class RunEnvironments:
    """Managers with as many slots: a parallel and a sequential one to train in, and one to evaluate in."""

    def __init__(self, context: RunContext, backend: BackendConfig, num_workers: int) -> None:
        self._context, self.backend, self.num_workers = context, backend, num_workers
        # None with a single worker: then the sequential environment is the one to train in.
        self.train_env_parallel: ParallelEnvManager | None = None
        if num_workers > 1:
            self.train_env_parallel = self._manager(backend, num_workers)

    @cached_property
    def train_env(self) -> ParallelEnvManager:
        """The sequential environment: the same slots in this process."""
        # A run with a single worker has this environment alone; `backend=process` then puts it into one.
        backend = self.backend
        if self.num_workers > 1:
            # The parallel backend's settings, as far as they mean anything for this environment.
            backend = replace(
                self._context.config.backend, name="serial", min_ready=None, max_worker_memory=None
            )
        return self._manager(backend, 1)

    @cached_property
    def eval_env(self) -> ParallelEnvManager:
        """The environment of evaluation, with slots of its own."""
        return self._manager(self.backend, self.num_workers, self._context.evaluation_episodes)

    def _manager(
        self, backend: BackendConfig, num_workers: int, episodes: int | None = None
    ) -> ParallelEnvManager:
        # N, groups and seed are those of the experiment; backend and workers change nothing of the data. The
        # flag of a new episode belongs to what the agent sees, so evaluation has it as training does.
        config = self._context.config
        return ParallelEnvManager(
            self._context.family,
            self._context.sizes.num_slots,
            episodes_per_trial=episodes or config.env.max_rollouts_per_task,
            num_workers=num_workers,
            num_groups=config.num_groups,
            seed=config.seed,
            oracle=config.env.oracle,
            new_episode_flag=config.env.max_rollouts_per_task > 1,
            deterministic=config.deterministic,
            backend=backend,
        )

    @property
    def training(self) -> ParallelEnvManager:
        """The environment that training collects in: the parallel one, where there is one."""
        return self.train_env if self.train_env_parallel is None else self.train_env_parallel

    @property
    def made(self) -> list[ParallelEnvManager]:
        """The environments that have been made so far."""
        # A cached property stands in __dict__ from its first use on; asking for it would make it.
        lazy = [self.__dict__.get(name) for name in ("train_env", "eval_env")]
        return [env for env in (self.train_env_parallel, *lazy) if env is not None]

    @property
    def worker_pids(self) -> list[int]:
        """The worker processes that are running now."""
        return [pid for env in self.made for pid in env.pids]

    def close(self) -> None:
        """Stop the environments; may be called twice. One that is asked for again is made anew."""
        for env in self.made:
            env.close()
        self.train_env_parallel = None
        for name in ("train_env", "eval_env"):
            self.__dict__.pop(name, None)
