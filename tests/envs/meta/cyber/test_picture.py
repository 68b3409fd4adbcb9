"""The picture of a defence."""

from __future__ import annotations

import numpy as np

from envs.meta.cyber import scenario as sc
from envs.meta.lettering import write_words
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


def words_in(picture: np.ndarray, words: str, colour: tuple[int, int, int]) -> bool:
    """Whether these words stand anywhere in a picture, in this colour."""
    stamp = np.zeros((10, 8 * len(words) - 2, 3), np.uint8)
    write_words(stamp, 0, 0, words, (255, 255, 255))
    wanted, found = stamp[..., 0] > 0, (picture == colour).all(axis=2)
    places = np.lib.stride_tricks.sliding_window_view(found, wanted.shape)
    return bool((places == wanted).all(axis=(2, 3)).any())


def test_a_picture_says_in_words_who_is_where_and_what_both_did():
    played = Played(make_family("CyberDefence", red="bline"), 1)
    played.reset([0], [[0.0]], [1])
    played.step([0], [sc.action_number(sc.RESTORE, sc.OP_SERVER)])
    picture = played.shard.render(0)
    assert all(words_in(picture, host, (245, 245, 245)) for host in sc.HOSTS)
    assert words_in(picture, "Restore Op_Server0", (40, 60, 140))
    assert words_in(picture, "sweep User", (200, 90, 80)) and not words_in(picture, "scan", (200, 90, 80))


def test_a_picture_shows_what_blue_believes_beside_what_is_true():
    played, before = Played(make_family("CyberDefence", red="bline"), 1), False
    played.reset([0], [[0.0]], [1])
    for _ in range(12):
        played.step([0], [sc.SLEEP])
        before |= words_in(played.shard.render(0), "exploit", (90, 90, 100))
    picture = played.shard.render(0)
    assert before, "blue has seen an exploit"
    assert words_in(picture, "priv", (90, 90, 100)) and words_in(picture, "clean", (90, 90, 100))
