"""What every memory promises, for all that are registered."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from policies.memory import MEMORIES
from policies.memory.aggregation import Pooling
from policies.memory.base import Memory, State, check_state
from policies.memory.transformer import Transformer, TransformerConfig

ROWS, COLUMNS, WIDTH = 9, 4, 3
# Unrolling and stepping sum in another order.
STEP_TOLERANCE = 1e-5

# Every memory as it is, and the settings that take another path.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in MEMORIES},
    "DiagonalRecurrence of two": ("DiagonalRecurrence", {"num_layers": 2}),
    "Transformer of one": ("Transformer", {"num_layers": 1, "num_heads": 1, "head_size": 4}),
    "Aggregation by sum": ("Aggregation", {"pooling": Pooling.sum}),
    "Aggregation by max": ("Aggregation", {"pooling": Pooling.max}),
}

every_memory = pytest.mark.parametrize("name", VARIANTS)


def make(name: str, rows: int = 402, /, **changes: Any) -> Memory:
    torch.manual_seed(0)
    registered, options = VARIANTS[name]
    kind = MEMORIES[registered]
    return kind(
        kind.fitted(kind.Config(name=registered, **{"hidden_size": 5, **options, **changes}), rows), WIDTH
    )


def inputs(resets: list[tuple[int, int]] | None = None) -> tuple[Tensor, Tensor]:
    """Rows, and (row, column) where they reset."""
    x = torch.randn(ROWS, COLUMNS, WIDTH, generator=torch.Generator().manual_seed(1))
    reset = torch.zeros(ROWS, COLUMNS, dtype=torch.bool)
    for t, column in resets or []:
        reset[t, column] = True
    return x, reset


def unroll(memory: Memory, x: Tensor, reset: Tensor) -> Tensor:
    return memory(x, memory.initial_state(x.shape[1]), reset)[0]


def in_parts(memory: Memory, x: Tensor, reset: Tensor, cuts: Iterable[int]) -> tuple[Tensor, State]:
    """What an unroll that stops at each cut says, and the state it ends in."""
    state, outs, edges = memory.initial_state(x.shape[1]), [], [0, *cuts, len(x)]
    for start, stop in pairwise(edges):
        out, state = memory(x[start:stop], state, reset[start:stop])
        outs.append(out)
    return torch.cat(outs), state


def assert_same_state(state: State, other: State) -> None:
    assert state.keys() == other.keys()
    for key, leaf in other.items():
        torch.testing.assert_close(state[key], leaf, rtol=0, atol=STEP_TOLERANCE)


def weighted(out: Tensor) -> Tensor:
    """A sum with weights of its own: the plain sum of what a layer norm gives is a constant."""
    return (out * torch.randn(out.shape, generator=torch.Generator().manual_seed(2)).to(out.dtype)).sum()


STAGGERED = [(0, 0), (0, 1), (0, 2), (0, 3), (3, 0), (4, 1), (4, 2), (8, 2)]

every_pattern = pytest.mark.parametrize(
    "resets",
    [[], STAGGERED[:4], STAGGERED[1:3], STAGGERED],
    ids=["none", "at the start", "some at the start", "staggered"],
)


@every_memory
@every_pattern
@pytest.mark.parametrize("grad", [True, False])
def test_unrolling_equals_stepping(name: str, resets: list[tuple[int, int]], grad: bool) -> None:
    memory, (x, reset) = make(name), inputs(resets)
    with torch.inference_mode(not grad):
        whole, last = memory(x, memory.initial_state(COLUMNS), reset)
    with torch.inference_mode():
        steps, state = in_parts(memory, x, reset, range(1, ROWS))
    assert whole.shape == (ROWS, COLUMNS, memory.out_dim)
    torch.testing.assert_close(steps, whole, rtol=0, atol=STEP_TOLERANCE)
    assert_same_state(state, last)


@every_memory
@every_pattern
@pytest.mark.parametrize("cut", [1, 3, 4, 6])
def test_an_unroll_in_two_parts_equals_one(name: str, resets: list[tuple[int, int]], cut: int) -> None:
    memory, (x, reset) = make(name), inputs(resets)
    parts, state = in_parts(memory, x, reset, [cut])
    whole, last = memory(x, memory.initial_state(COLUMNS), reset)
    torch.testing.assert_close(parts, whole, rtol=0, atol=STEP_TOLERANCE)
    assert_same_state(state, last)


@every_memory
def test_slots_that_start_their_trials_at_different_times_act_as_each_trial_alone_unrolls(name: str) -> None:
    """As a wave acts: a slot takes its next trial when it is done, whatever the others are doing."""
    memory, rng = make(name), np.random.default_rng(3)
    lengths = [[int(n) for n in rng.integers(2, ROWS + 1, 30)] for _ in range(COLUMNS)]
    x = torch.randn(40, COLUMNS, WIDTH, generator=torch.Generator().manual_seed(4))
    starts = [[0, *np.cumsum(column).tolist()] for column in lengths]
    reset = torch.tensor([[t in column for column in starts] for t in range(40)])
    with torch.inference_mode():
        acted, _ = in_parts(memory, x, reset, range(1, 40))
    for slot, begins in enumerate(starts):
        for begin, end in zip(begins, begins[1:], strict=False):
            if end <= 40:
                alone = unroll(
                    memory, x[begin:end, slot : slot + 1], torch.zeros(end - begin, 1, dtype=torch.bool)
                )
                torch.testing.assert_close(acted[begin:end, slot], alone[:, 0], rtol=0, atol=STEP_TOLERANCE)


@every_memory
def test_a_trial_of_full_length_is_the_same_unrolled_and_acted_and_its_gradient_is_finite(name: str) -> None:
    rows = 402
    memory = make(name, rows)
    x, reset = (
        torch.randn(rows, 33, WIDTH, generator=torch.Generator().manual_seed(5)),
        torch.zeros(rows, 33, dtype=torch.bool),
    )
    whole = unroll(memory, x, reset)
    with torch.inference_mode():
        acted, _ = in_parts(memory, x, reset, range(1, rows))
    torch.testing.assert_close(acted, whole, rtol=1e-4, atol=10 * STEP_TOLERANCE)
    for gradient in torch.autograd.grad(weighted(whole), list(memory.parameters())):
        assert gradient.isfinite().all()
        assert gradient.any()


@every_memory
@every_pattern
def test_gradients_are_those_of_finite_differences(name: str, resets: list[tuple[int, int]]) -> None:
    memory, (x, reset) = make(name).double(), inputs(resets)
    start = {
        key: leaf.double() if leaf.is_floating_point() else leaf
        for key, leaf in memory.initial_state(COLUMNS).items()
    }

    def loss(rows: Tensor) -> Tensor:
        return weighted(memory(rows, {key: leaf.clone() for key, leaf in start.items()}, reset)[0])

    x = x.double().requires_grad_()
    loss(x).backward()
    for watched in (x, *memory.parameters()):
        assert watched.grad is not None
        direction = torch.randn(
            watched.shape, dtype=watched.dtype, generator=torch.Generator().manual_seed(6)
        )
        values, ends = watched.data.clone(), []
        for sign in (1, -1):
            watched.data.copy_(values + sign * 1e-6 * direction)
            ends.append(loss(x).item())
        watched.data.copy_(values)
        assert (watched.grad * direction).sum().item() == pytest.approx(
            (ends[0] - ends[1]) / 2e-6, rel=1e-4, abs=1e-6
        )


@every_memory
def test_a_loaded_memory_and_a_copy_remember_the_same_and_the_algorithms_are_deterministic(name: str) -> None:
    memory, (x, reset) = make(name), inputs(STAGGERED)
    other = make(name)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    other.load_state_dict(memory.state_dict())
    torch.use_deterministic_algorithms(True)
    try:
        results = [
            [(out := unroll(one, x, reset)), *torch.autograd.grad(weighted(out), list(one.parameters()))]
            for one in (memory, other, deepcopy(memory))
        ]
    finally:
        torch.use_deterministic_algorithms(False)
    for values in zip(*results, strict=True):
        assert all(torch.equal(values[0], value) for value in values)


@every_memory
@pytest.mark.parametrize("t", [1, 4, ROWS - 1])
def test_a_reset_is_a_fresh_start(name: str, t: int) -> None:
    memory, (x, reset) = make(name), inputs([(t, 1)])
    out, fresh, kept = (
        unroll(memory, x, reset),
        unroll(memory, x[t:], reset[t:] & False),
        unroll(memory, x, reset & False),
    )
    torch.testing.assert_close(out[t:, 1], fresh[:, 1], rtol=0, atol=STEP_TOLERANCE)
    torch.testing.assert_close(out[:, 0], kept[:, 0], rtol=0, atol=STEP_TOLERANCE)
    assert (out[t:, 1] - kept[t:, 1]).abs().max() > 100 * STEP_TOLERANCE, "without the reset it remembers"


@every_memory
def test_no_gradient_crosses_a_reset_and_row_t_never_sees_the_next(name: str) -> None:
    memory, (x, reset) = (
        make(name, hidden_size=256),
        inputs([(4, 1)]),
    )  # wide enough for every row to be some channel's maximum
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(weighted(unroll(memory, x, reset)[6]), x)
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
        {
            key: torch.full_like(leaf, torch.nan if leaf.is_floating_point() else 7)
            for key, leaf in memory.initial_state(COLUMNS).items()
        },
        torch.ones(1, COLUMNS, dtype=torch.bool),
    )
    assert step.isfinite().all()


@pytest.mark.parametrize(
    "name", [name for name, (registered, _) in VARIANTS.items() if MEMORIES[registered].stores_state]
)
@every_pattern
def test_an_unroll_leaves_a_stored_state_as_it_was_and_starts_from_it(
    name: str, resets: list[tuple[int, int]]
) -> None:
    """Actor, critic and targets all read the same one."""
    memory, (x, reset) = make(name), inputs(resets)
    stored = {key: torch.rand_like(leaf) for key, leaf in memory.initial_state(COLUMNS).items()}
    before = {key: leaf.clone() for key, leaf in stored.items()}
    first = memory(x, stored, reset)[0]
    weighted(first).backward()
    assert torch.equal(memory(x, stored, reset)[0], first)
    assert all(torch.equal(stored[key], leaf) for key, leaf in before.items())
    forgets = reset[0]
    assert (first - unroll(memory, x, reset))[0].abs().amax(-1).gt(0).equal(~forgets)


@every_memory
def test_columns_do_not_see_each_other(name: str) -> None:
    memory, (x, reset) = make(name), inputs(STAGGERED)
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(weighted(unroll(memory, x, reset)[:, 2]), x)
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


@pytest.mark.parametrize(("name", "gates", "bias"), [("GRU", 3, 0.0), ("LSTM", 4, 2.5)])
def test_the_recurrent_weights_of_gates_are_orthogonal_and_their_biases_as_asked(
    name: str, gates: int, bias: float
) -> None:
    parameters = dict(make(name, **({"forget_bias": bias} if bias else {})).named_parameters())
    (recurrent,) = (parameters[key] for key in parameters if "weight_hh" in key)
    for gate in recurrent.chunk(gates):
        torch.testing.assert_close(gate @ gate.T, torch.eye(5))
    total = sum(parameters[key] for key in parameters if "bias" in key)
    assert isinstance(total, Tensor)
    assert total.chunk(gates)[1].tolist() == [bias] * 5, "the forget gate of an LSTM comes second"
    assert total.sum() == 5 * bias


def test_a_gru_computes_what_torchs_does() -> None:
    memory, (x, reset) = make("GRU"), inputs()
    (reference,) = (module for module in memory.modules() if isinstance(module, nn.GRU))
    ours, theirs = unroll(memory, x, reset), reference(x)[0]
    torch.testing.assert_close(ours, theirs, rtol=0, atol=STEP_TOLERANCE)
    for one, other in zip(
        *(torch.autograd.grad(weighted(out), list(memory.parameters())) for out in (ours, theirs)),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=STEP_TOLERANCE)


def test_the_channels_of_a_diagonal_recurrence_begin_with_the_memory_they_were_asked_for() -> None:
    parameters = dict(
        make("DiagonalRecurrence", hidden_size=1000, quickest=10.0, longest=1000.0).named_parameters()
    )
    kept = 1 - parameters["layers.0.read.bias"][:1000].sigmoid()
    assert 0.9 - 1e-6 <= kept.min() < 0.91
    assert 0.998 < kept.max() <= 0.999 + 1e-6
    with pytest.raises(ValueError, match="exchange them"):
        make("DiagonalRecurrence", quickest=20.0, longest=10.0)


@pytest.mark.parametrize("name", [name for name in VARIANTS if "Aggregation" in name])
def test_an_aggregation_does_not_care_for_the_order_of_its_rows(name: str) -> None:
    memory, (x, reset) = make(name), inputs()
    for order in (
        torch.arange(ROWS).flip(0),
        torch.randperm(ROWS, generator=torch.Generator().manual_seed(7)),
    ):
        torch.testing.assert_close(
            unroll(memory, x[order], reset)[-1], unroll(memory, x, reset)[-1], rtol=0, atol=STEP_TOLERANCE
        )
    twice = unroll(memory, torch.cat([x, x]), torch.cat([reset, reset]))[-1]
    assert torch.allclose(twice, unroll(memory, x, reset)[-1], atol=STEP_TOLERANCE) == ("sum" not in name), (
        "only a sum counts"
    )


def test_a_transformer_refuses_to_learn_from_a_trial_longer_than_its_cache_and_an_idle_slot_is_no_error() -> (
    None
):
    memory, (x, reset) = make("Transformer", ROWS - 1), inputs([(4, column) for column in range(COLUMNS)])
    unroll(memory, x, reset)
    with pytest.raises(ValueError, match=rf"more than memory.max_rows={ROWS - 1} rows: raise it"):
        unroll(memory, x, reset & False)
    in_parts(memory, x, reset & False, range(1, ROWS))
    with pytest.raises(ValueError, match="head_size=3 is odd"):
        make("Transformer", head_size=3)
    with pytest.raises(ValueError, match="is what Transformer"):
        Transformer(TransformerConfig(), WIDTH)


def test_a_reset_slot_of_a_transformer_empties_its_own_cache_in_place() -> None:
    memory, (x, reset) = make("Transformer"), inputs([(4, 1)])
    with torch.inference_mode():
        _, state = in_parts(memory, x[:4], reset[:4], [1, 2, 3])
        before = {key: leaf.clone() for key, leaf in state.items()}
        _, after = memory(x[4:5], state, reset[4:5])
    keys = after["keys_0"]
    assert keys.data_ptr() == state["keys_0"].data_ptr()
    assert after["rows"].tolist() == [5, 1, 5, 5]
    assert torch.equal(keys[[0, 2, 3], :4], before["keys_0"][[0, 2, 3], :4])
    assert keys[1, 0].any()
    assert not keys[1, 1:].any()


@every_memory
def test_the_state_of_every_registered_memory_is_batch_first(name: str) -> None:
    check_state(make(name), WIDTH)
