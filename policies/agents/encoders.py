"""Encoders: an observation as one vector, whatever its space; memory and shortcut both read it."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from gymnasium import spaces
from torch import Tensor, nn

from buffers.base import Obs
from envs.base import ObsSpace
from envs.interop.spaces import MASK_KEY

# A picture is halved until no side is longer than this number of pixels.
SMALL = 8
# Channels of the first pair of convolutions, and of all others.
CHANNELS = (16, 32)
# Numbers of channels that pictures usually have.
USUAL = (1, 3, 4)


class Encoder(nn.Module, ABC):
    """[..., *shape] -> [..., out_dim]."""

    out_dim: int

    @abstractmethod
    def forward(self, obs: Obs) -> Tensor:
        """The observation as the networks read it."""


class Vector(Encoder):
    """A vector as float32; any other array that is not a picture is flattened into one."""

    def __init__(self, space: spaces.Box) -> None:
        super().__init__()
        self._ndim = len(space.shape)
        self.out_dim = int(torch.Size(space.shape).numel())

    def forward(self, obs: Obs) -> Tensor:
        """Flatten and convert; there are no parameters."""
        assert isinstance(obs, Tensor)
        if self._ndim == 1:
            return obs.float()
        return obs.float().reshape(*obs.shape[: obs.dim() - self._ndim], self.out_dim)


class Picture(Encoder):
    """Convolutions of a picture [h, w, c], and one layer to `size` numbers.

    Convolutions are 3x3 with ReLU, and halve the picture while it is large. Where the first axis is the
    shortest, and the last is no usual number of channels, the picture is [c, h, w]. Bytes become [0, 1] here,
    so that they stay bytes in the replay.
    """

    def __init__(self, space: spaces.Box, size: int) -> None:
        super().__init__()
        self._channels_first = space.shape[0] < min(space.shape[1:]) and space.shape[2] not in USUAL
        height, width, channels = space.shape
        if self._channels_first:
            channels, height, width = space.shape
        self._scale = 1.0 / 255.0 if space.dtype == "uint8" else 1.0
        self._shape = space.shape
        layers: list[nn.Module] = []
        # At least one convolution of each width; each is followed by its ReLU, so two layers stand for one.
        while max(height, width) > SMALL or len(layers) < 2 * len(CHANNELS):
            stride = 2 if max(height, width) > SMALL else 1
            wanted = CHANNELS[min(len(layers) // 2, len(CHANNELS) - 1)]
            layers += [nn.Conv2d(channels, wanted, kernel_size=3, stride=stride, padding=1), nn.ReLU()]
            # With padding 1 a stride of two halves a side, rounded up.
            height, width, channels = -(-height // stride), -(-width // stride), wanted
        self.net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(height * width * channels, size), nn.ReLU())
        self.out_dim = size

    def forward(self, obs: Obs) -> Tensor:
        """All pictures in one call."""
        assert isinstance(obs, Tensor)
        # [..., h, w, c] -> [N, c, h, w], as torch's convolutions want them
        pictures = obs.reshape(-1, *self._shape)
        if not self._channels_first:
            pictures = pictures.permute(0, 3, 1, 2)
        return self.net(pictures.float() * self._scale).reshape(*obs.shape[:-3], self.out_dim)


class Parts(Encoder):
    """The parts of a Dict observation, each by an encoder of its own, side by side."""

    def __init__(self, parts: dict[str, spaces.Box], picture_embedding: int) -> None:
        super().__init__()
        self._keys = tuple(parts)
        # A list, since not every key of an observation could name a module of a ModuleDict.
        self.parts = nn.ModuleList(_encoder(space, picture_embedding) for space in parts.values())
        self.out_dim = sum(int(part.out_dim) for part in self.parts)  # pyright: ignore[reportArgumentType]

    def forward(self, obs: Obs) -> Tensor:
        """The mask of actions is not an observation."""
        assert isinstance(obs, dict)
        return torch.cat([part(obs[key]) for key, part in zip(self._keys, self.parts, strict=True)], -1)


def encoder_of(space: ObsSpace, picture_embedding: int) -> Encoder:
    """The encoder of an observation space."""
    parts = readable_parts(space)
    if isinstance(space, spaces.Dict):
        return Parts(parts, picture_embedding)
    return _encoder(parts[""], picture_embedding)


def readable_parts(space: ObsSpace) -> dict[str, spaces.Box]:
    """The arrays that are encoded, by key; a `ValueError` of one sentence where there is anything else."""
    given = dict(space.spaces) if isinstance(space, spaces.Dict) else {"": space}
    given.pop(MASK_KEY, None)
    parts = {key: part for key, part in given.items() if isinstance(part, spaces.Box)}
    if not parts or len(parts) < len(given):
        raise ValueError(
            f"The agent reads vectors and pictures, or a Dict of them, not {space}: "
            "make them arrays in its family."
        )
    return parts


def mask_of(obs: Obs) -> Tensor | None:
    """[..., n] which actions are allowed, where the observation says so."""
    if isinstance(obs, dict):
        return obs.get(MASK_KEY)
    return None


def _encoder(space: spaces.Box, picture_embedding: int) -> Encoder:
    if len(space.shape) == 3:
        return Picture(space, picture_embedding)
    return Vector(space)
