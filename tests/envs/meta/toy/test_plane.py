"""The plane that the toy families share: where an action moves the point, and what info tells of the goal."""

from __future__ import annotations

import numpy as np

from envs.layout import Layout
from envs.meta.make_env import make_family
from envs.meta.toy.plane import STEP, on_circle, towards


def test_a_point_moves_by_a_tenth_of_its_clipped_action() -> None:
    family = make_family("PointRobot", start="fixed")
    shard, layout = family.make_shard(2), Layout(family.spec)
    rows = layout.allocate(2)
    shard.bind(layout.part(rows, 0, 2))
    slots = np.arange(2)
    shard.reset(slots, np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([1, 2], np.uint64))
    shard.step(slots, np.array([[0.5, -0.25], [7.0, 0.0]], np.float32))
    assert isinstance(rows.obs, np.ndarray)
    np.testing.assert_allclose(rows.obs, [[0.05, -0.025], [0.1, 0.0]])
    np.testing.assert_allclose(rows.info[:, 0], [np.hypot(0.95, 0.025), np.hypot(0.1, 1.0)])


def test_the_shortest_way_is_each_axis_as_fast_as_it_can_then_still() -> None:
    obs = np.array([[0.0, 0.0], [0.0, 0.95]], np.float32)
    actions = towards(np.array([[1.0, -0.02], [0.0, 1.0]]), obs)
    np.testing.assert_allclose(actions, [[1.0, -0.2], [0.0, 0.5]], atol=1e-6)
    drifted = towards(np.array([[0.0, 0.0]]), obs[:1], np.array([[STEP / 2, 0.0]]))
    np.testing.assert_allclose(drifted, [[-0.5, 0.0]])


def test_the_picture_shows_the_goal_and_the_point() -> None:
    family = make_family("PointRobot", start="fixed")
    shard, layout = family.make_shard(1), Layout(family.spec)
    shard.bind(layout.part(layout.allocate(1), 0, 1))
    shard.reset(np.array([0]), np.array([[1.0, 0.0]]), np.array([1], np.uint64))
    picture = shard.render(0)
    assert picture.dtype == np.uint8 and picture.ndim == 3
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) == 3, "ground, goal and point"


def test_points_on_a_circle_are_at_their_angles() -> None:
    angles = np.array([0.0, 1.0, -2.5])
    np.testing.assert_allclose(
        on_circle(angles, 2.0), 2.0 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    )
    assert on_circle(angles[:0]).shape == (0, 2)
