"""What short trials cost a memory: one pass forward and backward over rows where more and more columns reset.

200 rows of 16 columns, with 1, 20 and 200 rows at which some column starts a trial. Beside LSTM and GRU
stands the LSTM that cuts time at each of these rows, as it does where they are few. CPU seconds of one
thread, which a busy machine changes little; all cases in turn.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from time import process_time
from unittest import mock

import torch
from torch import Tensor

from benchmarks.parts.machine import facts, write
from policies.memory import MEMORIES, lstm
from policies.memory.base import Memory

RESULTS = Path(__file__).parents[2] / "results" / "update_short_trials.json"
ROWS, COLUMNS, INPUTS, HIDDEN = 200, 16, 64, 128
STARTS = (1, 20, 200)
CUTS = "LSTM, cut at each row"


def resets(starts: int) -> Tensor:
    """[T, B] the first row resets all columns, and so many rows in all reset one or more."""
    reset = torch.zeros(ROWS, COLUMNS, dtype=torch.bool)
    reset[0] = True
    for number in range(1, starts):
        reset[number * ROWS // starts, number % COLUMNS] = True
    return reset


def passes() -> dict[str, Callable[[], None]]:
    """By the name of a case: one pass forward and backward."""
    torch.manual_seed(0)
    x = torch.randn(ROWS, COLUMNS, INPUTS, requires_grad=True)
    made: dict[str, Callable[[], None]] = {}
    for name, kind in (("LSTM", "LSTM"), (CUTS, "LSTM"), ("GRU", "GRU")):
        memory = MEMORIES[kind](MEMORIES[kind].Config(hidden_size=HIDDEN), INPUTS)
        most = ROWS if name == CUTS else lstm.MOST_CUTS
        for starts in STARTS:
            made[f"{name}, {starts}"] = _pass_of(memory, x, resets(starts), most)
    return made


def _pass_of(memory: Memory, x: Tensor, reset: Tensor, most_cuts: int) -> Callable[[], None]:
    def one() -> None:
        with mock.patch.object(lstm, "MOST_CUTS", most_cuts):
            out, _ = memory(x, memory.initial_state(COLUMNS), reset)
            out.sum().backward()

    return one


def milliseconds(repeats: int) -> dict[str, float]:
    """The median of each case, all in turn."""
    cases = passes()
    spent: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(repeats + 2):
        for name, one in cases.items():
            before = process_time()
            one()
            spent[name].append(1000 * (process_time() - before))
    return {name: round(statistics.median(times[2:]), 2) for name, times in spent.items()}


def measure_short_trials(repeats: int) -> None:
    """Measure, print and save."""
    machine, found = facts(), milliseconds(repeats)
    print(machine["text"])
    print(f"{'CPU ms forward and backward':28}" + "".join(f"{starts:>10}" for starts in STARTS))
    for name in ("LSTM", CUTS, "GRU"):
        print(f"{name:28}" + "".join(f"{found[f'{name}, {starts}']:10.1f}" for starts in STARTS))
    write(RESULTS, {"machine": machine, "repeats": repeats, "cpu_ms_by_rows_that_start_a_trial": found})
