"""What acts of an agent, apart from its critic: all that an agent's file holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from utils.options import OptionError

# The parts of an agent that act: the networks of its critic are left out.
ACTING = ("actor.", "normaliser.")


def acting_part(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of what acts, in tensors of their own."""
    return {
        name: value.detach().cpu().clone() if isinstance(value, Tensor) else value
        for name, value in parameters.items()
        if name.startswith(ACTING)
    }


def load_acting(agent: nn.Module, parameters: Mapping[str, Any]) -> None:
    """Give an agent what acts; a critic without parameters stays as it is: only learning reads it."""
    found = agent.load_state_dict(parameters, strict=False)
    missing = [name for name in found.missing_keys if name.startswith(ACTING)]
    for name in [*missing, *found.unexpected_keys]:
        raise OptionError(f"The parameters do not fit the agent of their config: {name}.")
