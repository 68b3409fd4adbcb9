"""TMazeNoise against its definition."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from envs.meta.make_env import make_family
from tests.envs.meta.played import Played, random_actions, returns_of
from utils.options import OptionError

LEFT, RIGHT, UP, DOWN = range(4)

SETTINGS: list[dict[str, Any]] = [
    {"variant": "LN", "indicator_at": 0},
    {"variant": "LN", "indicator_at": 2, "agreement_at": 5},
    {"variant": "LS"},
    {"variant": "LS", "agreement_at": 3},
]


class PlainNoise:
    """One episode, one cell at a time; it is given the noise that was observed."""

    def __init__(self, length: int, copying: bool, cues: dict[int, int]) -> None:
        self.length, self.copying, self.cues = length, copying, cues
        self.cell = 0
        signs = list(cues.values())
        self.goal = UP if (signs == [1] or (len(signs) == 2 and signs[0] != signs[1])) else DOWN

    def observe(self) -> list[int]:
        return [int(self.cell == 0), self.cues.get(self.cell, 0), int(self.cell == self.length - 1)]

    def step(self, action: int, noise: float) -> tuple[float, bool]:
        if self.cell < self.length - 1:
            if not self.copying:
                self.cell += 1
                return 0.0, False
            if action == (UP if noise == 1 else DOWN):
                self.cell += 1
                return 0.1, False
            return 0.0, False
        if action in (LEFT, RIGHT):
            if self.copying:
                return 0.0, False
            action = {LEFT: UP, RIGHT: DOWN}[action]
        return (4.0 if action == self.goal else -3.0), True


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_an_episode_is_what_the_definition_says(settings: dict[str, Any]):
    family = make_family("TMazeNoise", length=8, **settings)
    rng = np.random.default_rng(0)
    played, ends = Played(family, 1), set()
    where = [
        settings.get("indicator_at", 1),
        *([settings["agreement_at"]] if "agreement_at" in settings else []),
    ]
    for episode in range(60):
        tasks = family.sample_tasks(rng, 1, "train")
        plain = PlainNoise(
            8, settings["variant"] == "LS", dict(zip(where, tasks[0].astype(int).tolist(), strict=True))
        )
        rows, steps, over, reward = played.reset([0], tasks, [episode]), 0, False, 0.0
        random = rng.random() * (episode % 2)
        while not over:
            assert isinstance(rows.obs, np.ndarray)
            assert rows.obs[0, :3].tolist() == plain.observe()
            assert rows.obs[0, 3] in (-1, 1)
            assert rows.info[0, :2].tolist() == [steps, plain.cell]
            noise = float(rows.obs[0, 3])
            aimed = rng.random() >= random
            action = (
                family.oracle_action(rows.obs, tasks, rows.info) if aimed else random_actions(rng, family, 1)
            )[0]
            played.step([0], [action])
            reward, over = plain.step(int(action), noise)
            steps += 1
            assert (rows.reward[0], rows.terminated[0]) == (reward, over)
            assert rows.info[0, 2] == (reward == 4.0)
        ends.add(reward)
    assert ends == {4.0, -3.0}


@pytest.mark.parametrize("variant", ["LN", "LS"])
def test_noise_is_fair_and_new_at_every_step_in_every_episode(variant: str):
    family = make_family("TMazeNoise", variant=variant)
    n, steps = 500, 90
    tasks = family.sample_tasks(np.random.default_rng(0), n, "test")
    played = Played(family, n)
    rows = played.reset(np.arange(n), tasks, np.arange(n))
    assert isinstance(rows.obs, np.ndarray)
    seen = [rows.obs[:, 3].copy()]
    for _ in range(steps):
        played.step(
            np.arange(n), np.full(n, LEFT)
        )  # which copies nothing: in LS everybody stays in cell 0, and its noise changes
        seen.append(rows.obs[:, 3].copy())
    noise = np.array(seen)
    bound = 5 / math.sqrt(noise.size)
    assert abs(noise.mean()) < bound
    assert abs((noise[1:] * noise[:-1]).mean()) < bound
    assert abs((noise[:, 1:] * noise[:, :-1]).mean()) < bound
    assert abs((noise * tasks[:, 0]).mean()) < bound, "the noise tells nothing of the cue"


@pytest.mark.parametrize("variant, best", [("LN", 4.0), ("LS", 13.9)])
@pytest.mark.parametrize("oracle", [True, False])
def test_the_returns_of_oracle_and_random_are_the_reported_ones(variant: str, best: float, oracle: bool):
    family = make_family("TMazeNoise", variant=variant)
    returns = returns_of(family, family.sample_tasks(np.random.default_rng(1), 3000, "test"), oracle=oracle)
    reference = family.spec.reference
    assert reference is not None and reference.oracle == best
    if oracle:
        np.testing.assert_allclose(returns, best)
    else:
        assert returns.mean() == pytest.approx(
            reference.random, abs=4 * returns.std() / math.sqrt(len(returns)) + 0.01
        )


def test_cues_are_uniform_also_in_pairs():
    one = make_family("TMazeNoise").sample_tasks(np.random.default_rng(0), 100, "train")
    assert one.shape == (100, 1) and one.mean() == 0 and set(one[:, 0]) == {-1.0, 1.0}
    two = make_family("TMazeNoise", agreement_at=50).sample_tasks(np.random.default_rng(0), 100, "train")
    assert np.unique(two, axis=0, return_counts=True)[1].tolist() == [25] * 4


def test_the_time_limit_follows_the_length():
    assert make_family("TMazeNoise").config.max_episode_steps == 150
    assert make_family("TMazeNoise", length=20).config.max_episode_steps == 30
    assert make_family("TMazeNoise", max_episode_steps=120).config.max_episode_steps == 120


@pytest.mark.parametrize(
    "settings", [{"indicator_at": 99}, {"agreement_at": 1}, {"agreement_at": 120}], ids=str
)
def test_cues_that_have_no_cell_of_their_own_are_refused(settings: dict[str, int]):
    with pytest.raises(OptionError, match="cells of their own below 99"):
        make_family("TMazeNoise", **settings)
