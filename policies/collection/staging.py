"""Staging: what is needed on a device of every round goes there in one copy, since each costs a launch
however small it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from policies.agents.base import PolicyRows

ALIGNED = 16
"""Bytes at whose multiples a part begins: of every type's size one."""


class Staging:
    """Tensors of the host, packed into one buffer there (pinned, for CUDA), and their image on a device:
    views of a like buffer, made once.

    The next `send` may overwrite the image before the device has read it: whoever sends waits for a result in
    between, as acting does.
    """

    def __init__(self, parts: Mapping[str, Tensor], device: str) -> None:
        size = sum(_room(part) for part in parts.values())
        self._here = torch.zeros(size, dtype=torch.uint8, pin_memory=device.startswith("cuda"))
        self._there = torch.zeros(size, dtype=torch.uint8, device=device)
        self._packed = dict(_views(self._here, parts))
        self._image = dict(_views(self._there, parts))

    def send(self, parts: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Their image, once the copy has been made in the order of what the device is given to do."""
        for name, view in self._packed.items():
            view.copy_(parts[name])
        self._there.copy_(self._here, non_blocking=True)
        return self._image


def parts_of(rows: PolicyRows) -> dict[str, Tensor]:
    """The tensors of rows by name."""
    obs = (
        {f"obs.{key}": part for key, part in rows.obs.items()}
        if isinstance(rows.obs, dict)
        else {"obs": rows.obs}
    )
    return obs | {
        name: getattr(rows, name) for name in ("reward", "prev_action", "episode_start", "trial_start")
    }


def rows_of(parts: Mapping[str, Tensor]) -> PolicyRows:
    """The inverse."""
    obs = {name.removeprefix("obs."): part for name, part in parts.items() if name.startswith("obs.")}
    return PolicyRows(
        obs or parts["obs"],
        *(parts[name] for name in ("reward", "prev_action", "episode_start", "trial_start")),
    )


def _room(part: Tensor) -> int:
    return -(-part.numel() * part.element_size() // ALIGNED) * ALIGNED


def _views(buffer: Tensor, parts: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    begin = 0
    for name, part in parts.items():
        yield (
            name,
            buffer[begin : begin + part.numel() * part.element_size()].view(part.dtype).view(part.shape),
        )
        begin += _room(part)
