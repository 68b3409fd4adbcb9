"""RunContext: what a run is and never changes. LearningParts: what learns in it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from buffers.base import Needs
from buffers.replay import Replay
from buffers.rollout import RolloutBuffer
from envs.base import TaskFamily
from policies.agents.agent import Agent
from policies.agents.base import AgentSpec
from policies.algorithms import ALGORITHMS
from policies.algorithms.base import Algorithm
from policies.evaluation import TaskLists
from policies.memory import MEMORIES
from policies.run.checks import fitted_memory
from policies.run.config import Config
from policies.run.hardware import copies_to_device
from policies.run.sizes import RunSizes, needs_of, row_layout
from utils.seeding import Phase, generator


@dataclass(frozen=True)
class RunContext:
    """The facts of a run that all of its parts may read, and none may change."""

    config: Config
    family: TaskFamily
    needs: Needs
    """Which rows the algorithm asks for."""
    sizes: RunSizes
    tasks: TaskLists
    device: str
    run_dir: Path | None
    """The folder that the run writes into; None: it writes nothing."""

    @classmethod
    def of(cls, config: Config, family: TaskFamily, device: str, run_dir: Path | None) -> RunContext:
        """The context of a run over this family, with the sizes and the task lists that follow."""
        # A family may complete its options (a registered time limit, say): only completed ones are used.
        config = replace(config, env=family.config)
        sizes, tasks = RunSizes.of(config, family), TaskLists.draw(family, config.seed)
        return cls(config, family, needs_of(config), sizes, tasks, device, run_dir)

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

        # On-policy, the buffer holds one wave; off-policy, as many trials as fit.
        shape, device_copied = dict(context.sizes.buffer_shape), False
        if learns:
            device_copied = copies_to_device(config, context.sizes, device)
        else:
            shape["capacity_trials"] = 1
        buffer_kind = RolloutBuffer if context.needs.on_policy else Replay
        return cls(agent, algorithm, buffer_kind(**shape, device=device, device_copied=device_copied))
