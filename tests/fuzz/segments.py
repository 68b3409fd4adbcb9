"""Segments of the replay: damaged bytes, files cut off, gone, or in each other's place.

Promised: a resume has every trial as it was, or says which are lost; with `resume_without_damaged` it has all
others as they were, each under its own number, and none of the lost ones.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from policies.learner import Learner
from policies.run.config import CHECKPOINTS
from tests.fuzz.bytes_of_files import DAMAGE
from tests.fuzz.engine import BrokenPromise, Mutation, Target, check_sentence
from tests.fuzz.tiny_run import TinyRun, trials_of, whole_state
from utils.checkpoint import CheckpointError


class Segments(Target):
    """The segments of a tiny run."""

    name = "segments"
    num_cases = 60
    kinds = (*DAMAGE, "remove", "swap", "swap", "copy", "copy", "other_name")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._run = TinyRun(folder)
        names = sorted(os.listdir(self._run.origin / CHECKPOINTS / "segments"))
        self._names = [name for name in names if not name.startswith(".")]

    def play(self, mutations: Sequence[Mutation]) -> None:
        """Damage segments of a copy and resume it, without the damaged ones in half of the cases."""
        run = self._run.fresh()
        for one in mutations:
            self._damage(run / CHECKPOINTS / "segments", one)
        without = sum(one.draw for one in mutations) % 2 == 0
        with Learner(replace(self._run.config, resume_without_damaged=without), run) as learner:
            try:
                learner.load()
            except CheckpointError as error:
                check_sentence(error)
                if not self._lost(run):
                    raise BrokenPromise("nothing is lost, and the run was refused") from error
                return
            if whole_state(learner) in self._run.states:
                return
            if not without:
                raise BrokenPromise("what was loaded is no checkpoint of the run")
            self._compare(learner, self._lost(run))

    def _damage(self, folder: Path, one: Mutation) -> None:
        rng = one.rng
        path, other = (folder / self._names[place] for place in rng.integers(len(self._names), size=2))
        if not path.exists() or not other.exists():
            return
        if one.kind in DAMAGE:
            path.write_bytes(DAMAGE[one.kind](path.read_bytes(), rng))
        elif one.kind == "remove":
            path.unlink()
        elif one.kind == "swap":
            content = path.read_bytes()
            path.write_bytes(other.read_bytes())
            other.write_bytes(content)
        elif one.kind == "copy":
            path.write_bytes(other.read_bytes())
        else:
            path.rename(path.with_name(path.name[:-1] + "g"))

    def _lost(self, run: Path) -> set[int]:
        """The numbers of the trials whose file is not what it was."""
        lost = set[int]()
        for name in self._names:
            here, there = (base / CHECKPOINTS / "segments" / name for base in (run, self._run.origin))
            if not here.is_file() or here.read_bytes() != there.read_bytes():
                first, stop = re.findall(r"\d{9}", name)
                lost.update(range(int(first), int(stop)))
        return lost

    def _compare(self, learner: Learner, lost: set[int]) -> None:
        """Every trial that is not lost is as it was, and no trial has the rows of another one."""
        if learner.buffer.num_added != self._run.num_added:
            raise BrokenPromise(f"there are {learner.buffer.num_added} trials, not {self._run.num_added}")
        for number, text in trials_of(learner).items():
            if number in lost:
                if len(learner.buffer.export(number, number + 1)["reward"]):
                    raise BrokenPromise(f"trial {number} is lost, and has rows")
            elif text != self._run.trials[number]:
                raise BrokenPromise(f"trial {number} is another one")
