"""A run on disk for fuzzers: off-policy, with two checkpoints, segments of replay and Hydra's folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

from configs.runs import load_run
from policies.learner import Learner
from tests.runs import digest, state_of, tiny_config
from utils.checkpoint import CheckpointStore

# What a fuzzer must not be led to: processes, and another device.
HERE = ("num_parallel_workers=1", "backend=serial")


class TinyRun:
    """The run as it is, with what each of its checkpoints is; and copies of it to be damaged."""

    def __init__(self, folder: Path) -> None:
        self.origin, self.copy, self.outside = folder / "origin", folder / "copy", folder / "outside"
        config = tiny_config()
        with (
            open(os.devnull, "w") as nowhere,
            redirect_stdout(nowhere),
            Learner(config, self.origin) as learner,
        ):
            learner.train()
        (self.origin / ".hydra").mkdir()
        for name in ("config.yaml", "hydra.yaml", "overrides.yaml"):
            (self.origin / ".hydra" / name).write_text("- seed=0\n")
        (self.origin / "main.log").write_text("a line\n")
        self.config = load_run(self.origin, HERE, mode="resume")[0]
        # Things of the user's, to which a link may lead.
        self.outside.mkdir()
        shutil.copytree(self.origin, self.outside / "run")
        (self.outside / "thesis.tex").write_text("years of work")
        self.states = self._states(folder / "older")

    def _states(self, folder: Path) -> list[dict[str, str]]:
        """What each checkpoint is, the newest first."""
        states = list[dict[str, str]]()
        shutil.copytree(self.origin, folder)
        names = CheckpointStore(folder / "checkpoints")._names()
        self.names = list(names)
        while names:
            with Learner(self.config, folder) as learner:
                learner.load()
                states.append(whole_state(learner))
                if len(states) == 1:
                    self.trials, self.num_added = trials_of(learner), learner.buffer.num_added
            shutil.rmtree(folder / "checkpoints" / names.pop())
        shutil.rmtree(folder)
        return states

    def fresh(self) -> Path:
        """A new copy in the place of the last one."""
        if self.copy.is_symlink():
            self.copy.unlink()
        shutil.rmtree(self.copy, ignore_errors=True)
        shutil.copytree(self.origin, self.copy)
        return self.copy


@contextmanager
def quiet() -> Iterator[None]:
    """Show nothing of what a run prints."""
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


def whole_state(learner: Learner) -> dict[str, str]:
    """Hashes of all that a resumed run goes on with."""
    return state_of(learner) | {"progress": digest(learner.progress.loss_sums)}


def trials_of(learner: Learner) -> dict[int, str]:
    """The hash of each stored trial by its number."""
    replay = learner.buffer
    return {number: digest(replay.export(number, number + 1)) for number in held(learner)}


def held(learner: Learner) -> list[int]:
    """The numbers of the trials that the replay holds."""
    return list(range(learner.buffer.oldest, learner.buffer.num_added))
