"""What clients of all kinds answer is read into the same; what cannot be read is a sentence."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from envs.remote.protocol import Answer, RemoteError
from envs.remote.rollouts.answers import Observed, read_reset, read_step, reset_arguments


@pytest.mark.parametrize(
    "answer",
    [
        "hello",
        ("hello", {}),
        {"observation": "hello", "reward": None, "done": False},
        SimpleNamespace(observation="hello", reward=None, done=False, metadata=None),
    ],
)
def test_the_first_observation_is_unwrapped(answer: Any) -> None:
    assert read_reset(answer) == Observed("hello")


def test_an_observation_that_is_a_tuple_or_a_dict_is_left_alone() -> None:
    assert read_reset((1, 2)).observation == (1, 2)
    assert read_reset({"board": [0]}).observation == {"board": [0]}
    # Gymnasium's own tuple was unwrapped already: the key is the environment's.
    assert read_reset(({"observation": 3}, {})).observation == {"observation": 3}


def test_an_episode_may_be_over_at_its_reset() -> None:
    assert read_reset({"observation": 1, "done": True}).terminated


@pytest.mark.parametrize(
    ("answer", "ends"),
    [
        ((1, 2.0, True, False, {"a": 1}), (True, False)),
        ((1, 2.0, False, True, {"a": 1}), (False, True)),
        ((1, 2.0, True, {"a": 1}), (True, False)),
        ((1, 2.0, True, {"a": 1, "TimeLimit.truncated": True}), (False, True)),
        ({"observation": 1, "reward": 2, "done": True, "metadata": {"a": 1}}, (True, False)),
        (
            {"observation": 1, "reward": 2, "terminated": False, "truncated": True, "info": {"a": 1}},
            (False, True),
        ),
        (
            SimpleNamespace(observation=1, reward=2, done=True, metadata={"a": 1, "truncated": True}),
            (False, True),
        ),
    ],
)
def test_a_step_of_any_form_is_read(answer: Any, ends: tuple[bool, bool]) -> None:
    seen = read_step(answer)
    assert (seen.observation, seen.reward, seen.metadata["a"]) == (1, 2.0, 1)
    assert (seen.terminated, seen.truncated) == ends


def test_a_cut_is_told_by_our_own_answers_and_in_the_observation() -> None:
    assert read_step(Answer({"truncated": True}, 1.0, True)).truncated
    assert not read_step(Answer({"truncated": True}, 1.0, False)).ended


@pytest.mark.parametrize(("reward", "read"), [(None, 0.0), (True, 1.0), (np.float32(0.5), 0.5), (3, 3.0)])
def test_a_reward_is_a_plain_float(reward: Any, read: float) -> None:
    seen = read_step((0, reward, False, False, {}))
    assert seen.reward == read and type(seen.reward) is float


def test_what_is_no_answer_is_refused() -> None:
    with pytest.raises(RemoteError, match="a str: an object or a dict with observation, reward and done"):
        read_step("hello")
    with pytest.raises(RemoteError, match="is needed, or Gymnasium's tuple"):
        read_step({"observation": 1})
    with pytest.raises(RemoteError, match="The reward of a step is nan"):
        read_step((0, float("nan"), False, False, {}))


def test_a_reset_gets_what_its_signature_takes_and_nothing_is_dropped() -> None:
    def everything(**kwargs: Any) -> None: ...
    def gymnasium(*, seed: int | None = None, options: Any = None) -> None: ...
    def nothing() -> None: ...

    assert reset_arguments(everything, 7, {"wind": 1}) == {"seed": 7, "wind": 1}
    assert reset_arguments(gymnasium, 7, {}) == {"seed": 7} and reset_arguments(nothing, None, {}) == {}
    with pytest.raises(RemoteError, match="reset is given wind, and this client's takes only options, seed"):
        reset_arguments(gymnasium, 7, {"wind": 1})
    with pytest.raises(RemoteError, match="reset is given seed, and this client's takes no arguments"):
        reset_arguments(nothing, 7, {})
