"""What share of the machine's limit a run of PPO reaches from end to end.

An env step cannot be had for less than the bare physics and the bare products: the CPU time of `mj_step`,
spread over all cores, and the multiply-adds of acting and of updating at the rate of a large product on all
cores. The share of a run is that sum over the time that it takes for an env step.

Of the products only those of weights with rows are counted. Physics is replayed from states that an agent
without training visits, as in `benchmarks.collect`; bodies that are not known there have no limit here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import nn

from benchmarks.parts.cases import ACTING, CASES, Table
from benchmarks.parts.learning.gemm import gemm_peak
from benchmarks.parts.limit import env_seconds
from benchmarks.parts.measure import visited_states
from benchmarks.parts.policy import make_agent
from envs.meta.make_env import make_family
from policies.agents.agent import Agent
from policies.algorithms.ppo import PPOConfig
from policies.run.config import Config
from policies.run.context import LearningParts, RunContext
from utils.machine import available_cores

# The case of `benchmarks.collect` that has the body of a family.
BODY_OF = {"AntDir": "ant", "AntGoal": "ant", "CheetahDir": "cheetah", "HalfCheetahVel": "cheetah"}
SECONDS = 2.0


@dataclass(frozen=True)
class Limit:
    """The least time of an env step of a run, in microseconds of the wall clock, by what it is needed for."""

    env_us: float
    act_us: float
    update_us: float
    cores: int
    gflops: float

    @property
    def env_steps_per_s(self) -> float:
        """With nothing else to do."""
        return 1e6 / (self.env_us + self.act_us + self.update_us)

    def text(self, reached: float) -> str:
        """What so many env-steps/s are of it."""
        return (
            f"{reached / self.env_steps_per_s:.2f} of the machine's limit: {reached:,.0f} of "
            f"{self.env_steps_per_s:,.0f} env-steps/s (mj_step {self.env_us:.1f} us on {self.cores} cores, "
            f"acting {self.act_us:.1f} us and updating {self.update_us:.1f} us at {self.gflops:.0f} GFLOP/s)"
        )


def limit_of(config: Config) -> Limit | None:
    """The limit of a run of these options on this machine; None where it is not known."""
    case, algorithm = BODY_OF.get(config.env.family), config.algorithm
    if case is None or not isinstance(algorithm, PPOConfig):
        return None
    cores, gflops = available_cores(), gemm_peak(available_cores())
    acting, updating = flops_of_step(agent_of(config), algorithm.epochs)
    family = CASES[case].family()
    states = visited_states(Table(CASES[case], ACTING, 1), make_agent(family))
    seconds, _ = env_seconds(case, 1, states, SECONDS)
    return Limit(1e6 * seconds / cores, acting / gflops / 1e3, updating / gflops / 1e3, cores, gflops)


def agent_of(config: Config) -> Agent:
    """An agent as a run of these options has it, before it has learned."""
    context = RunContext.of(config, make_family(config.env), "cpu", None)
    return LearningParts.build(context, learns=False).agent


def flops_of_step(agent: Agent, epochs: int) -> tuple[float, float]:
    """Floating-point operations for an env step: of acting on its row, and of learning from it.

    A weight takes a multiplication and an addition for each row that goes forward through it, and twice as
    much backward. The row is acted on once, asked once for its value, and learned from in every epoch.
    """
    acting = 2.0 * weights_of([agent.actor])
    forward = 2.0 * weights_of([agent])
    return acting, forward + epochs * 3.0 * forward


def weights_of(modules: Iterable[nn.Module]) -> int:
    """The numbers of all matrices of some modules; vectors are added, which costs next to nothing."""
    found = {id(one): one.numel() for module in modules for one in module.parameters() if one.ndim > 1}
    return sum(found.values())
