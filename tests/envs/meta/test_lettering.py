"""Words in pictures."""

from __future__ import annotations

import numpy as np

from envs.meta.lettering import write_words


def test_letters_are_dots_of_the_colour_and_differ():
    drawn = set()
    for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:-_":
        picture = np.zeros((5, 3, 3), np.uint8)
        write_words(picture, 0, 0, letter, (9, 8, 7), size=1)
        assert set(map(tuple, picture.reshape(-1, 3).tolist())) <= {(0, 0, 0), (9, 8, 7)}
        drawn.add(picture.tobytes())
    assert len(drawn) == 39, "no two letters look alike"


def test_small_letters_are_written_as_capitals_and_an_unknown_one_as_a_block():
    pictures = np.zeros((3, 10, 16, 3), np.uint8)
    for picture, word in zip(pictures, ("it", "IT", "é"), strict=True):
        write_words(picture, 0, 0, word, (255, 255, 255))
    assert (pictures[0] == pictures[1]).all() and (pictures[2, :, :6] == 255).all()


def test_what_does_not_fit_is_cut_off():
    picture = np.zeros((7, 20, 3), np.uint8)
    write_words(picture, 2, 5, "HOST", (255, 255, 255))
    assert picture[:2].sum() == picture[:, :5].sum() == 0 < picture.sum()
