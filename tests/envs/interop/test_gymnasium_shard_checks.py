"""GymnasiumShard: nothing of a third-party environment is stored that was not checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

from envs.base import SlotError
from tests.toys_gym import (
    Altered,
    CountingEnv,
    MaskedEnv,
    PictureEnv,
    act,
    bound_shard,
    start,
    written_arrays,
)

STILL = np.zeros((1, 2), np.float32)


def with_obs(obs: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda result: (obs(result[0]), *result[1:])


def with_value(place: int, value: Any) -> Callable[[Any], Any]:
    return lambda result: (*result[:place], value, *result[place + 1 :])


class Silent:
    """A thing that cannot even be described."""

    def __repr__(self) -> str:
        raise RuntimeError("no words")


REFUSED: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], str]] = {
    "NaN": (CountingEnv, with_obs(lambda obs: obs * np.nan), "the observation is not finite"),
    "infinite": (CountingEnv, with_obs(lambda obs: obs - np.inf), "the observation is not finite"),
    "beyond float32": (CountingEnv, with_obs(lambda obs: obs + 1e300), "not finite .in float32."),
    "None": (CountingEnv, with_obs(lambda obs: None), "the observation is None"),
    "a list": (CountingEnv, with_obs(list), "is a list, not an array of shape"),
    "longer": (CountingEnv, with_obs(lambda obs: np.zeros(7)), r"has the shape \(7,\), not \(4,\)"),
    "broadcastable": (CountingEnv, with_obs(lambda obs: np.zeros(1)), r"has the shape \(1,\), not \(4,\)"),
    "no dimensions": (CountingEnv, with_obs(lambda obs: np.float64(1)), r"has the shape \(\), not \(4,\)"),
    "a number": (CountingEnv, with_obs(lambda obs: 1.0), "is a float, not an array"),
    "objects": (CountingEnv, with_obs(lambda obs: obs.astype(object)), "is of type object, not float64"),
    "whole numbers for real ones": (
        CountingEnv,
        with_obs(lambda obs: obs.astype(np.int64)),
        "is of type int64, not float64",
    ),
    "complex": (CountingEnv, with_obs(lambda obs: obs + 0j), "is of type complex128"),
    "masked": (CountingEnv, with_obs(lambda obs: np.ma.masked_array(obs, obs > 0)), "is a MaskedArray"),
    "real numbers in a picture": (
        PictureEnv,
        with_obs(lambda obs: obs + 0.7),
        "is of type float64, not uint8",
    ),
    "wide numbers in a picture": (
        PictureEnv,
        with_obs(lambda obs: obs.astype(np.int64) + 300),
        "is of type int64, not uint8",
    ),
    "no dict": (MaskedEnv, with_obs(lambda obs: obs["vector"]), "the observation is a ndarray, not a dict"),
    "a missing key": (
        MaskedEnv,
        with_obs(lambda obs: {key: obs[key] for key in obs if key != "bits"}),
        r"\['bits'\] are missing",
    ),
    "an extra key": (MaskedEnv, with_obs(lambda obs: obs | {"more": 1}), r"\['more'\] are too much"),
    "a wrong part": (
        MaskedEnv,
        with_obs(lambda obs: obs | {"vector": np.zeros(3)}),
        r"observation 'vector' has the shape \(3,\)",
    ),
    "a number too high": (
        MaskedEnv,
        with_obs(lambda obs: obs | {"number": 4}),
        "observation 'number' is outside of its range: 4",
    ),
    "a number too low": (
        MaskedEnv,
        with_obs(lambda obs: obs | {"number": -2}),
        "observation 'number' is outside of its range: -2",
    ),
    "a real number": (
        MaskedEnv,
        with_obs(lambda obs: obs | {"number": 1.0}),
        "observation 'number' is of type float64",
    ),
    "a bit of two": (
        MaskedEnv,
        with_obs(lambda obs: obs | {"bits": np.array([0, 2, 1])}),
        "observation 'bits' is not of zeros and ones",
    ),
    "a mask of halves": (
        MaskedEnv,
        with_obs(lambda obs: obs | {"action_mask": np.full(4, 0.5)}),
        "'action_mask' is of type float64",
    ),
    "reward NaN": (CountingEnv, with_value(1, np.nan), "the reward is not finite: nan"),
    "reward infinite": (CountingEnv, with_value(1, -np.inf), "the reward is not finite: -inf"),
    "reward None": (CountingEnv, with_value(1, None), "the reward is None"),
    "reward vector": (
        CountingEnv,
        with_value(1, np.zeros(1)),
        "the reward is a ndarray, not a finite number",
    ),
    "reward text": (CountingEnv, with_value(1, "1"), "the reward is a str"),
    "reward of a googol googol": (
        CountingEnv,
        with_value(1, 10**400),
        "the reward is a int, not a finite number",
    ),
    "terminated None": (CountingEnv, with_value(2, None), "terminated is None, not True or False"),
    "truncated two": (CountingEnv, with_value(3, 2), "truncated is 2, not True or False"),
    "truncated array": (CountingEnv, with_value(3, np.array([True])), "truncated is a ndarray"),
    "truncated unspeakable": (CountingEnv, with_value(3, Silent()), "truncated is a Silent"),
    "four values": (CountingEnv, lambda result: result[:4], "step returned 4 values, not .* gym before 0.26"),
    "no values": (CountingEnv, lambda result: None, "step returned None, not"),
    "info None": (CountingEnv, with_value(4, None), "the info is None, not a dict"),
    "info of text": (CountingEnv, with_value(4, {"t": "high"}), "the info 't' is a str, not a finite number"),
    "info NaN": (CountingEnv, with_value(4, {"t": np.nan}), "the info 't' is not finite"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_of_its_space_is_refused_and_not_stored(name: str) -> None:
    kind, change, sentence = REFUSED[name]
    made: list[int] = []

    def make() -> gymnasium.Env[Any, Any]:
        made.append(1)
        return (
            Altered(kind(), change, at=2) if len(made) == 3 else kind()
        )  # the first is looked at, the third is slot 1

    shard, rows = bound_shard(make, 2, info_names=("t",))
    space = shard._writer.space
    first, second = (
        np.stack([np.asarray(action)] * 2)
        for action in (np.zeros(space.shape or (), space.dtype), np.ones(space.shape or (), space.dtype))
    )
    start(shard, [0, 1])
    act(shard, [0, 1], first)
    before = rows.copy()
    with pytest.raises(SlotError, match=sentence) as caught:
        act(shard, [0, 1], second)
    assert caught.value.slot == 1
    for stored, kept in zip(written_arrays(rows), written_arrays(before), strict=True):
        assert stored[1].tobytes() == kept[1].tobytes()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda result: result[0],
            "reset returned a ndarray, not .observation, info.: the interface of gym before 0.26",
        ),
        (with_obs(lambda obs: obs[:1]), r"has the shape \(1,\)"),
        (with_value(1, None), "the info is None"),
    ],
)
def test_a_reset_is_checked_like_a_step(change: Callable[[Any], Any], sentence: str) -> None:
    shard, rows = bound_shard(lambda: Altered(CountingEnv(), change, at=0))
    with pytest.raises(SlotError, match=sentence):
        start(shard, [0])
    assert not any(part.any() for part in written_arrays(rows))


ACCEPTED: dict[str, Callable[[Any], Any]] = {
    "float32": with_obs(lambda obs: obs.astype(np.float32)),
    "read-only": with_obs(lambda obs: np.broadcast_to(obs, (3, 4))[0]),
    "strided": with_obs(lambda obs: np.repeat(obs, 2)[::2]),
    "a subclass": with_obs(lambda obs: obs.view(np.recarray)),
    "reward of numpy": lambda result: with_value(1, np.float32(result[1]))(result),
    "reward without dimensions": lambda result: with_value(1, np.array(result[1]))(result),
    "flags of numpy": lambda result: with_value(2, np.bool_(result[2]))(result),
    "flags as numbers": lambda result: with_value(3, 0)(result),
    "a huge info": lambda result: with_value(4, result[4] | {"x": bytearray(10**6)})(result),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_is_harmless_gives_the_same_rows(name: str) -> None:
    played = []
    for make in (CountingEnv, lambda: Altered(CountingEnv(), ACCEPTED[name])):
        shard, rows = bound_shard(make, info_names=("t",))
        start(shard, [0], seeds=[3])
        act(shard, [0], STILL + 0.5)
        played.append([part.tobytes() for part in written_arrays(rows)])
    assert played[0] == played[1]


def test_both_flags_at_once_are_a_termination() -> None:
    shard, rows = bound_shard(
        lambda: Altered(CountingEnv(), lambda result: with_value(2, True)(with_value(3, True)(result)))
    )
    start(shard, [0])
    act(shard, [0], STILL)
    assert (rows.terminated[0], rows.truncated[0]) == (True, False)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_action_that_is_no_number_is_refused_by_its_slot(bad: float) -> None:
    shard, rows = bound_shard(CountingEnv, 4)
    start(shard, [0, 1, 2, 3])
    with pytest.raises(SlotError, match="is not a finite number") as caught:
        act(shard, [0, 2], [[0.0, 0.0], [0.0, bad]])
    assert caught.value.slot == 2
    assert not rows.reward.any(), "nothing was stepped"
