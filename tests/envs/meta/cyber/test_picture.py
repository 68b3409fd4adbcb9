"""The picture of a defence."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from envs.meta.cyber import picture as drawn
from envs.meta.cyber import scenario as sc
from envs.meta.cyber.attackers import Attacker
from envs.meta.cyber.picture import HELD, INK, OPEN_ROUTE, RED_WORDS, ROUTE
from envs.meta.lettering import write_words
from envs.meta.make_env import make_family
from envs.meta.pictures import GROUND, HINT, ROBOT, WALL
from tests.envs.meta.played import Played


def test_a_picture_shows_what_red_holds():
    played = Played(make_family("CyberDefence", red="bline"), 1)
    played.reset([0], [[0.0]], [1])
    pictures = [played.shard.render(0)]
    for _ in range(16):
        played.step([0], [0])
        pictures.append(played.shard.render(0))
    # Each step of B_line changes something, and a sleeping blue loses more and more.
    red = [int((picture == HELD).all(axis=2).sum()) for picture in pictures]
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
    assert all(words_in(picture, host, GROUND) for host in sc.HOSTS)
    assert words_in(picture, "Restore Op_Server0", ROBOT)
    assert words_in(picture, "sweep User", RED_WORDS) and not words_in(picture, "scan", RED_WORDS)


def test_a_picture_shows_what_blue_believes_beside_what_is_true():
    played, before = Played(make_family("CyberDefence", red="bline"), 1), False
    played.reset([0], [[0.0]], [1])
    for _ in range(12):
        played.step([0], [sc.SLEEP])
        before |= words_in(played.shard.render(0), "exploit", INK)
    picture = played.shard.render(0)
    assert before, "blue has seen an exploit"
    assert words_in(picture, "priv", INK) and words_in(picture, "clean", INK)


def test_decoys_have_a_letter_each_and_a_legend_says_which():
    assert len(set(drawn.DECOY_LETTERS)) == len(sc.DECOYS)
    played = Played(make_family("CyberDefence", red="sleep"), 1)
    played.reset([0], [[2.0]], [1])
    bare = played.shard.render(0)
    for decoy in (sc.TOMCAT, sc.FEMITTER):
        played.step([0], [sc.action_number(sc.FIRST_DECOY + decoy, 10)])
    picture = played.shard.render(0)
    # Words are looked for where they are: below, and in the box of User2.
    legends, (rows, columns) = bare[-70:], (slice(156, 216), slice(8, 128))
    changed = np.where((picture == bare).all(axis=2, keepdims=True), 0, picture)[rows, columns]
    for letter, name in zip(drawn.DECOY_LETTERS, sc.DECOYS, strict=True):
        legend = f"{letter} {name.removesuffix('SMPT')}"
        assert words_in(legends, legend, WALL), legend
        # A white letter on blue.
        assert words_in(changed, letter, GROUND) == (name in ("Tomcat", "Femitter")), letter


def test_routes_are_faint_until_red_may_take_them():
    played = Played(make_family("CyberDefence", red="bline"), 1)
    played.reset([0], [[0.0]], [1])

    def pixels(colour: tuple[int, int, int]) -> int:
        return int((played.shard.render(0) == colour).all(axis=2).sum())

    start = pixels(ROUTE), pixels(OPEN_ROUTE)
    assert start[0] > 400 and start[1] > 0, "the Enterprise subnet is open from the start"
    for _ in range(16):
        played.step([0], [sc.SLEEP])
    # B_line has root on a user host and on Enterprise2, so that the Operational subnet is open too.
    assert pixels(ROUTE) < start[0] and pixels(OPEN_ROUTE) > start[1] + 100


def test_the_routes_of_a_hidden_network_are_those_of_its_task():
    family = make_family("CyberDefence", variant="hidden", red="bline")
    tasks = family.sample_tasks(np.random.default_rng(0), 2, "train")
    tasks[1] = tasks[0]
    tasks[:, 2:6] = [[1, 1, 1, 1], [2, 2, 2, 2]]
    played = Played(family, 2)
    played.reset([0, 1], tasks, [1, 1])
    shard: Any = played.shard
    assert shard.attackers.routes(0) == [(3, 7), (9, 1), (10, 1), (11, 1), (12, 1)]
    assert (shard.render(0) != shard.render(1)).any()


def luminance(colour: tuple[int, int, int]) -> float:
    """The relative luminance of WCAG 2."""
    parts = [part / 255 for part in colour]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_words_can_be_read():
    behind = [drawn.CLEAN, drawn.LOST, HELD, drawn.UNKNOWN, HINT]
    pairs = [*((INK, one) for one in behind)]
    pairs += [*((GROUND, one) for one in (WALL, ROBOT)), *((one, GROUND) for one in (WALL, ROBOT, RED_WORDS))]
    for word, ground in pairs:
        dark, light = sorted((luminance(word), luminance(ground)))
        # The ratio that WCAG 2 asks for (level AA).
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (word, ground)


@pytest.mark.parametrize("red", ["bline", "meander"])
def test_every_move_of_red_can_be_filmed(red: str):
    played = Played(make_family("CyberDefence", red=red), 1)
    played.reset([0], [[float(Attacker[red])]], [2])
    shard: Any = played.shard
    frames, moves = [shard.render(0)], set[int]()
    for _ in range(99):
        played.step([0], [sc.SLEEP])
        frames.append(shard.render(0))
        moves.add(int(shard.attackers.verb[0]))
    assert moves == {1, 2, 3, 4, 5}, "sweep, scan, exploit, escalate, impact"
    assert {frame.shape for frame in frames} == {frames[0].shape} and frames[0].dtype == np.uint8
    # Many encoders of films want even sides.
    assert not any(side % 2 for side in frames[0].shape[:2])
    assert sum((one != other).any() for one, other in itertools.pairwise(frames)) > 12
