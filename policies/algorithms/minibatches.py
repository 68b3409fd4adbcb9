"""Minibatches: how the rows of an iteration are cut into minibatches, parts and windows.

    minibatch   some columns of the batch [T, B], drawn anew in each epoch; one gradient step
    part        some columns of a minibatch; a thread finds its gradient, which is added to the others'
    window      some consecutive rows of a column, with the memory's state before them

Nothing here knows a loss: policies/algorithms/ppo.py can be read without this file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor, nn

from buffers.base import Batch
from policies.agents.agent import Agent
from policies.algorithms.base import add_metrics
from policies.memory.base import Memory, State
from utils.parallel import FEWEST_ROWS, map_in_threads

Part = TypeVar("Part")
# The memory states of actor and critic.
States = tuple[State, State]


# -- minibatches and their parts -----------------------------------------------------------------------------


def shuffled_minibatches(
    columns: int, count: int, generator: torch.Generator, device: torch.device
) -> tuple[Tensor, ...]:
    """The numbers of all columns in a new random order, cut into at most `count` equal minibatches."""
    # Drawn on the CPU, whatever the device: a seed gives the same minibatches everywhere.
    order = torch.randperm(columns, generator=generator).to(device)
    return order.tensor_split(min(count, columns))


def gains_from_parts(agent: Agent) -> bool:
    """Whether two threads learn faster than one: on a CPU, where memories read many rows in few calls."""
    device = next(agent.parameters()).device
    memories = [module for module in agent.modules() if isinstance(module, Memory)]
    return device.type == "cpu" and all(memory.in_long_calls for memory in memories)


def split_columns(columns: Tensor, rows: int, parts: int | None, gains: bool) -> tuple[Tensor, ...]:
    """Cut columns of so many rows into parts: `parts` of them, or by default two where that gains.

    The number of parts changes the last bits of a gradient, so it follows from the config and from the sizes
    of the data, never from the cores of the machine.
    """
    if parts is None:
        parts = 2 if gains and rows * len(columns) >= 2 * FEWEST_ROWS else 1
    return columns.tensor_split(min(parts, len(columns)))


def sum_gradients(
    losses: Callable[[Part], tuple[list[Tensor], dict[str, Tensor]]],
    parts: Sequence[Part],
    parameters: Sequence[Tensor],
) -> tuple[list[list[Tensor]], dict[str, Tensor]]:
    """([loss][parameter] the gradients, summed over the parts; the sums of the metrics).

    A part has several losses where each is to be clipped by itself.
    """

    # `autograd.grad` returns gradients: with `backward`, two threads would add to the same `.grad` in the
    # order in which they happen to arrive.
    def differentiate(part: Part) -> tuple[list[tuple[Tensor, ...]], dict[str, Tensor]]:
        values, metrics = losses(part)
        gradients = [
            torch.autograd.grad(
                value,
                parameters,
                retain_graph=value is not values[-1],
                allow_unused=True,
                materialize_grads=True,
            )
            for value in values
        ]
        return gradients, {name: metric.detach() for name, metric in metrics.items()}

    results = map_in_threads(differentiate, parts)

    # The sum is taken in the order of the parts, whichever thread has finished first. It is contiguous, as
    # the parameter is: a fused optimiser goes by memory, not by strides, and would mix up what is transposed.
    by_loss = zip(*(gradients for gradients, _ in results), strict=True)
    summed = [[torch.stack(own).sum(0) for own in zip(*parts_of, strict=True)] for parts_of in by_loss]

    metrics: dict[str, Tensor] = {}
    for _, part_metrics in results:
        add_metrics(metrics, part_metrics)
    return summed, metrics


def set_clipped(
    parameters: Sequence[Tensor], gradients: Sequence[Sequence[Tensor]], most: float | None
) -> list[Tensor]:
    """Set each parameter's gradient to the sum over [loss][parameter], each loss clipped to a norm by itself.

    Returns the norms of the losses before, each over all parameters together.
    """
    norms = [nn.utils.get_total_norm(own) for own in gradients]
    if most is not None:
        for norm, own in zip(norms, gradients, strict=True):
            scale = torch.clamp(most / (norm + 1e-6), max=1.0)
            for gradient in own:
                gradient.mul_(scale)
    for parameter, *parts in zip(parameters, *gradients, strict=True):
        parameter.grad = sum(parts[1:], parts[0])
    return norms


# -- what the policy computes before its update, and windows -------------------------------------------------


class WindowStates:
    """The memory states of actor and critic before each window of each column."""

    def __init__(self, windows: int, columns: int) -> None:
        self._shape = windows, columns
        self._leaves: list[dict[str, Tensor]] = [{}, {}]

    def store(self, columns: Tensor, states: Sequence[States]) -> None:
        """Store the states of some columns before each of their windows, of which there may be fewer."""
        for window, pair in enumerate(states):
            for leaves, state in zip(self._leaves, pair, strict=True):
                for name, leaf in state.items():
                    # Windows without a row of these columns keep zeros; no row of theirs trains.
                    if name not in leaves:
                        leaves[name] = leaf.new_zeros(*self._shape, *leaf.shape[1:])
                    leaves[name][window, columns] = leaf

    def batch_first(self) -> States:
        """The states of actor and critic, [windows x columns, ...], in the order of `Batch.side_by_side`."""
        actor, critic = ({name: leaf.flatten(0, 1) for name, leaf in state.items()} for state in self._leaves)
        return actor, critic


def outputs_before_update(
    agent: Agent, batch: Batch, parts: Sequence[Tensor], window: int
) -> tuple[Tensor, Tensor, WindowStates]:
    """(log pi [T, B] of the actions taken, V [T, B], the states before each window), without gradients."""
    rows = window or batch.shape[0]  # no windows: one that holds all rows, whose state is not needed
    # Two views of one tensor: what the parts write below shows in both.
    log_prob, value = outputs = batch.reward.new_zeros(2, *batch.shape)
    states = WindowStates(-(-batch.shape[0] // rows), batch.shape[1])
    # Parts are unrolled in threads; each thread writes nothing that another one reads.
    batches = [batch.columns(part) for part in parts]
    results = map_in_threads(lambda part: _unroll_windows(agent, part, rows), batches)
    for columns, (part_outputs, part_states) in zip(parts, results, strict=True):
        # A part has no rows beyond its longest column.
        outputs[:, : part_outputs.shape[1], columns] = part_outputs
        if window:
            states.store(columns, part_states)
    return log_prob, value, states


@torch.no_grad()
def _unroll_windows(agent: Agent, batch: Batch, rows: int) -> tuple[Tensor, list[States]]:
    """[2, T, B] log-probabilities and values, read window after window; and the states before each window."""
    outputs: list[Tensor] = []
    before: list[States] = []
    actor, critic = (network.branch.initial_state(batch.shape[1]) for network in (agent.actor, agent.critic))
    for start in range(0, batch.shape[0], rows):
        before.append((actor, critic))
        # The window's rows, with the states that the window before it has left.
        window = replace(batch.rows(start, start + rows), state=actor, critic_state=critic)
        unrolled = agent.unroll(window)
        actor, critic = unrolled.states  # where the next window starts
        log_prob, value = unrolled.policy.log_prob(window.action), agent.critic.head(unrolled.critic)
        outputs.append(torch.stack([log_prob, value]))
    return torch.cat(outputs, 1), before


def cut_into_windows(batch: Batch, window: int, states: WindowStates) -> Batch:
    """Cut every column into windows that start from their states; leave out windows that train no row."""
    actor, critic = states.batch_first()
    # Windows stand in the order of `WindowStates`: all columns' first ones, then their second ones.
    windows = replace(batch.side_by_side(window), state=actor, critic_state=critic)
    return windows.columns(windows.trains.any(0).nonzero().squeeze(1))
