"""LSTM: where trials are short it reads segments side by side, which changes nothing but the time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from policies.memory import lstm
from policies.memory.lstm import LSTM, LSTMConfig


@pytest.mark.parametrize("share", [0.0, 0.02, 0.2, 1.0])
def test_segments_side_by_side_give_the_outputs_states_and_gradients_of_cuts_in_time(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, rng = LSTM(LSTMConfig(name="LSTM", hidden_size=7), 5), torch.Generator().manual_seed(1)
    x = torch.randn(40, 6, 5, generator=rng, requires_grad=True)
    reset = torch.rand(40, 6, generator=rng) < share
    state = {name: torch.randn(6, 7, generator=rng, requires_grad=True) for name in ("hidden", "cell")}
    weight = torch.randn(40, 6, 7, generator=rng)

    def found() -> list[Tensor]:
        out, last = memory(x, state, reset)
        loss = (out * weight).sum() + last["cell"].square().sum() + last["hidden"].sum()
        gradients = torch.autograd.grad(loss, [x, *state.values(), *memory.parameters()])
        return [out, last["hidden"], last["cell"], *gradients]

    results: list[list[Tensor]] = []
    for most in (40, -1):
        monkeypatch.setattr(lstm, "MOST_CUTS", most)
        results.append(found())
    for cut, side_by_side in zip(*results, strict=True):
        torch.testing.assert_close(side_by_side, cut, rtol=1e-4, atol=1e-5)


def test_many_resets_are_few_calls_of_the_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, calls = LSTM(LSTMConfig(name="LSTM", hidden_size=3), 2), list[int]()
    layer = memory.lstm.forward
    monkeypatch.setattr(memory.lstm, "forward", lambda *given: calls.append(1) or layer(*given))
    reset = torch.zeros(100, 4, dtype=torch.bool)
    reset[::2] = True
    memory(torch.zeros(100, 4, 2), memory.initial_state(4), reset)
    assert len(calls) == 1, "segments of two rows; cut in time there would be 50"
    reset[::2] = False
    memory(torch.zeros(100, 4, 2), memory.initial_state(4), reset)
    assert len(calls) == 2, "one trial in each column"
