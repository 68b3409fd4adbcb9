"""Encoders: pictures of every size, arrays of every shape, and Dicts of both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from buffers.base import Obs
from envs.interop.spaces import MASK_KEY
from policies.agents.encoders import encoder_of


def picture(height: int, width: int, channels: int = 3, dtype: type = np.uint8) -> spaces.Box:
    return spaces.Box(0, 255 if dtype is np.uint8 else 1, (height, width, channels), dtype)


def some(space: spaces.Space[np.ndarray], *leading: int, seed: int = 0) -> torch.Tensor:
    space.seed(seed)
    return torch.from_numpy(
        np.stack([space.sample() for _ in range(int(np.prod(leading)))]).reshape(
            *leading, *(space.shape or ())
        )
    )


@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 5, 3), (7, 7, 3), (3, 21, 4), (84, 84, 3)], ids=str)
def test_a_picture_of_any_size_becomes_features_that_depend_on_all_of_it(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    space = picture(*shape)
    encoder, seen = encoder_of(space, 32), some(space, 2, 3).float().requires_grad_()
    features = encoder(seen)
    assert (encoder.out_dim, features.shape) == (32, (2, 3, 32))
    features[0, 1].sum().backward()
    assert seen.grad is not None
    assert (seen.grad[0, 1] != 0).float().mean() > 0.9
    assert not seen.grad[1].any() and not seen.grad[0, 0].any(), "and on no other picture"
    assert sum(parameter.numel() for parameter in encoder.parameters()) < 110_000


def test_bytes_are_scaled_and_numbers_are_not() -> None:
    encoders = []
    for dtype in (np.uint8, np.float32):
        torch.manual_seed(0)
        encoders.append(encoder_of(picture(5, 5, dtype=dtype), 8))
    seen = some(picture(5, 5), 4)
    assert seen.dtype == torch.uint8
    torch.testing.assert_close(encoders[0](seen), encoders[1](seen.float() / 255))


@pytest.mark.parametrize("shape", [(3, 5, 5), (4, 84, 60), (1, 7, 9)], ids=str)
def test_a_picture_whose_channels_come_first_is_read_as_the_same_one_with_channels_last(
    shape: tuple[int, int, int],
) -> None:
    encoders = []
    for size in (shape, (*shape[1:], shape[0])):
        torch.manual_seed(0)
        encoders.append(encoder_of(picture(*size), 8))
    seen = some(picture(*shape), 2, 3)
    torch.testing.assert_close(encoders[0](seen), encoders[1](seen.movedim(-3, -1)))


@pytest.mark.parametrize("shape", [(1, 64, 3), (5, 9, 4), (3, 3, 3)], ids=str)
def test_a_strip_is_a_picture_whose_channels_come_last(shape: tuple[int, int, int]) -> None:
    encoder: Any = encoder_of(picture(*shape), 8)
    assert encoder.net[0].in_channels == shape[2]


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((4,), np.float32), ((4,), np.uint8), ((2, 3), np.int64), ((), np.float32), ((2, 1, 2, 2), np.float32)],
)
def test_what_is_no_picture_is_read_as_a_vector(shape: tuple[int, ...], dtype: type) -> None:
    space = spaces.Box(0, 100, shape, dtype)
    encoder, seen = encoder_of(space, 8), some(space, 2, 5)
    assert list(encoder.parameters()) == []
    assert encoder.out_dim == np.prod(shape)
    assert torch.equal(encoder(seen), seen.reshape(2, 5, -1).float())
    assert torch.equal(encoder(seen[0]), seen[0].reshape(5, -1).float())


def test_a_dict_is_its_parts_side_by_side_but_for_the_mask() -> None:
    parts = {
        "type": spaces.Box(-1, 1, (2,), np.float32),
        "a.b": picture(5, 5),
        MASK_KEY: spaces.Box(0, 1, (3,), np.int8),
        "keys": picture(7, 7),
    }
    space = spaces.Dict(parts)
    encoder = encoder_of(space, 8)
    obs: Obs = {key: some(part, 2, 3) for key, part in parts.items()}
    features = encoder(obs)
    assert features.shape == (2, 3, encoder.out_dim) == (2, 3, 8 + 8 + 2)
    assert torch.equal(features, encoder(dict(reversed(obs.items()))))
    for key, part in parts.items():
        other = encoder(obs | {key: some(part, 2, 3, seed=1)})
        assert (other != features).any() == (key != MASK_KEY)
