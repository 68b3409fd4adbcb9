"""Two lanes give what one gives, and hide nothing that goes wrong."""

from __future__ import annotations

from threading import get_ident

import pytest
import torch

from utils import parallel as lanes
from utils.parallel import FEWEST_ROWS, both

CPU = torch.device("cpu")


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "available_cores", lambda: 2)


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize("rows", [FEWEST_ROWS - 1, FEWEST_ROWS])
def test_many_rows_have_a_thread_each_and_few_have_one(rows: int) -> None:
    mine, other = both(get_ident, get_ident, rows=rows, device=CPU)
    assert mine == get_ident()
    assert (other != mine) == (rows == FEWEST_ROWS)


@pytest.mark.parametrize("cores", [1, 2])
def test_gradients_are_the_same_bits_with_one_core_and_two(
    cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "available_cores", lambda: cores)
    weights = [torch.linspace(-1, 1, 600).reshape(20, 30).requires_grad_() for _ in range(2)]
    x = torch.linspace(0, 3, 2000 * 20).reshape(2000, 20)

    def differentiate(weight: torch.Tensor) -> None:
        torch.tanh(x @ weight).square().mean().backward()

    both(lambda: differentiate(weights[0]), lambda: differentiate(weights[1]), rows=2000, device=CPU)
    differentiate(alone := weights[0].detach().clone().requires_grad_())
    assert all(
        weight.grad is not None and alone.grad is not None and torch.equal(weight.grad, alone.grad)
        for weight in weights
    )


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize("which", [0, 1])
def test_what_is_raised_in_either_lane_is_raised(which: int) -> None:
    def fail() -> None:
        raise FloatingPointError("by hand")

    halves = [lambda: None, lambda: None]
    halves[which] = fail
    with pytest.raises(FloatingPointError, match="by hand"):
        both(halves[0], halves[1], rows=FEWEST_ROWS, device=CPU)


@pytest.mark.usefixtures("two_cores")
def test_a_lane_has_the_intra_op_threads_of_the_process() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert both(torch.get_num_threads, torch.get_num_threads, rows=FEWEST_ROWS, device=CPU) == (1, 1)
    finally:
        torch.set_num_threads(before)
