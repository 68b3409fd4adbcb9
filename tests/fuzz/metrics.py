"""Metrics files: damaged bytes, and lines that are no metrics.

Promised: every line that is whole comes back, in its order; a resumed run goes on behind them, and what it
appends can be read; reports and pictures leave out what is damaged, in words.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from policies.evaluation import curves_of
from tests.fuzz.bytes_of_files import DAMAGE
from tests.fuzz.engine import BrokenPromise, Mutation, Target, check_sentence
from tests.fuzz.values import with_odd_value
from tests.utils.report.made_runs import make_run
from utils.logger import METRICS, STEP_KEY, Logger, read_metrics
from utils.options import OptionError
from utils.report.command import run_report
from utils.report.folders import find_runs

# Pictures take a while: one case in so many draws them.
DRAWN = 25


def changed_line(content: bytes, mutation: Mutation) -> bytes:
    """One line has another value in one place."""
    lines = content.split(b"\n")
    rng = mutation.rng
    number = int(rng.integers(len(lines)))
    try:
        tree = json.loads(lines[number])
    except (ValueError, RecursionError):
        return content
    lines[number] = json.dumps(with_odd_value(tree, rng)[0]).encode()
    return b"\n".join(lines)


def moved_line(content: bytes, mutation: Mutation) -> bytes:
    """One line stands elsewhere, or there a second time."""
    lines = content.split(b"\n")
    rng = mutation.rng
    line = lines[rng.integers(len(lines))]
    if rng.random() < 0.5:
        lines.remove(line)
    lines.insert(int(rng.integers(len(lines) + 1)), line)
    return b"\n".join(lines)


class Metrics(Target):
    """The metrics of one run."""

    name = "metrics"
    num_cases = 200
    kinds = (*DAMAGE, "value", "value", "move")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        tables = [[[1.0 + step, 2.0], [0.5, step / 3]] for step in range(5)]
        self._run = make_run(folder / "run", tables)
        self._path = self._run / METRICS
        self._content = self._path.read_bytes()
        self._lines = self._content.split(b"\n")[:-1]

    def play(self, mutations: Sequence[Mutation]) -> None:
        """Damage the file, read it in every way, go on with it, and read it again."""
        content = self._content
        for one in mutations:
            if one.kind in DAMAGE:
                content = DAMAGE[one.kind](content, one.rng)
            else:
                content = {"value": changed_line, "move": moved_line}[one.kind](content, one)
        self._path.write_bytes(content)
        rng = Mutation("", sum(one.draw for one in mutations)).rng

        # Lines that nobody touched come back; readers of whole runs leave the rest out in words.
        self._compare(read_metrics(self._path), content.split(b"\n"))
        self._report(drawn=int(rng.integers(DRAWN)) == 0)

        # A resumed run goes on behind its checkpoint, which stood at the end of a line.
        known = int(rng.integers(len(self._lines) + 1))
        offset = sum(len(line) + 1 for line in self._lines[:known])
        with Logger(self._run, resume_at=offset) as logger:
            logger.log(10**6, {"new": math.pi})
        *lines, rest = self._path.read_bytes().split(b"\n")
        found = [json.loads(line) for line in lines]
        if rest or found[-1] != {STEP_KEY: 10**6, "new": math.pi}:
            raise BrokenPromise(f"the last line is {(rest or lines[-1])[:200]!r}")
        self._compare(found[:-1], content[:offset].split(b"\n")[:-1])
        if logger.offset != self._path.stat().st_size:
            raise BrokenPromise(f"the offset is {logger.offset}, the file has other bytes")

    def _compare(self, found: list[dict[str, Any]], lines: Sequence[bytes]) -> None:
        """The lines of before that are whole are among those found, in their order, and no other of them."""
        before = [json.loads(line) for line in self._lines]
        # A line may have lost a space, and says the same.
        wanted = [value for line in lines if (value := _value(line)) in before]
        if (others := [line for line in found if line in before]) != wanted:
            raise BrokenPromise(f"of {len(wanted)} whole lines came back {len(others)}")

    def _report(self, *, drawn: bool) -> None:
        try:
            for line in read_metrics(self._path):
                curves_of(line)
            find_runs([self._run])
            if drawn:
                run_report([f"report={self._run}", f"report.to={self.folder / 'report'}"])
                shutil.rmtree(self.folder / "report")
        except OptionError as error:
            check_sentence(error)


def _value(line: bytes) -> Any:
    """What a line says; None where it is no JSON."""
    with suppress(ValueError, RecursionError):
        return json.loads(line)
    return None
