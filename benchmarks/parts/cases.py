"""What is measured: the environments, how many of them, and whether a policy acts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gymnasium

from benchmarks.parts.defence.plain_defence import PlainDefence
from benchmarks.parts.families import Cheetah, Toy, ToyConfig, ToyEnv
from envs.base import Rows, TaskFamily
from envs.interop.cage2 import true_states
from envs.meta.locomotion.mujoco_shard import hush_mujoco
from envs.meta.make_env import make_env, make_family
from envs.meta.third_party.gymnasium_family import GymnasiumFamily

EPISODES, HORIZON = 2, 200
ACTING, ENV_ONLY = "acting", "env-only"
CPU_S, WAIT_S = 5e-3, 10e-3
# About what a step of CybORG takes.
DEFENCE_CPU_S = 2e-3


@dataclass(frozen=True)
class Case:
    """One environment, as Retrial and as the peers have it."""

    name: str
    title: str
    family: Callable[[], TaskFamily]
    # The same environment without its horizon, for the peers.
    gym: Callable[[], gymnasium.Env[Any, Any]]
    # By mode, the numbers of slots of the default run.
    slots: dict[str, tuple[int, ...]]
    # Whether its family has threads of its own, which release the GIL.
    mujoco: bool = False
    wait_s: float = 0.0
    # The same environment in coroutines.
    coroutines: Callable[[], TaskFamily] | None = None
    # Its name and options there, if it is there.
    envpool: tuple[str, dict[str, Any]] | None = None
    # Whether going on with the first slots that are ready is a row, too.
    takes_first: bool = False
    # What a caller may ask for beside the rows: the true states, in the words of a published interface.
    state: Callable[[Rows], object] | None = None


@dataclass(frozen=True)
class Table:
    """Rows that are measured side by side: one case, one mode, one number of slots."""

    case: Case
    mode: str
    slots: int
    # Worker counts of the process rows.
    workers: tuple[int, ...] = field(default=())

    @property
    def key(self) -> str:
        """What it is called in the results."""
        return f"{self.case.name}/{self.mode}/{self.slots}"

    @property
    def title(self) -> str:
        """Its heading."""
        actions = "constant actions, nothing kept"
        if self.mode == ACTING:
            actions = "the same GRU-128 policy acting in every row, rows kept"
        return f"{self.case.title}, N = {self.slots}, {actions}"


def toy_family(cpu_s: float = 0.0, wait_s: float = 0.0, coroutines: bool = False) -> TaskFamily:
    """The toy with these options."""
    return Toy(ToyConfig(cpu_s=cpu_s, wait_s=wait_s, coroutines=coroutines))


def cheetah_family() -> TaskFamily:
    """The benchmark's HalfCheetah."""
    return Cheetah()


def ant_env() -> gymnasium.Env[Any, Any]:
    """Gymnasium's Ant with AntDir's 27 numbers."""
    return gymnasium.make("Ant-v5", include_cfrc_ext_in_observation=False, max_episode_steps=HORIZON)


def cheetah_env() -> gymnasium.Env[Any, Any]:
    """Gymnasium's HalfCheetah."""
    hush_mujoco()
    return gymnasium.make("HalfCheetah-v5", max_episode_steps=HORIZON)


def defence_family(cpu_s: float = 0.0) -> TaskFamily:
    """CyberDefence against B_line, or the plain one with so much CPU in each step."""
    if not cpu_s:
        return make_family("CyberDefence", red="bline", max_episode_steps=HORIZON)
    return GymnasiumFamily.from_factory(partial(PlainDefence, cpu_s), max_episode_steps=HORIZON)


def defence_env(cpu_s: float = 0.0) -> gymnasium.Env[Any, Any]:
    """The same game in plain Python."""
    return gymnasium.wrappers.TimeLimit(PlainDefence(cpu_s), HORIZON)


def toy_env(cpu_s: float = 0.0, wait_s: float = 0.0) -> gymnasium.Env[Any, Any]:
    """The toy with these options."""
    return gymnasium.wrappers.TimeLimit(ToyEnv(cpu_s, wait_s), HORIZON)


def grid_world_family() -> TaskFamily:
    """Two agents on the grid, as one."""
    return make_family("GridWorldMultiAgent", max_episode_steps=HORIZON)


def grid_world_env() -> gymnasium.Env[Any, Any]:
    """The same as one Gymnasium environment."""
    return make_env("GridWorldMultiAgent", max_episode_steps=HORIZON)


CASES = {
    case.name: case
    for case in (
        Case(
            "ant",
            "AntDir",
            partial(make_family, "AntDir", max_episode_steps=HORIZON),
            ant_env,
            {ACTING: (12, 64), ENV_ONLY: (12,)},
            mujoco=True,
            # What costs time and is not in the observation is switched off there too.
            envpool=("Ant-v5", {"use_contact_force": False, "post_constraint": False}),
        ),
        Case(
            "cheetah",
            "HalfCheetah",
            cheetah_family,
            cheetah_env,
            {ACTING: (12, 64), ENV_ONLY: (12,)},
            mujoco=True,
            envpool=("HalfCheetah-v5", {"post_constraint": False}),
        ),
        Case("toy", "1 us Python toy", toy_family, toy_env, {ACTING: (12,), ENV_ONLY: (12, 200)}),
        Case(
            "cpu",
            "5 ms of CPU (Python, keeping the GIL)",
            partial(toy_family, CPU_S),
            partial(toy_env, CPU_S),
            {ACTING: (12,), ENV_ONLY: (12,)},
        ),
        Case(
            "wait",
            "10 ms of waiting",
            partial(toy_family, 0.0, WAIT_S),
            partial(toy_env, 0.0, WAIT_S),
            {ACTING: (16,), ENV_ONLY: (1, 2, 4, 8, 16, 64)},
            wait_s=WAIT_S,
            coroutines=partial(toy_family, 0.0, WAIT_S, True),
        ),
        Case(
            "cyber",
            "CyberDefence against B_line",
            defence_family,
            defence_env,
            {ACTING: (20, 50, 200, 1000), ENV_ONLY: (20, 50, 200, 1000)},
            takes_first=True,
            state=true_states,
        ),
        Case(
            "cyber-slow",
            "the same in plain Python with 2 ms of CPU",
            partial(defence_family, DEFENCE_CPU_S),
            partial(defence_env, DEFENCE_CPU_S),
            {ENV_ONLY: (20, 50, 200)},
            takes_first=True,
        ),
        Case(
            "grid_world_multi",
            "GridWorldMultiAgent, two agents as one; an env step is a cycle",
            grid_world_family,
            grid_world_env,
            {ENV_ONLY: (8, 256)},
        ),
    )
}


def tables(
    names: list[str] | None, modes: list[str] | None, slots: list[int] | None, workers: tuple[int, ...]
) -> Iterator[Table]:
    """The tables of these cases, modes and numbers of slots; what is None is as the case has it."""
    for name in names or CASES:
        case = CASES[name]
        for mode in modes or case.slots:
            for count in slots or case.slots.get(mode, (12,)):
                yield Table(case, mode, count, tuple(dict.fromkeys(min(one, count) for one in workers)))
