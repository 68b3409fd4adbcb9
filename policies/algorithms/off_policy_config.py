"""Options that all off-policy algorithms have, and which rows they ask the buffer for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from math import gcd
from typing import Any

from buffers.base import Needs, Sample
from policies.agents.base import WITH_MEMORY, WITHOUT_MEMORY, AgentConfig, Arch, Conditioning
from policies.algorithms.base import AlgorithmConfig
from utils.options import OnlyIf, option


class WindowStart(Enum):
    """The state of a memory before the first row of a window: empty, or stored by the actor."""

    zero = "zero"
    stored = "stored"


FROM_STORED_STATE = OnlyIf(
    lambda run, needs: needs.state_every > 0,
    "no window starts from a stored state; see algorithm.window_start",
)


@dataclass
class OffPolicyConfig(AlgorithmConfig):
    """Options of all off-policy algorithms.

    Whole trials (`window=0`) are better than windows of about a trial's length. Windows reach beyond the
    first and the last row of their trial, so that each row is in equally many, and windows that long would be
    half empty.

    With `window_start=stored` the memory starts from the state that the actor's memory had there while it
    collected (R2D2). With `agent.encoders=separate` the critic's memory never acted, and starts empty: give
    it a `burn_in`. No loss is taken over the rows of a burn-in, but gradients go through them. States are
    stored before every `state_every` rows, and there windows and burn-ins start.
    """

    # Which rows a batch has.
    batch_size: int = option(
        32, "trials or windows in a batch, for agents with a memory", low=1, only_if=WITH_MEMORY
    )
    transitions_batch_size: int = option(
        256, "transitions in a batch, for agents without a memory", low=1, only_if=WITHOUT_MEMORY
    )
    # Windows of trials, and what a memory holds before them.
    window: int = option(0, "rows of a window that train; 0 takes whole trials", low=0, only_if=WITH_MEMORY)
    burn_in: int = option(0, "rows before a window that its memory reads first", low=0, only_if=WITH_MEMORY)
    window_start: WindowStart = option(
        WindowStart.zero, "the memory's state before a window: zero (empty) or stored", only_if=WITH_MEMORY
    )
    state_every: int | None = option(
        None, "store a state before every so many rows; null: half a window", low=1, only_if=FROM_STORED_STATE
    )
    # Critics, their targets, and the size of steps.
    tau: float = option(
        0.005, "how far targets move towards the online networks in each update", above=0, high=1
    )
    critics: int = option(2, "number of estimates of Q, each by a head of its own", low=1)
    critics_in_target: int = option(
        2, "targets take the smallest of so many critics, drawn in each update", low=1
    )
    critic_layer_norm: bool = option(False, "normalise the hidden layers of the critics, which steadies them")
    max_grad_norm: float | None = option(
        None, "clip the gradient norms of actor and critic; null does not", above=0
    )

    @property
    def critic_options(self) -> dict[str, Any]:
        """The arguments of a critic's head beside its sizes."""
        return {"critics": self.critics, "layer_norm": self.critic_layer_norm}


@dataclass
class ActorCriticConfig(OffPolicyConfig):
    """Options of off-policy algorithms that have a policy beside their critic."""

    policy_delay: int = option(1, "the policy learns in one of so many updates", low=1)


def sampling_needs(config: OffPolicyConfig, arch: Arch) -> Needs:
    """Which rows these options ask the buffer for."""
    # An agent without a memory needs no rows around a transition.
    if arch is Arch.Markov:
        return Needs(on_policy=False, sample=Sample.transitions, batch_size=config.transitions_batch_size)
    # A whole trial starts with an empty memory, so only windows can start from a stored state.
    stored = config.window and config.window_start is WindowStart.stored
    return Needs(
        on_policy=False,
        sample=Sample.windows if config.window else Sample.trials,
        batch_size=config.batch_size,
        window=config.window,
        burn_in=config.burn_in,
        state_every=_state_every(config) if stored else 0,
    )


def option_problems(config: OffPolicyConfig, agent: AgentConfig) -> Iterator[str]:
    """One sentence for each option of critics or windows that cannot work with others, or the agent's."""
    if config.critic_layer_norm and agent.conditioning is not Conditioning.concatenate:
        yield (
            f"algorithm.critic_layer_norm is for plain layers, and agent.conditioning="
            f"{agent.conditioning.name} has others: use one of the two."
        )
    if agent.arch is Arch.Markov:
        return  # reads single transitions, whatever these options are
    if config.burn_in and not config.window:
        yield (
            f"algorithm.burn_in={config.burn_in} goes before a window, "
            "and algorithm.window=0 takes whole trials."
        )
    if config.window_start is WindowStart.stored:
        yield from _problems_of_stored_states(config, agent)


def _state_every(config: OffPolicyConfig) -> int:
    return config.state_every or max(1, config.window // 2)


def _problems_of_stored_states(config: OffPolicyConfig, agent: AgentConfig) -> Iterator[str]:
    """One sentence for each option that cannot work with stored states."""
    every, name = _state_every(config), "algorithm.window_start=stored"
    if agent.arch is Arch.Memory_Markov:
        yield (
            f"{name} takes what the actor remembered, and in agent=Memory_Markov it remembers nothing: "
            "use zero, with algorithm.burn_in."
        )
    if not config.window:
        yield (
            f"{name} is where windows start, and algorithm.window=0 takes whole trials, "
            "which start with nothing remembered: use zero."
        )
    elif config.window % every or config.burn_in % every:
        source = f"algorithm.state_every=null, which is {every},"
        if config.state_every:
            source = f"algorithm.state_every={every}"
        yield (
            f"{source} does not divide algorithm.window={config.window} and "
            f"algorithm.burn_in={config.burn_in}, and windows start where states are stored: "
            f"use {gcd(config.window, config.burn_in)} or what divides that."
        )
