"""What every memory promises, for all that are registered."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from policies.memory import MEMORIES
from policies.memory.base import Memory

ROWS, COLUMNS, WIDTH = 9, 4, 3
STEP_TOLERANCE = 1e-5
"""Unrolling and stepping sum in another order."""

every_memory = pytest.mark.parametrize("name", MEMORIES)


def make(name: str) -> Memory:
    torch.manual_seed(0)
    kind = MEMORIES[name]
    return kind(kind.Config(name=name, hidden_size=5), WIDTH)


def inputs(resets: list[tuple[int, int]] | None = None) -> tuple[Tensor, Tensor]:
    x = torch.randn(ROWS, COLUMNS, WIDTH, generator=torch.Generator().manual_seed(1))
    reset = torch.zeros(ROWS, COLUMNS, dtype=torch.bool)
    for t, column in resets or []:
        reset[t, column] = True
    return x, reset


def unroll(memory: Memory, x: Tensor, reset: Tensor) -> Tensor:
    return memory(x, memory.initial_state(x.shape[1]), reset)[0]


STAGGERED = [(0, 0), (0, 1), (0, 2), (0, 3), (3, 0), (4, 1), (4, 2), (8, 2)]


@every_memory
@pytest.mark.parametrize("resets", [[], STAGGERED[:4], STAGGERED], ids=["none", "at the start", "staggered"])
def test_unrolling_equals_stepping(name: str, resets: list[tuple[int, int]]) -> None:
    memory, (x, reset) = make(name), inputs(resets)
    state, steps = memory.initial_state(COLUMNS), []
    for t in range(ROWS):
        out, state = memory(x[t : t + 1], state, reset[t : t + 1])
        steps.append(out)
    whole, last = memory(x, memory.initial_state(COLUMNS), reset)
    assert whole.shape == (ROWS, COLUMNS, memory.out_dim)
    torch.testing.assert_close(torch.cat(steps), whole, rtol=0, atol=STEP_TOLERANCE)
    for key, leaf in last.items():
        torch.testing.assert_close(state[key], leaf, rtol=0, atol=STEP_TOLERANCE)


@every_memory
@pytest.mark.parametrize("t", [1, 4, ROWS - 1])
def test_a_reset_is_a_fresh_start(name: str, t: int) -> None:
    memory, (x, reset) = make(name), inputs([(t, 1)])
    out, fresh, kept = unroll(memory, x, reset), unroll(memory, x[t:], reset[t:] & False), unroll(memory, x, reset & False)
    torch.testing.assert_close(out[t:, 1], fresh[:, 1], rtol=0, atol=STEP_TOLERANCE)
    torch.testing.assert_close(out[:, 0], kept[:, 0], rtol=0, atol=STEP_TOLERANCE)
    assert (out[t:, 1] - kept[t:, 1]).abs().max() > 100 * STEP_TOLERANCE, "without the reset it remembers"


@every_memory
def test_no_gradient_crosses_a_reset_and_row_t_never_sees_the_next(name: str) -> None:
    memory, (x, reset) = make(name), inputs([(4, 1)])
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(unroll(memory, x, reset)[6].sum(), x)
    reached = gradient.abs().amax(-1) > 0
    assert reached[:7, 0].all()
    assert not reached[7:].any(), "the future"
    assert reached[4:7, 1].all()
    assert not reached[:4, 1].any(), "before the reset"


@every_memory
def test_not_even_a_nan_crosses_a_reset(name: str) -> None:
    memory, (x, reset) = make(name), inputs([(4, 1)])
    x[:4, 1] = torch.nan
    out = unroll(memory, x, reset)
    assert out[4:].isfinite().all()
    step, _ = memory(
        x[4:5],
        {key: torch.full_like(leaf, torch.nan) for key, leaf in memory.initial_state(COLUMNS).items()},
        torch.ones(1, COLUMNS, dtype=torch.bool),
    )
    assert step.isfinite().all()


@every_memory
def test_columns_do_not_see_each_other(name: str) -> None:
    memory, (x, reset) = make(name), inputs(STAGGERED)
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(unroll(memory, x, reset)[:, 2].sum(), x)
    assert gradient[:, 2].abs().sum() > 0
    assert not gradient[:, [0, 1, 3]].any()


@every_memory
def test_the_state_is_batch_first_and_begins_at_zero(name: str) -> None:
    memory = make(name)
    for size in (1, 7):
        state = memory.initial_state(size)
        assert state
        for leaf in state.values():
            assert leaf.shape[0] == size
            assert not leaf.any()
        x, reset = torch.randn(1, size, WIDTH), torch.zeros(1, size, dtype=torch.bool)
        assert {key: leaf.shape for key, leaf in memory(x, state, reset)[1].items()} == {
            key: leaf.shape for key, leaf in memory.initial_state(size).items()
        }


def test_the_recurrent_weights_of_a_gru_are_orthogonal_and_its_biases_zero() -> None:
    parameters = dict(make("GRU").named_parameters())
    for gate in parameters["gru.weight_hh_l0"].chunk(3):
        torch.testing.assert_close(gate @ gate.T, torch.eye(5))
    assert not parameters["gru.bias_hh_l0"].any()
    assert not parameters["gru.bias_ih_l0"].any()
