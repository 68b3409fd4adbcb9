"""The rows of a player: marked as the trial's clock marks them, and what cannot follow is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from envs.base import EnvSpec
from envs.layout import Layout
from envs.parallel_env_manager import ParallelEnvManager
from policies.play.rows import PlayedRows, PlayError
from tests.toys import CountingConfig, CountingFamily

SPEC = EnvSpec("Toy", spaces.Box(-1.0, 1.0, (2,)), spaces.Box(-1.0, 1.0, (1,)), 1)
MARKS = ("reward", "prev_action", "episode_start", "trial_start", "trial_end", "terminated")


def played(layout: Layout, n: int = 1, episodes: int = 2, horizon: int = 3) -> PlayedRows:
    return PlayedRows(layout, n, episodes=episodes, horizon=horizon)


def show(rows: PlayedRows, reward: float = 0.0, *, done: bool = False, flag: bool | None = None) -> None:
    """The next row of a single slot."""
    rows.arrive(
        np.array([0]),
        np.zeros((1, 2), np.float32),
        np.array([reward]),
        np.array([done]),
        flag=None if flag is None else np.array([flag]),
        chosen=np.ones((1, 1), np.float32),
    )


@pytest.mark.parametrize("flagged", [False, True], ids=["without-flag", "with-flag"])
def test_the_marks_are_those_of_the_clock(flagged: bool) -> None:
    """Over trials of random lengths, whether the observation shows the new-episode flag or not."""
    family = CountingFamily(CountingConfig(max_episode_steps=4))
    rng = np.random.default_rng(0)
    with ParallelEnvManager(family, 3, episodes_per_trial=3, seed=0) as manager:
        rows, mine = manager.rows, played(manager.layout, 3, 3, 4)
        manager.reset()
        chosen = np.zeros_like(rows.prev_action)
        for _ in range(40):
            own: Any = manager.layout.part(rows, 0, 3).obs
            flag = rows.episode_start & ~rows.trial_start if flagged else None
            slots = np.arange(3)
            mine.arrive(slots, own, rows.reward, rows.ended, flag=flag, chosen=chosen)
            for name in ("reward", "prev_action", "episode_start", "trial_start"):
                np.testing.assert_array_equal(getattr(mine.rows, name), getattr(rows, name), name)
            np.testing.assert_array_equal(mine.rows.obs, rows.obs)
            np.testing.assert_array_equal(mine.episode, manager.episode)
            chosen = rng.uniform(-1, 1, rows.prev_action.shape).astype(rows.prev_action.dtype)
            over = np.flatnonzero(rows.trial_end)
            if len(over):
                manager.step(chosen)
                manager.reset(slots=over.tolist())
            else:
                manager.step(chosen)


def test_the_first_observation_of_an_episode_has_no_reward() -> None:
    """A loop that resets at once would show it in the place of the last, and shift all rows by one."""
    rows = played(Layout(SPEC))
    show(rows)
    show(rows, 1.0, done=True)
    with pytest.raises(PlayError, match=r"Slot 0: the first observation .* not 2\.0 and False"):
        show(rows, 2.0)
    with pytest.raises(PlayError, match=r"not 0\.0 and True"):
        show(rows, done=True)
    show(rows)
    assert rows.rows.episode_start[0] and not rows.rows.trial_start[0]


def test_an_episode_whose_end_is_never_shown_is_refused() -> None:
    rows = played(Layout(SPEC), horizon=3)
    for _ in range(4):
        show(rows)
    with pytest.raises(PlayError, match="3 steps without done=True, the most of an episode: show the last"):
        show(rows)


def test_the_flag_of_the_environment_must_agree_with_the_episodes_of_the_player() -> None:
    rows = played(Layout(SPEC, with_flag=True), episodes=2)
    show(rows, flag=False)
    show(rows, done=True, flag=False)
    with pytest.raises(PlayError, match=r"begins a new trial after episode 1, .* have 2"):
        show(rows, flag=False)
    show(rows, flag=True)
    with pytest.raises(PlayError, match=r"goes on with one more episode after episode 2"):
        show(rows, flag=True)
    show(rows, done=True, flag=False)
    with pytest.raises(PlayError, match=r"goes on with one more episode after episode 2"):
        show(rows, flag=True)
    show(rows, flag=False)
    assert rows.rows.trial_start[0]


def test_a_slot_that_repeats_the_end_of_its_trial_waits() -> None:
    rows = played(Layout(SPEC), episodes=1)
    end = (np.zeros((1, 2), np.float32), np.array([1.5]), np.array([True]))
    assert not rows.idle(*end)
    show(rows)
    show(rows, 1.5, done=True)
    assert rows.idle(*end)
    assert not rows.idle(end[0], np.array([1.0]), end[2])
    assert not rows.idle(end[0] + 1, end[1], end[2])
    rows.reset(np.array([0]))
    assert not rows.idle(*end)
