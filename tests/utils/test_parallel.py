"""Two threads give what one gives, hide no error, and are gone afterwards."""

from __future__ import annotations

import threading
from threading import get_ident

import pytest
import torch

from utils import parallel
from utils.parallel import FEWEST_ROWS, map_in_threads, run_both

CPU = torch.device("cpu")


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "available_cores", lambda: 2)


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize("rows", [FEWEST_ROWS - 1, FEWEST_ROWS])
def test_many_rows_have_a_thread_each_and_few_have_one(rows: int) -> None:
    mine, other = run_both(get_ident, get_ident, rows=rows, device=CPU)
    assert mine == get_ident()
    assert (other != mine) == (rows == FEWEST_ROWS)


@pytest.mark.parametrize("cores", [1, 2])
def test_gradients_are_the_same_bits_with_one_core_and_two(
    cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "available_cores", lambda: cores)
    weights = [torch.linspace(-1, 1, 600).reshape(20, 30).requires_grad_() for _ in range(2)]
    x = torch.linspace(0, 3, 2000 * 20).reshape(2000, 20)

    def differentiate(weight: torch.Tensor) -> None:
        torch.tanh(x @ weight).square().mean().backward()

    run_both(lambda: differentiate(weights[0]), lambda: differentiate(weights[1]), rows=2000, device=CPU)
    differentiate(alone := weights[0].detach().clone().requires_grad_())
    assert all(
        weight.grad is not None and alone.grad is not None and torch.equal(weight.grad, alone.grad)
        for weight in weights
    )


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize("which", [0, 1])
def test_an_error_in_either_thread_is_raised_once_both_have_ended(which: int) -> None:
    def fail() -> None:
        raise FloatingPointError("by hand")

    halves = [lambda: None, lambda: None]
    halves[which] = fail
    before = threading.active_count()
    with pytest.raises(FloatingPointError, match="by hand"):
        run_both(halves[0], halves[1], rows=FEWEST_ROWS, device=CPU)
    assert threading.active_count() == before


@pytest.mark.usefixtures("two_cores")
def test_a_thread_has_the_intra_op_threads_of_the_process() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert run_both(torch.get_num_threads, torch.get_num_threads, rows=FEWEST_ROWS, device=CPU) == (1, 1)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_map_keeps_the_order_runs_its_first_item_here_and_leaves_no_thread(count: int) -> None:
    before = threading.active_count()
    results = map_in_threads(lambda item: (item, get_ident()), range(count))
    assert [item for item, _ in results] == list(range(count))
    assert results[0][1] == get_ident() and all(thread != get_ident() for _, thread in results[1:])
    assert threading.active_count() == before


@pytest.mark.parametrize("failing", [0, 2])
def test_a_map_raises_what_any_of_its_items_raises(failing: int) -> None:
    def invert(item: int) -> float:
        return 1 / (item - failing)

    with pytest.raises(ZeroDivisionError):
        map_in_threads(invert, range(3))
