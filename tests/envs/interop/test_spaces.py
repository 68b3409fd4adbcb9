"""The encodings of Gymnasium spaces: how they stand in a row, which are refused, which actions come out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from envs.base import SlotError
from envs.interop.spaces import MASK_KEY, ActionWriter, ObsReader, SpaceError, ValueRefused, allowed_choices

TWO = spaces.Discrete(2)
ONE_SLOT = np.array([7])


def box(low: Any, high: Any, dtype: Any, shape: tuple[int, ...] | None = None) -> spaces.Box:
    return spaces.Box(
        np.array(low, dtype) if shape is None else low,
        np.array(high, dtype) if shape is None else high,
        shape,
        dtype,
    )


def described(space: spaces.Space[Any]) -> tuple[Any, ...]:
    assert isinstance(space, spaces.Box)
    return space.shape, space.dtype.name, float(space.low.min()), float(space.high.max())


# -- observations --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (box(-2, 3, np.float64, (4,)), ((4,), "float32", -2.0, 3.0)),
        (box(-1.7e308, 1.7e308, np.float64, (1,)), ((1,), "float32", -np.inf, np.inf)),
        (box(0, 255, np.uint8, (8, 8, 3)), ((8, 8, 3), "uint8", 0.0, 255.0)),
        (box(-5, 9, np.int64, (2,)), ((2,), "int64", -5.0, 9.0)),
        (box(0, 1, np.bool_, (2,)), ((2,), "uint8", 0.0, 1.0)),
        (spaces.Discrete(3, start=4), ((3,), "float32", 0.0, 1.0)),
        (spaces.MultiDiscrete([2, 3]), ((5,), "float32", 0.0, 1.0)),
        (spaces.MultiBinary((2, 2)), ((2, 2), "float32", 0.0, 1.0)),
    ],
    ids=str,
)
def test_each_space_has_one_encoding(space: spaces.Space[Any], expected: tuple[Any, ...]) -> None:
    assert described(ObsReader(space, TWO).space) == expected


@pytest.mark.parametrize(
    ("space", "value", "expected"),
    [
        (spaces.Discrete(3, start=4), 5, [0, 1, 0]),
        (spaces.Discrete(3, start=4), np.int32(6), [0, 0, 1]),
        (spaces.MultiDiscrete([2, 3], start=[0, 1]), np.array([1, 1]), [0, 1, 1, 0, 0]),
        (spaces.MultiDiscrete(np.full((2, 2), 2)), np.array([[1, 0], [0, 1]]), [0, 1, 1, 0, 1, 0, 0, 1]),
        (spaces.MultiBinary(2), np.array([True, False]), [1, 0]),
        (box(0, 9, np.int64, (2,)), np.array([1, 9], np.int8), [1, 9]),
        (box(0, 1, np.bool_, (2,)), np.array([True, False]), [1, 0]),
    ],
    ids=str,
)
def test_values_are_read_as_stated(space: spaces.Space[Any], value: Any, expected: list[float]) -> None:
    read = ObsReader(space, TWO).read(value)
    assert isinstance(read, np.ndarray)
    assert read.tolist() == expected


@pytest.mark.parametrize("value", [[10, 0], [0, 13], [-1, 0]], ids=str)
def test_whole_numbers_stay_within_their_bounds(value: list[int]) -> None:
    reader = ObsReader(box([0, 0], [9, 12], np.int16), TWO)
    reader.read(np.array([9, 12], np.int16))
    with pytest.raises(ValueRefused, match="outside of its bounds"):
        reader.read(np.array(value, np.int16))


def test_real_numbers_may_leave_their_bounds_as_many_environments_let_them() -> None:
    read = ObsReader(box(-1, 1, np.float32, (1,)), TWO).read(np.array([1.5]))
    assert isinstance(read, np.ndarray)
    assert read.tolist() == [1.5]


@pytest.mark.parametrize(
    ("space", "sentence"),
    [
        (spaces.Tuple([TWO, TWO]), "the observation space is a Tuple"),
        (spaces.Text(5), "the observation space is a Text"),
        (spaces.Dict({"inner": spaces.Dict({"x": TWO})}), "the observation 'inner' is a Dict"),
        (
            spaces.Dict({"task": box(0, 1, np.float32, (1,))}),
            "an observation 'task', a name that is reserved",
        ),
        (
            spaces.Dict({MASK_KEY: spaces.MultiBinary(3)}),
            "2 whole numbers belong to Discrete.2., not MultiBinary.3.",
        ),
        (spaces.Dict({MASK_KEY: box(0, 1, np.float32, (2,))}), "that cannot be a mask of its actions"),
    ],
    ids=str,
)
def test_spaces_that_cannot_be_read_are_refused_by_name(space: spaces.Space[Any], sentence: str) -> None:
    with pytest.raises(SpaceError, match=sentence):
        ObsReader(space, TWO)


def test_a_mask_of_continuous_actions_is_refused() -> None:
    with pytest.raises(SpaceError, match="discrete whole numbers belong to Box"):
        ObsReader(spaces.Dict({MASK_KEY: spaces.MultiBinary(2)}), box(-1, 1, np.float32, (2,)))


def test_a_mask_of_several_choices_has_them_side_by_side() -> None:
    reader = ObsReader(spaces.Dict({MASK_KEY: box(0, 1, np.int8, (5,))}), spaces.MultiDiscrete([2, 3]))
    assert described(reader.space[MASK_KEY]) == ((5,), "int8", 0.0, 1.0)  # pyright: ignore[reportIndexIssue]


# -- actions -------------------------------------------------------------------------------------------------


def settled(space: spaces.Space[Any], action: Any, rescale: bool = True) -> Any:
    return ActionWriter(space, rescale).convert(np.array([action]), ONE_SLOT)[0]


def test_continuous_actions_are_stretched_to_their_bounds() -> None:
    space = box([-2.0, 0.0], [2.0, 10.0], np.float64)
    assert described(ActionWriter(space).space) == ((2,), "float32", -1.0, 1.0)
    assert settled(space, [-1.0, -1.0]).tolist() == [-2.0, 0.0]
    assert settled(space, [0.5, 0.0]).tolist() == [1.0, 5.0]
    assert settled(space, [7.0, -7.0]).tolist() == [2.0, 0.0], "beyond the bound is the bound"
    assert settled(space, [0.0, 0.0]).dtype == np.float64


def test_actions_that_need_no_stretching_stay_bit_for_bit() -> None:
    actions = np.random.default_rng(0).uniform(-1, 1, (50, 3)).astype(np.float32) * np.float32(1e-20)
    writer = ActionWriter(box(-1, 1, np.float32, (3,)))
    assert writer.convert(actions, np.arange(50)).tobytes() == actions.tobytes()


def test_unscaled_actions_are_those_of_the_environment() -> None:
    space = box([-2.0, -np.inf], [2.0, np.inf], np.float64)
    assert described(ActionWriter(space, rescale=False).space) == ((2,), "float32", -np.inf, np.inf)
    assert settled(space, [3.0, 50.0], rescale=False).tolist() == [2.0, 50.0]


def test_the_environment_gets_actions_of_its_own() -> None:
    given = np.zeros((1, 3), np.float32)
    ActionWriter(box(-1, 1, np.float32, (3,))).convert(given, ONE_SLOT)[:] = 5.0
    assert not given.any()


@pytest.mark.parametrize(
    ("space", "action", "expected"),
    [
        (spaces.Discrete(3, start=-1), 2, 1),
        (spaces.MultiDiscrete([2, 3], start=[5, 0]), [1, 2], [6, 2]),
        (spaces.MultiBinary(2), [1, 0], [1, 0]),
    ],
    ids=str,
)
def test_choices_are_counted_from_0(space: spaces.Space[Any], action: Any, expected: Any) -> None:
    found = settled(space, action)
    assert found.tolist() == expected
    assert space.contains(found)


@pytest.mark.parametrize(
    ("space", "action"),
    [
        (spaces.Discrete(3), 3),
        (spaces.Discrete(3), -1),
        (spaces.Discrete(3), 0.5),
        (spaces.Discrete(3), np.nan),
        (spaces.MultiBinary(2), [0, 2]),
    ],
    ids=str,
)
def test_what_is_no_choice_is_refused_by_its_slot(space: spaces.Space[Any], action: Any) -> None:
    with pytest.raises(SlotError, match="is none of") as caught:
        settled(space, action)
    assert caught.value.slot == 7


@pytest.mark.parametrize(
    ("space", "sentence"),
    [
        (box(-np.inf, np.inf, np.float32, (1,)), "has actions without bounds"),
        (box(0, 255, np.uint8, (1,)), "its actions are a Box of uint8"),
        (spaces.Tuple([TWO]), "its actions are Tuple"),
        (spaces.MultiDiscrete(np.array([[2, 2]])), "flat MultiDiscrete"),
    ],
    ids=str,
)
def test_actions_that_cannot_be_served_are_refused_by_name(space: spaces.Space[Any], sentence: str) -> None:
    with pytest.raises(SpaceError, match=sentence):
        ActionWriter(space)


# -- masks ---------------------------------------------------------------------------------------------------


def test_masked_choices_are_uniform_among_the_allowed() -> None:
    uniforms = (np.arange(3000) + 0.5) / 3000
    mask = np.tile(np.array([0, 1, 0, 1, 1], np.int8), (3000, 1))
    chosen = allowed_choices(spaces.Discrete(5), uniforms, mask)
    assert np.bincount(chosen, minlength=5).tolist() == [0, 1000, 0, 1000, 1000]


def test_each_row_has_its_own_mask() -> None:
    mask = np.array([[1, 0, 0], [0, 0, 1], [0, 0, 0]])
    assert allowed_choices(spaces.Discrete(3), np.full(3, 0.5), mask).tolist() == [0, 2, 1], (
        "where nothing is allowed, anything is"
    )


def test_choices_without_a_mask_are_uniform_over_all() -> None:
    uniforms = np.stack([np.linspace(0, 1, 6, endpoint=False)] * 2, axis=1)
    assert allowed_choices(spaces.MultiDiscrete([2, 3]), uniforms).tolist() == [
        [0, 0],
        [0, 0],
        [0, 1],
        [1, 1],
        [1, 2],
        [1, 2],
    ]


def test_several_choices_are_masked_one_by_one() -> None:
    mask = np.array([[0, 1, 1, 0, 1]])
    for first in (0.0, 0.999):
        assert allowed_choices(spaces.MultiDiscrete([2, 3]), np.array([[first, 0.0]]), mask).tolist() == [
            [1, 0]
        ]
    assert allowed_choices(spaces.MultiDiscrete([2, 3]), np.array([[0.0, 0.999]]), mask).tolist() == [[1, 2]]
