"""The actions of all agents as one, and back."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from envs.interop.pettingzoo.actions import JointActions

CHOICES = {"a": spaces.Discrete(3, start=1), "b": spaces.MultiDiscrete([2, 4])}
NUMBERS = {"a": spaces.Box(-1, 1, (2, 1)), "b": spaces.Box(0, 5, (1,), np.float64)}


def test_choices_are_counted_from_0_and_come_back_as_they_were() -> None:
    actions = JointActions(CHOICES)
    assert actions.space == spaces.MultiDiscrete([3, 2, 4])
    joint = actions.joint({"a": [3, 1], "b": [[1, 3], [0, 2]]}, dict.fromkeys("ab", np.ones(2, np.bool_)))
    assert joint.tolist() == [[2, 1, 3], [0, 0, 2]]
    back = actions.split(joint[0])
    assert back["a"] == 3 and back["b"].tolist() == [1, 3]
    assert all(CHOICES[name].contains(back[name]) for name in CHOICES)


def test_numbers_keep_their_shape_and_the_widest_type() -> None:
    actions = JointActions(NUMBERS)
    assert isinstance(actions.space, spaces.Box)
    assert actions.space.shape == (3,) and actions.space.dtype == np.float64
    back = actions.split(np.array([0.5, -0.5, 1 / 3]))
    assert all(NUMBERS[name].contains(back[name]) for name in NUMBERS) and back["b"] == 1 / 3


def test_dicts_of_each_environment_may_leave_out_the_dead() -> None:
    actions, lives = JointActions(CHOICES), {"a": np.array([True, False]), "b": np.ones(2, np.bool_)}
    joint = actions.joint([{"a": 2, "b": np.array([1, 1])}, {"b": np.array([0, 0])}], lives)
    assert joint.tolist() == [[1, 1, 1], [0, 0, 0]]


def test_actions_of_two_kinds_are_refused() -> None:
    with pytest.raises(TypeError, match="b has actions that cannot stand beside"):
        JointActions({"a": CHOICES["a"], "b": NUMBERS["b"]})
