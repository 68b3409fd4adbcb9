"""The measurement of short trials: its cases are what they are called, and its result is what pages say."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks.parts.learning.short_trials import COLUMNS, CUTS, RESULTS, ROWS, STARTS, milliseconds, resets
from policies.memory import lstm


@pytest.mark.parametrize("starts", STARTS)
def test_so_many_rows_start_a_trial(starts: int) -> None:
    reset = resets(starts)
    assert reset.shape == (ROWS, COLUMNS) and int(reset.any(1).sum()) == starts
    assert reset[0].all()


def test_every_case_is_measured_and_nothing_is_left_changed() -> None:
    before = lstm.MOST_CUTS
    found = milliseconds(1)
    assert len(found) == 3 * len(STARTS) and all(spent > 0 for spent in found.values())
    assert before == lstm.MOST_CUTS and torch.is_grad_enabled()


def test_an_lstm_was_measured_to_take_a_fifth_of_the_time_with_short_trials() -> None:
    """What CHANGELOG.md and docs/memories.md say."""
    found = json.loads(RESULTS.read_text())["cpu_ms_by_rows_that_start_a_trial"]
    shares = {starts: found[f"LSTM, {starts}"] / found[f"{CUTS}, {starts}"] for starts in STARTS}
    assert round(shares[200], 1) == 0.2 and round(shares[1], 1) == 1.0
    assert found["LSTM, 200"] < found["GRU, 200"]
