"""The picture of a defence."""

from __future__ import annotations

from envs.meta.make_env import make_family
from tests.envs.meta.played import Played


def test_a_picture_shows_what_red_holds():
    played = Played(make_family("CyberDefence", red="bline"), 1)
    played.reset([0], [[0.0]], [1])
    pictures = [played.shard.render(0)]
    for _ in range(16):
        played.step([0], [0])
        pictures.append(played.shard.render(0))
    # Each step of B_line changes something, and a sleeping blue loses more and more.
    red = [int((picture == (200, 90, 80)).all(axis=2).sum()) for picture in pictures]
    assert red[-1] > red[0] > 0
    assert len({picture.tobytes() for picture in pictures}) > 10
