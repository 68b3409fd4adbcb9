"""Actors choose the actions of a wave: by an agent, an oracle, at random, or so while a memory reads along.

An `Actor` is shared by all groups of slots. For each group it makes a `GroupActor`, which acts on all slots
of the group in one batch and has their hidden state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from envs.base import ActionSpace, Rows, TaskFamily, map_obs, uniform_actions
from envs.interop.spaces import MASK_KEY, allowed_choices
from envs.parallel_env_manager import ParallelEnvManager, SlotGroup
from policies.agents.agent import Agent
from policies.agents.base import PolicyRows
from policies.collection.staging import Staging, rows_from_tensors, tensors_of_rows
from policies.memory.base import State


class GroupActor(ABC):
    """Acts for one group of slots during one wave."""

    @abstractmethod
    def act(self, noise: NDArray[Any]) -> NDArray[Any]:
        """noise [n, ...] -> actions [n, ...] for the present rows of the group, all n of them."""

    @property
    def extras(self) -> Mapping[str, NDArray[Any]]:
        """What the last `act` computed of each row besides the action: [n, ...] by name."""
        return {}

    @property
    def state(self) -> State:
        """The hidden state of each slot before the next `act`, batch-first; empty without a memory."""
        return {}


class Actor(Protocol):
    """What chooses the actions in a wave."""

    def for_group(self, manager: ParallelEnvManager, group: SlotGroup) -> GroupActor:
        """The actor of this group during one wave, with a hidden state of its own."""
        ...

    def draw_noise(self, rng: np.random.Generator, num_rows: int) -> NDArray[Any]:
        """[num_rows, ...] the noise of one trial."""
        ...


@dataclass(frozen=True)
class AgentActor:
    """An agent that acts on all rows of a group in one batch, and forgets at trial starts only."""

    agent: Agent
    device: str
    deterministic: bool = False

    def for_group(self, manager: ParallelEnvManager, group: SlotGroup) -> GroupActor:
        return _AgentGroupActor(self, manager, group)

    def draw_noise(self, rng: np.random.Generator, num_rows: int) -> NDArray[Any]:
        return self.agent.draw_noise(rng, num_rows)


class _AgentGroupActor(GroupActor):
    """The agent's inputs for one group, made once, and its hidden state, indexed by slot."""

    def __init__(self, actor: AgentActor, manager: ParallelEnvManager, group: SlotGroup) -> None:
        self._agent, self._deterministic, self._manager = actor.agent, actor.deterministic, manager
        self._live = live = group.rows

        # The tensors are views of the live rows, so they are always up to date. Only the reward has another
        # type here than there, and is copied in every round.
        self._reward = np.zeros(group.size, np.float32)
        flags = (live.prev_action, live.episode_start, live.trial_start)
        self._rows = PolicyRows(
            map_obs(torch.from_numpy, live.obs), *map(torch.from_numpy, (self._reward, *flags))
        )
        self._valid = torch.from_numpy(live.valid)

        # An accelerator gets all inputs of a round, the noise included, in one copy.
        blank_noise = np.zeros_like(actor.draw_noise(np.random.default_rng(0), group.size))
        self._inputs = tensors_of_rows(self._rows) | {
            "valid": self._valid,
            "noise": torch.from_numpy(blank_noise),
        }
        self._staging = None
        if actor.device != "cpu":
            self._staging = Staging(self._inputs, actor.device)

        # Every wave begins with the initial state. Within it the agent forgets by itself, at trial starts.
        self._state: State = self._agent.initial_state(group.size)
        self._extras: dict[str, Tensor] = {}

    @torch.inference_mode()
    def act(self, noise: NDArray[Any]) -> NDArray[Any]:
        # 1. Bring the present rows and the noise to the device of the agent.
        self._reward[:] = self._live.reward
        rows, valid, drawn = self._rows, self._valid, torch.from_numpy(noise)
        if self._staging is not None:
            sent = self._staging.send(self._inputs | {"noise": drawn})
            rows, valid, drawn = rows_from_tensors(sent), sent["valid"], sent["noise"]

        # 2. With `min_ready` a slot's row may come in a later round. Then this round must not touch the
        #    slot's memory: its trial_start flag is an old one, which would make it forget ...
        if self._manager.may_lag:
            rows = replace(rows, trial_start=rows.trial_start & valid)

        # 3. All slots of the group act in one batch, whether they have a row or not: results of a batched
        #    operation depend on the batch size in their last bits, so that size never changes.
        before = self._state
        action, self._extras, after = self._agent.act(rows, before, drawn, self._deterministic)

        # 4. ... and its hidden state stays as it was before this round.
        if self._manager.may_lag:
            after = {
                name: torch.where(valid.view(-1, *[1] * (leaf.dim() - 1)), leaf, before[name])
                for name, leaf in after.items()
            }
        self._state = after
        return action.cpu().numpy()

    @property
    def extras(self) -> Mapping[str, NDArray[Any]]:
        # Copied from the device only where a sink asks for them.
        return {name: values.cpu().numpy() for name, values in self._extras.items()}

    @property
    def state(self) -> State:
        return self._state


@dataclass(frozen=True)
class RandomActor:
    """Uniform actions, among those that an `action_mask` allows: the random pool and the random reference."""

    space: ActionSpace

    def for_group(self, manager: ParallelEnvManager, group: SlotGroup) -> GroupActor:
        return _RandomGroupActor(self.space, group)

    def draw_noise(self, rng: np.random.Generator, num_rows: int) -> NDArray[Any]:
        # Continuous actions are drawn at once. A choice is drawn as a number in [0, 1), since which choices
        # there are is known only when the row is there.
        if isinstance(self.space, spaces.Box):
            return uniform_actions(rng, self.space, num_rows)
        return rng.random((num_rows, *(self.space.shape or ())))


class _RandomGroupActor(GroupActor):
    def __init__(self, space: ActionSpace, group: SlotGroup) -> None:
        self._space = space
        # A view of the live rows: the mask is always that of the present row.
        self._mask = None
        if isinstance(group.rows.obs, dict):
            self._mask = group.rows.obs.get(MASK_KEY)

    def act(self, noise: NDArray[Any]) -> NDArray[Any]:
        if isinstance(self._space, spaces.Box):
            return noise  # it is the action already
        choices = allowed_choices(self._space, noise, self._mask)
        # Choices are counted from 0; a Discrete space may begin elsewhere.
        if isinstance(self._space, spaces.Discrete):
            return choices + self._space.start
        return choices


class OracleError(RuntimeError):
    """The oracle of a family failed; the text is one sentence for the user."""


@dataclass(frozen=True)
class OracleActor:
    """The scripted policy of a family, which is given the task."""

    family: TaskFamily

    def for_group(self, manager: ParallelEnvManager, group: SlotGroup) -> GroupActor:
        # What the family itself wrote: neither the task nor the flag, which the manager adds for an agent.
        return _OracleGroupActor(self.family, manager.layout.part(group.rows, 0, group.size))

    def draw_noise(self, rng: np.random.Generator, num_rows: int) -> NDArray[Any]:
        return np.zeros((num_rows, 0))


class _OracleGroupActor(GroupActor):
    def __init__(self, family: TaskFamily, live: Rows) -> None:
        self._family, self._live = family, live

    def act(self, noise: NDArray[Any]) -> NDArray[Any]:
        live, actions = self._live, np.zeros_like(self._live.prev_action)
        # An idle slot has rows of no task, which a script need not understand.
        at = np.flatnonzero(live.valid)
        obs = map_obs(lambda part: part[at], live.obs)
        try:
            actions[at] = self._family.oracle_action(obs, live.task[at], live.info[at])
        except Exception as error:  # code of a family's author: it may raise anything
            name = type(self._family).__name__
            raise OracleError(f"{name}.oracle_action failed: {type(error).__name__}: {error}.") from error
        return actions


@dataclass(frozen=True)
class ShadowMemory:
    """Acts as `acts` does, while the memory of `reads` reads the rows.

    So the trials of a random pool have the hidden states that the agent would have had in them, from which
    windows of rows can start.
    """

    acts: Actor
    reads: Actor

    def for_group(self, manager: ParallelEnvManager, group: SlotGroup) -> GroupActor:
        # Noise of the right shape for the memory's actor, drawn apart from every stream of the run.
        ignored_noise = self.reads.draw_noise(np.random.default_rng(0), group.size)
        return _ShadowGroupActor(
            self.acts.for_group(manager, group), self.reads.for_group(manager, group), ignored_noise
        )

    def draw_noise(self, rng: np.random.Generator, num_rows: int) -> NDArray[Any]:
        # The same draws as without a shadow: storing states changes no trial.
        return self.acts.draw_noise(rng, num_rows)


class _ShadowGroupActor(GroupActor):
    def __init__(self, acts: GroupActor, reads: GroupActor, ignored_noise: NDArray[Any]) -> None:
        self._acts, self._reads, self._ignored_noise = acts, reads, ignored_noise

    def act(self, noise: NDArray[Any]) -> NDArray[Any]:
        self._reads.act(self._ignored_noise)  # its actions are not taken: only its state is wanted
        return self._acts.act(noise)

    @property
    def state(self) -> State:
        return self._reads.state
