"""Counters: plain data that survive JSON, and means over the trials that started last."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np

from policies.collection.wave import WaveResult
from policies.run.progress import RECENT, Counters, by_episode, played_text


def wave(n: int, value: float) -> WaveResult:
    return WaveResult(
        10 * n,
        np.full((n, 2), value),
        np.full((n, 2), 5),
        np.zeros((n, 2), bool),
        np.zeros(n, bool),
        np.zeros((n, 1)),
    )


def test_counters_survive_json_exactly() -> None:
    counters = Counters(update_credit=0.1 + 0.2)
    counters.count(wave(3, 1 / 3), warmup=True)
    counters.count(wave(2, 0.7), warmup=False)
    again = Counters(**json.loads(json.dumps(asdict(counters))))
    assert again == counters
    assert (counters.env_steps, counters.episodes, counters.trials, counters.warmup_trials) == (50, 10, 2, 3)


def test_recent_returns_are_those_of_the_last_hundred_trials() -> None:
    counters = Counters()
    counters.count(wave(RECENT, 0.0), warmup=False)
    counters.count(wave(RECENT // 2, 4.0), warmup=False)
    assert counters.mean_return_by_episode == [2.0, 2.0]
    assert len(counters.recent_lengths) == RECENT


def test_episodes_are_named_from_one() -> None:
    assert by_episode("x/return", np.array([1.0, 2.0])) == {
        "x/return_episode_1": 1.0,
        "x/return_episode_2": 2.0,
    }


def test_the_tasks_of_a_wave_are_told_in_a_few_words() -> None:
    assert played_text({"train/trial_steps": 3.0}) == ""
    shares = {f"curriculum/share/{name}": part for name, part in (("easy", 0.25), ("hard", 0.75))}
    assert played_text(shares) == "hard 75% easy 25%"
    assert played_text({**shares, "curriculum/stage": 2}) == "stage 2: hard 75% easy 25%"
    assert played_text({"curriculum/effective_tasks": 12.3}) == "about 12 again"
    many = {f"curriculum/share/level_{number}": number / 15 for number in range(1, 6)}
    assert played_text(many) == "level_5 33% level_4 27% level_3 20% level_2 13% ..."
