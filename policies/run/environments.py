"""RunEnvironments: the environments that a run trains and evaluates in, made when they are needed."""

from __future__ import annotations

from functools import cached_property

from envs.backends.base import BackendConfig
from envs.parallel_env_manager import ParallelEnvManager
from policies.run.context import RunContext
from policies.run.hardware import sequential_backend


class RunEnvironments:
    """Up to three managers with as many slots: to train in, in parallel or sequentially, and to evaluate in."""

    def __init__(self, context: RunContext, backend: BackendConfig, num_workers: int) -> None:
        self._context, self._backend, self.num_workers = context, backend, num_workers
        self.train_env_parallel: ParallelEnvManager | None = None
        """None with a single worker: then the sequential environment is the one to train in."""
        if num_workers > 1:
            self.train_env_parallel = self._manager(backend, num_workers)

    @cached_property
    def train_env(self) -> ParallelEnvManager:
        """The sequential environment: the same slots in this process.

        Where the run has one worker only, it is that worker's (`backend=process` may ask for one).
        """
        backend = self._backend
        if self.num_workers > 1:
            backend = sequential_backend(self._context.config.backend)
        return self._manager(backend, 1)

    @cached_property
    def eval_env(self) -> ParallelEnvManager:
        """The environment of evaluation, with slots of its own."""
        return self._manager(self._backend, self.num_workers, self._context.evaluation_episodes)

    def _manager(
        self, backend: BackendConfig, num_workers: int, episodes: int | None = None
    ) -> ParallelEnvManager:
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
        """The environment that training collects in."""
        return self.train_env if self.train_env_parallel is None else self.train_env_parallel

    @property
    def made(self) -> list[ParallelEnvManager]:
        """The environments that have been made so far."""
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
