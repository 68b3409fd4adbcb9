"""Staging: all inputs of a round go to a device in one copy, since each copy costs a launch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from policies.agents.base import PolicyRows

# Each tensor begins at a multiple of so many bytes, which is a multiple of the size of every type.
ALIGNED = 16
# The fields of rows that are one tensor each; observations may be several.
_FIELDS = ("reward", "prev_action", "episode_start", "trial_start")


class Staging:
    """Packs tensors of the host into one buffer (pinned, for CUDA), and copies it into its twin on a device.

    Both buffers and the views of them are made once. The next `send` may overwrite the device's tensors
    before they have been read: the caller must wait for a result in between, as acting does.
    """

    def __init__(self, tensors: Mapping[str, Tensor], device: str) -> None:
        # One buffer of bytes on each side. Pinned memory lets CUDA copy while the host goes on.
        size = sum(_room_for(tensor) for tensor in tensors.values())
        self._host_buffer = torch.zeros(size, dtype=torch.uint8, pin_memory=device.startswith("cuda"))
        self._device_buffer = torch.zeros(size, dtype=torch.uint8, device=device)

        # Views with the types and shapes of the tensors: writing a view is packing, reading one unpacking.
        self._host_views = dict(_views(self._host_buffer, tensors))
        self._device_views = dict(_views(self._device_buffer, tensors))

    def send(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The same tensors on the device, copied before the device does anything that it is given later."""
        # 1. Pack: cheap copies within the host's memory.
        for name, view in self._host_views.items():
            view.copy_(tensors[name])

        # 2. One copy to the device, which the host does not wait for.
        self._device_buffer.copy_(self._host_buffer, non_blocking=True)
        return self._device_views


def tensors_of_rows(rows: PolicyRows) -> dict[str, Tensor]:
    """The tensors of rows by name; the parts of a dict observation are `obs.<part>`."""
    # An observation is one array or a dict of them; the other fields are one tensor each.
    if isinstance(rows.obs, dict):
        obs = {f"obs.{key}": part for key, part in rows.obs.items()}
    else:
        obs = {"obs": rows.obs}
    return obs | {name: getattr(rows, name) for name in _FIELDS}


def rows_from_tensors(tensors: Mapping[str, Tensor]) -> PolicyRows:
    """The rows that `tensors_of_rows` has taken apart."""
    # Parts with the prefix make up a dict; without any, the observation is one tensor.
    obs = {name.removeprefix("obs."): part for name, part in tensors.items() if name.startswith("obs.")}
    return PolicyRows(obs or tensors["obs"], *(tensors[name] for name in _FIELDS))


def _room_for(tensor: Tensor) -> int:
    """The bytes that a tensor takes in a buffer, rounded up to the alignment."""
    return -(-tensor.numel() * tensor.element_size() // ALIGNED) * ALIGNED


def _views(buffer: Tensor, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """A view of the buffer for each tensor, one after the other."""
    begin = 0
    for name, tensor in tensors.items():
        # Bytes are read as another type only where they begin at a multiple of its size.
        size = tensor.numel() * tensor.element_size()
        yield name, buffer[begin : begin + size].view(tensor.dtype).view(tensor.shape)
        begin += _room_for(tensor)
