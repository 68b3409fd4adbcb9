"""The contract of a memory's state, checked when an agent is built: wrong ones are one sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from policies.agents.base import Arch
from policies.algorithms import ALGORITHMS
from policies.memory.base import State, check_state
from policies.memory.gru import GRU
from tests.trials import make_spec

WIDTH = 3


class LayerFirst(GRU):
    """A memory whose state is shaped as torch's recurrent layers have it, [layers, B, H]."""

    layers = 1

    def initial_state(self, batch_size: int) -> State:
        return {"hidden": super().initial_state(batch_size)["hidden"].repeat(self.layers, 1, 1)}


class AsManyLayersAsColumns(LayerFirst):
    """Its state looks batch-first in a batch of three."""

    layers = 3


class LayerFirstLater(GRU):
    """Only the state after a row is that of torch's layers."""

    def forward(self, x: Tensor, state: State, reset: Tensor) -> tuple[Tensor, State]:
        out, state = super().forward(x, state, reset)
        return out, {"hidden": state["hidden"][None]}


class NewName(GRU):
    """Names its state after a row as it did not at first."""

    def forward(self, x: Tensor, state: State, reset: Tensor) -> tuple[Tensor, State]:
        out, state = super().forward(x, state, reset)
        return out, {"h": state["hidden"]}


class Pair(GRU):
    """Its state is a pair, as that of torch's LSTM."""

    def initial_state(self, batch_size: int) -> Any:
        hidden = super().initial_state(batch_size)["hidden"]
        return hidden, hidden


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (
            LayerFirst,
            r"LayerFirst: initial_state\(3\)\['hidden'\] has the shape \[1, 3, 5\], not \[3, 1, 5\]",
        ),
        (
            AsManyLayersAsColumns,
            r"initial_state\(2\)\['hidden'\] has the shape \[3, 2, 5\], not \[2, 3, 5\]: put the batch first",
        ),
        (
            LayerFirstLater,
            r"after a row of 3 columns, state\['hidden'\] has the shape \[1, 3, 5\], not \[3, 1, 5\]",
        ),
        (NewName, "NewName: the state has 'h' at first or after a row, and not at both times"),
        (Pair, "Pair: initial_state gives a tuple, not a dict of tensors"),
    ],
)
def test_a_state_that_is_not_batch_first_is_refused_in_one_sentence(kind: type[GRU], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        check_state(kind(GRU.Config(name="GRU", hidden_size=5), WIDTH), WIDTH)


def test_an_agent_is_not_built_on_such_a_memory() -> None:
    config = ALGORITHMS["SAC"].Config(name="SAC")
    with pytest.raises(ValueError, match="put the batch first"):
        ALGORITHMS["SAC"].make_agent(config, replace(make_spec(Arch.Memory), memory=LayerFirst))


def test_the_check_of_a_state_draws_nothing() -> None:
    memory = GRU(GRU.Config(name="GRU", hidden_size=5), WIDTH)
    before = torch.get_rng_state()
    check_state(memory, WIDTH)
    assert torch.equal(torch.get_rng_state(), before)
