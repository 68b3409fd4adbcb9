"""What acts is loaded without a critic, and nothing that acts may be missing."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from policies.agents.acting import acting_part, load_acting
from utils.options import OptionError


class Pair(nn.Module):
    """Stands for an agent with a critic."""

    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = nn.Linear(2, 2), nn.Linear(2, 1)


def test_what_acts_is_copied_and_the_critic_stays_as_it_is() -> None:
    source, target = Pair(), Pair()
    critic = target.critic.weight.clone()
    found = acting_part(source.state_dict())
    assert set(found) == {"actor.weight", "actor.bias"}
    load_acting(target, found)
    assert torch.equal(target.actor.weight, source.actor.weight) and torch.equal(target.critic.weight, critic)
    with torch.no_grad():
        source.actor.weight.zero_()
    assert found["actor.weight"].any(), "it is a copy"


@pytest.mark.parametrize(("more", "less"), [({"actor.odd": torch.zeros(1)}, ""), ({}, "actor.bias")])
def test_what_does_not_fit_is_named(more: dict[str, torch.Tensor], less: str) -> None:
    parameters = acting_part(Pair().state_dict()) | more
    parameters.pop(less, None)
    with pytest.raises(OptionError, match=less or "actor.odd"):
        load_acting(Pair(), parameters)
