"""Actions: what networks read of the previous one."""

from __future__ import annotations

import pytest
import torch
from gymnasium import spaces

from policies.agents.actions import ActionKind, actions_of
from policies.agents.base import PolicyRows
from tests.trials import ACTION_SPACE


def rows(prev_action: torch.Tensor, episode_start: list[bool]) -> PolicyRows:
    n = len(prev_action)
    return PolicyRows(
        torch.zeros(n, 1),
        torch.zeros(n),
        prev_action,
        torch.tensor(episode_start),
        torch.zeros(n, dtype=torch.bool),
    )


def test_a_vector_is_read_as_it_is() -> None:
    actions = actions_of(ACTION_SPACE)
    assert (actions.kind, actions.dim, actions.outputs) == (ActionKind.continuous, 2, 4)
    previous = torch.tensor([[0.5, -0.5], [0.0, 0.0]])
    assert torch.equal(actions.previous(rows(previous, [False, True])), previous)


@pytest.mark.parametrize("start", [0, 5, -2])
def test_a_choice_is_read_as_one_of_n_and_no_choice_as_none(start: int) -> None:
    actions = actions_of(spaces.Discrete(3, start=start))
    assert (actions.kind, actions.dim, actions.outputs) == (ActionKind.discrete, 3, 3)
    previous = torch.tensor([start, start + 2, 0, 0])
    hot = actions.previous(rows(previous, [False, False, True, True]))
    assert hot.dtype == torch.float32
    assert hot.tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]], (
        "the first row of an episode holds 0, which nobody chose"
    )


def test_several_choices_are_read_as_one_of_n_each_side_by_side() -> None:
    actions = actions_of(spaces.MultiDiscrete([3, 2]))
    assert (actions.kind, actions.dim, actions.outputs) == (ActionKind.multi_discrete, 5, 5)
    previous = torch.tensor([[2, 0], [0, 1], [0, 0]])
    hot = actions.previous(rows(previous, [False, False, True]))
    assert hot.dtype == torch.float32
    assert hot.tolist() == [[0, 0, 1, 1, 0], [1, 0, 0, 0, 1], [0, 0, 0, 0, 0]]
