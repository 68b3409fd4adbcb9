"""What loops hand to a player: batched or not, with and without flag, task and mask, of any environment."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envs.base import EnvSpec, ObsSpace
from envs.layout import Layout
from policies.play.inputs import Face, LoopInputs, Seen
from policies.play.rows import PlayError

VECTOR = spaces.Box(-np.inf, np.inf, (3,), np.float32)
MASKED = spaces.Dict(
    {"grid": spaces.Box(0, 9, (2, 2), np.uint8), "action_mask": spaces.Box(0, 1, (4,), np.int8)}
)


def inputs(n: int = 1, obs: ObsSpace = VECTOR, face: Face | None = None, **layout: bool) -> LoopInputs:
    action = spaces.Discrete(4) if obs is MASKED else spaces.Box(-1.0, 1.0, (1,))
    return LoopInputs(Layout(EnvSpec("Toy", obs, action, 2), **layout), n, face)


def read(reader: LoopInputs, obs: Any, reward: Any = 0.0, done: Any = False, info: Any = None) -> Seen:
    return reader.read(obs, reward, done, info, single=reader.is_single(obs))[0]


def test_one_observation_or_a_batch() -> None:
    one = read(inputs(), [1, 2, 3], 0.5, True)
    assert one.obs.shape == (1, 3) and one.obs.dtype == np.float32  # pyright: ignore[reportAttributeAccessIssue]
    assert one.reward.tolist() == [0.5] and one.done.tolist() == [True]
    assert inputs().is_single(np.zeros(3)) and not inputs().is_single(np.zeros((1, 3)))
    many = read(inputs(2), np.ones((2, 3)), [1, 2], [0, 1])
    assert many.reward.tolist() == [1.0, 2.0] and many.done.tolist() == [False, True]


@pytest.mark.parametrize(
    ("size", "flag", "task"), [(3, None, [7.0, 8.0]), (5, None, [3.0, 4.0]), (6, [True], [3.0, 4.0])]
)
def test_a_vector_may_come_with_task_and_flag_or_without(size: int, flag: Any, task: list[float]) -> None:
    seen = read(inputs(with_task=True, with_flag=True), np.arange(6.0)[:size], info={"task": [7, 8]})
    assert np.array_equal(seen.obs, [[0, 1, 2]])  # pyright: ignore[reportArgumentType]
    assert seen.flag is None if flag is None else seen.flag.tolist() == flag  # pyright: ignore
    assert seen.task is not None and seen.task.tolist() == [task]


@pytest.mark.parametrize(
    ("n", "obs", "message"),
    [
        (1, np.zeros(5), r"has the shape \(5,\) .*: this agent reads \(3,\), or \(4,\) with new_episode"),
        (1, np.zeros((1, 2)), r"has the shape \(1, 2\)"),
        (2, np.zeros((3, 3)), r"has the shape \(3, 3\) .* \[2, \.\.\.\] for all"),
        (2, np.zeros(3), "one observation, and the player has 2 slots"),
        (1, [0, 1, np.nan], "not finite"),
        (1, [0, 1, 1e300], "no float32"),
        (1, ["a", "b", "c"], "type <U1"),
        (1, {"x": 1}, r"is a dict with \['x'\]: this agent reads \(3,\)"),
        (1, None, r"has the shape \(\) and the type object"),
        (2, [[0, 1, 2], [0, 1]], "lists of different lengths: this agent reads"),
    ],
)
def test_an_observation_of_the_wrong_shape_is_one_sentence(n: int, obs: Any, message: str) -> None:
    reader = inputs(n, with_flag=message.startswith("has the shape \\(5"))
    with pytest.raises(PlayError, match=message) as error:
        read(reader, obs)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("wrong", [{"reward": [1, 2, 3]}, {"reward": np.inf}, {"done": [True, False, True]}])
def test_rewards_and_ends_are_one_for_each_slot(wrong: dict[str, Any]) -> None:
    with pytest.raises(PlayError, match=r"one number for each|not finite"):
        read(inputs(2), np.zeros((2, 3)), **wrong)


@pytest.mark.parametrize("info", ["info", [], [{}], [{}, None], ({}, {}, {})])
def test_infos_are_one_for_each_slot(info: Any) -> None:
    with pytest.raises(PlayError, match="The info is a list, and not one of 2 dicts"):
        read(inputs(2), np.zeros((2, 3)), done=True, info=info)


def test_a_mask_may_come_in_the_info() -> None:
    reader, grid = inputs(obs=MASKED), np.ones((2, 2), np.int64)
    for obs, info in (
        ({"grid": grid, "action_mask": [1, 0, 1, 1]}, None),
        ({"grid": grid}, {"action_mask": np.array([1, 0, 1, 1])}),
    ):
        seen: Any = read(reader, obs, info=info).obs
        assert seen["action_mask"].tolist() == [[1, 0, 1, 1]] and seen["grid"].dtype == np.uint8
    with pytest.raises(PlayError, match=r"has the parts \['grid'\]: this agent reads 'action_mask' \(4,\)"):
        read(reader, {"grid": grid})
    with pytest.raises(PlayError, match="no uint8"):
        read(reader, {"grid": grid - 2, "action_mask": [1, 1, 1, 1]})
    many: Any = read(
        inputs(2, obs=MASKED), {"grid": [grid, grid]}, info=[{"action_mask": [1, 0, 0, i]} for i in (0, 1)]
    )
    assert many.obs["action_mask"][:, 3].tolist() == [0, 1]


def test_the_end_of_a_batch_needs_the_info_that_tells_what_is_shown() -> None:
    reader, obs, ends = inputs(2, with_flag=True), np.zeros((2, 3)), [False, True]
    with pytest.raises(PlayError, match="Slot 1 has ended, and only the info"):
        read(reader, obs, done=ends)
    assert read(reader, obs, done=ends, info={}).done.tolist() == ends
    assert read(reader, np.zeros((2, 4)), done=ends).flag is not None


def test_the_last_observation_is_read_before_the_first_of_the_next_episode() -> None:
    finals = np.array([None, np.full(3, 7.0)], object)
    info = {"final_obs": finals, "_final_obs": np.array([False, True])}
    last, begin, begun = inputs(2).read(np.ones((2, 3)), [1, 2], [False, True], info, single=False)
    assert begin is not None and begun.tolist() == [False, True]
    assert last.obs[:, 0].tolist() == [1, 7] and begin.obs[:, 0].tolist() == [1, 1]  # pyright: ignore
    assert last.reward.tolist() == [1, 2] and not begin.reward.any() and not begin.done.any()


def test_the_last_observation_may_be_a_dict() -> None:
    """Gymnasium puts those of its vector environments into an array of objects."""
    batch = {"grid": np.ones((2, 2, 2), np.uint8), "action_mask": np.ones((2, 4), np.int8)}
    final = {"grid": np.full((2, 2), 5), "action_mask": np.array([0, 1, 1, 1])}
    info = {"final_obs": np.array([final, None], object)}
    last, begin, begun = inputs(2, obs=MASKED).read(batch, [1, 2], [True, False], info, single=False)
    assert begin is not None and begun.tolist() == [True, False]
    seen: Any = last.obs
    assert seen["grid"][:, 0, 0].tolist() == [5, 1] and seen["action_mask"][:, 0].tolist() == [0, 1]


class Numbered(gymnasium.Env[Any, Any]):
    """Observations and actions that no network reads as they are."""

    observation_space = spaces.Discrete(3)
    action_space = spaces.Box(0.0, 10.0, (1,))


def test_an_environment_with_spaces_of_its_own_is_translated() -> None:
    layout = Layout(EnvSpec("Toy", spaces.Box(0.0, 1.0, (3,)), spaces.Box(-1.0, 1.0, (1,)), 1))
    face = Face.of(Numbered(), layout, rescale=True)
    assert face is not None and face.writer.convert(np.array([[0.5]]), np.array([0])).tolist() == [[7.5]]
    seen = read(LoopInputs(layout, 1, face), 2)
    assert np.array_equal(seen.obs, [[0, 0, 1]])  # pyright: ignore[reportArgumentType]
    many = read(LoopInputs(layout, 2, face), np.array([1, 0]))
    assert np.array_equal(many.obs, [[0, 1, 0], [1, 0, 0]])  # pyright: ignore[reportArgumentType]
    with pytest.raises(PlayError, match="outside of its range"):
        read(LoopInputs(layout, 1, face), 3)


def test_an_environment_of_other_actions_is_refused() -> None:
    layout = Layout(EnvSpec("Toy", VECTOR, spaces.Discrete(4), 1))
    with pytest.raises(PlayError, match=r"acts in Discrete\(4\), and .* takes Box\(0"):
        Face.of(Numbered(), layout, rescale=True)
    with pytest.raises(PlayError, match="cannot be read"):
        Face.of(type("Text", (Numbered,), {"observation_space": spaces.Text(3)})(), layout, rescale=True)


def test_an_environment_whose_spaces_the_agent_has_needs_no_translation() -> None:
    layout = Layout(EnvSpec("Toy", VECTOR, spaces.Box(-1.0, 1.0, (1,)), 1), with_flag=True)
    for space in (VECTOR, layout.obs_space):
        env = type(
            "Same", (Numbered,), {"observation_space": space, "action_space": layout.spec.action_space}
        )
        assert Face.of(env(), layout, rescale=True) is None
