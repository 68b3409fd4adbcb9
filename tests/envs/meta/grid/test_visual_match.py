"""PassiveVisualMatch against its definition."""

from __future__ import annotations

import math

import numpy as np
import pytest

from envs.meta.make_env import make_family
from tests.envs.meta.grid.plain_rooms import CHOICE_ROOM, CUE_ROOM, PIXELS, PlainRooms, with_letter
from tests.envs.meta.played import Played, random_actions, returns_of

LETTERS = "RGB"


def cue_in(image: np.ndarray) -> tuple[int, int, str]:
    """Where in a first image, and which, the only coloured wall is."""
    found = [
        (r, c, letter)
        for r in range(5)
        for c in range(5)
        for letter in LETTERS
        if image[r, c].tolist() == PIXELS[letter]
    ]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("seed", range(12))
def test_an_episode_is_what_the_definition_says(seed: int):
    family = make_family("PassiveVisualMatch", apple_steps=50)
    rng = np.random.default_rng(seed)
    tasks = family.sample_tasks(rng, 1, "train")
    # In a third of the episodes the player takes another colour for the task and chooses its door.
    assumed = (tasks + (seed % 3 == 0)) % 3
    played = Played(family, 1)
    rows = played.reset([0], tasks, [seed])
    assert isinstance(rows.obs, dict)
    row, column, letter = cue_in(rows.obs["image"][0])
    assert LETTERS.index(letter) == tasks[0, 0]
    plain = PlainRooms(
        with_letter(CUE_ROOM, row, column + 3, letter), (2, 5), CHOICE_ROOM, (5, 5), (15, 50, 15)
    )
    plain.wanted = letter.lower()
    for step in range(80):
        assert not rows.terminated[0]
        aimed = rng.random() < 0.85
        action = (
            family.oracle_action(rows.obs, assumed, rows.info) if aimed else random_actions(rng, family, 1)
        )[0]
        played.step([0], [action])
        reward = plain.step(int(action))
        if step + 1 == 15:
            plain.put_apples(int(rows.info[0, 3]))
        assert rows.reward[0] == reward
        assert np.array_equal(rows.obs["image"][0], plain.image())
        assert rows.info[0].tolist() == [step + 1, *plain.player, plain.apples(), plain.done]
    assert rows.terminated[0]
    assert not plain.done or seed % 3


@pytest.mark.parametrize("colour", [0, 1, 2])
@pytest.mark.parametrize("chosen", [0, 1, 2])
def test_the_first_door_counts_and_there_is_no_second(colour: int, chosen: int):
    family = make_family("PassiveVisualMatch", apple_steps=1)
    played = Played(family, 1)
    task, belief = np.array([[float(colour)]]), np.array([[float(chosen)]])
    rows, rewards = played.reset([0], task, [1]), []
    for step in range(31):
        aim = belief if step < 24 else task
        rows = played.step([0], family.oracle_action(rows.obs, aim, rows.info))
        rewards.append(float(rows.reward[0]))
    assert sum(rewards) == rows.info[0, 4] * 5 == 5 * (colour == chosen)


def test_colours_and_their_walls_are_uniform():
    family = make_family("PassiveVisualMatch")
    n = 6000
    tasks = family.sample_tasks(np.random.default_rng(0), n, "test")
    assert np.unique(tasks, return_counts=True)[1].tolist() == [n / 3] * 3
    played = Played(family, n)
    rows = played.reset(np.arange(n), tasks, np.random.default_rng(1).integers(2**63, size=n))
    assert isinstance(rows.obs, dict)
    spots = [cue_in(image)[:2] for image in rows.obs["image"][:2000]]
    found, counts = np.unique(spots, axis=0, return_counts=True)
    assert len(found) == 8 and [2, 2] not in found.tolist()
    assert np.abs(counts / 2000 - 1 / 8).max() < 5 * math.sqrt(1 / 8 * 7 / 8 / 2000)


@pytest.mark.parametrize("oracle", [True, False])
def test_the_returns_of_oracle_and_random_are_the_reported_ones(oracle: bool):
    family = make_family("PassiveVisualMatch")
    returns = returns_of(family, family.sample_tasks(np.random.default_rng(1), 2000, "test"), oracle=oracle)
    reference = family.spec.reference
    assert reference is not None
    error = returns.std() / math.sqrt(len(returns))
    assert returns.mean() == pytest.approx(
        reference.oracle if oracle else reference.random, abs=4 * error + 0.05
    )


def test_the_horizon_follows_the_apple_steps():
    assert make_family("PassiveVisualMatch").config.max_episode_steps == 90
    other = make_family("PassiveVisualMatch", apple_steps=250)
    assert (other.config.max_episode_steps, other.spec.reference) == (280, None)
