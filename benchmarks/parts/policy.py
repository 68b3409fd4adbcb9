"""The policy that acts in every row, GRU-128 with three layers of 128, and what stands in for it where only
environments are measured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from benchmarks.parts.limit import Stint
from envs.base import TaskFamily
from envs.layout import Layout
from envs.parallel_env_manager import ParallelEnvManager, SlotGroup
from policies.agents.agent import Agent
from policies.agents.base import AgentConfig, AgentSpec, Arch, PolicyRows
from policies.algorithms import ALGORITHMS
from policies.collection.actors import GroupActor
from policies.memory import MEMORIES


def make_agent(family: TaskFamily) -> Agent:
    """The policy of every row of a table: GRU-128, the published embeddings and heads."""
    continuous = isinstance(family.spec.action_space, spaces.Box)
    algorithm, memory = ALGORITHMS["SAC" if continuous else "DiscreteSAC"], MEMORIES["GRU"]
    config = AgentConfig(arch=Arch.Memory, hidden=[128, 128, 128])
    layout = Layout(family.spec, with_flag=True)
    spec = AgentSpec(
        layout.obs_space, family.spec.action_space, config, memory, memory.Config(hidden_size=128)
    )
    return algorithm.make_agent(algorithm.Config(), spec)


class Loop:
    """The same agent before environments that know nothing of trials: it carries memory, previous action and
    reward itself.
    """

    def __init__(self, agent: Agent, family: TaskFamily, num_envs: int) -> None:
        self._agent, self._state = agent, agent.initial_state(num_envs)
        self._inner = (family.spec.obs_space.shape or (0,))[0]
        self._obs = np.zeros((num_envs, self._inner + 1), np.float32)
        self._reward = np.zeros(num_envs, np.float32)
        self._action = Layout(family.spec).allocate(num_envs).prev_action
        self._start = np.ones(num_envs, np.bool_)
        self._rng = np.random.default_rng(0)

    def act(self, obs: NDArray[Any], reward: NDArray[Any], start: NDArray[Any]) -> NDArray[Any]:
        """Actions for a batch of observations, rewards and episode starts."""
        self._obs[:, : self._inner] = obs
        self._reward[:] = reward
        self._start[:] = start
        rows = PolicyRows(
            *(
                torch.from_numpy(part)
                for part in (self._obs, self._reward, self._action, self._start, self._start)
            )
        )
        noise = torch.from_numpy(self._agent.draw_noise(self._rng, len(self._start)))
        with torch.inference_mode():
            action, _, self._state = self._agent.act(rows, self._state, noise)
        self._action = action.numpy()
        return self._action


class ConstantGroupActor(GroupActor):
    """The same actions in every round."""

    def __init__(self, actions: NDArray[Any]) -> None:
        self._actions = actions

    def act(self, noise: NDArray[Any]) -> NDArray[Any]:
        return self._actions


class ConstantActor:
    """Always the same action: nothing but the environments takes time."""

    def for_group(self, manager: ParallelEnvManager, group: SlotGroup) -> GroupActor:
        return ConstantGroupActor(np.zeros_like(group.rows.prev_action))

    def draw_noise(self, rng: np.random.Generator, num_rows: int) -> NDArray[Any]:
        return np.zeros((num_rows, 1), np.float32)


def act_once(agent: Agent, family: TaskFamily, num_envs: int) -> Callable[[], object]:
    """A call that acts for that many slots, as often as it is called."""
    loop = Loop(agent, family, num_envs)
    width = (family.spec.obs_space.shape or (0,))[0]
    obs, reward, start = np.zeros((num_envs, width)), np.zeros(num_envs), np.zeros(num_envs, np.bool_)
    return lambda: loop.act(obs, reward, start)


def inference_seconds(agent: Agent, family: TaskFamily, num_envs: int, seconds: float) -> float:
    """CPU seconds of acting per env-step, at this batch size, on one thread."""
    act, calls = act_once(agent, family, num_envs), 0
    stint = Stint()
    while stint.seconds < seconds:
        act()
        calls += 1
    return stint.share * stint.seconds / calls / num_envs
