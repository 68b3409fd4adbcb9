"""A soak: runs whose workers, forkserver and trainer are killed at random for a given time, and resumed.

    python -m benchmarks.soak --minutes 60      and benchmarks/results/soak.json

Each run is compared with the same run that nobody touched: the lines of its metrics, its parameters, its
replay, its random streams and its counters. Meanwhile the descriptors, the memory and the processes of every
trainer are counted, and at each death how long its processes outlive it. The exit code is 1 where something
differs, stays behind or fails.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.parts.machine import facts, write
from benchmarks.parts.soaking.hashes import RunHashes, hashes_of
from utils.checkpoint import CheckpointStore
from utils.disk.manifest import size_of
from utils.logger import METRICS

RESULTS = Path(__file__).parent / "results" / "soak.json"
MAIN = Path(__file__).resolve().parent.parent / "main.py"
COMMON = ("env=PointRobot", "device=cpu", "wandb.mode=disabled", "num_slots=6", "checkpoint_every=1500")
# On-policy, with nothing that outlives an iteration; and off-policy, with a replay in segments.
RECIPES = {
    "PPO": (*COMMON, "algorithm=PPO"),
    "SAC": (*COMMON, "algorithm=SAC", "train.updates_per_step=0.01", "train.buffer_size=20000"),
}
WORKERS = ("backend=process", "num_parallel_workers=3", "backend.call_timeout_s=3")
KILLED = ("backend.fault_budget=1000000",)
# Seconds between two strikes, and from the first iteration of a trainer to its own end.
BETWEEN, LIFE = (1.0, 4.0), (15.0, 60.0)
# What a strike hits, and how often of ten times.
TARGETS = ["worker"] * 8 + ["forkserver"] + ["all workers"]
BLOWS = [signal.SIGKILL, signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP]
ENDS = [signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]
# The most seconds of a trainer, and after that of its end, on a machine that is busy with other things too.
MOST_LIFE_S, MOST_END_S = 900.0, 300.0
# The most seconds that a process may outlive its trainer, on a machine that is busy with other things too.
MOST_LINGER_S = 60.0
# What a run says that was hit three times while it played one trial again, or while its environments were
# first built: it ends, and its user resumes it.
GAVE_UP = ("It failed 3 times at this place", "could not be built")
# Torch makes this empty folder for its compiler, which no run uses, as soon as it has an optimiser.
OF_TORCH = "torchinductor_"
# Samples that a life needs for its growth to be said.
ENOUGH = 16


@dataclass
class Holding:
    """What a trainer holds at one moment."""

    descriptors: int
    memory: int
    processes: int


@dataclass
class SoakResult:
    """All that a soak has seen."""

    strikes: Counter[str] = field(default_factory=Counter)
    lives: list[dict[str, Any]] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    # Trainers that were hit so often in one place that they ended by themselves, in a sentence.
    gave_up: int = 0
    longest_linger_s: float = 0.0
    left_processes: int = 0
    left_files: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class Life:
    """One trainer from its start to its end, by itself or by our hand."""

    def __init__(self, words: list[str], folder: Path, chance: random.Random, found: SoakResult) -> None:
        self._chance, self._found = chance, found
        # Nothing is struck before it has grown: a run that never gets anywhere would show nothing.
        self._metrics = folder / "run" / METRICS
        self._before = size_of(self._metrics)
        self._log = folder / "log"
        temporary = folder / "temporary"
        temporary.mkdir(exist_ok=True)
        with open(self._log, "wb") as log:
            self._trainer = subprocess.Popen(
                [sys.executable, str(MAIN), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ
                | {"TMPDIR": str(temporary), "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"},
            )
        self._process, self._samples = psutil.Process(self._trainer.pid), list[Holding]()

    def run(self) -> bool:
        """Strike until the end; returns whether the run has reached its own."""
        try:
            self._watch_the_end(self._strike_until_the_end())
        finally:
            self._trainer.kill()
        self._found.lives += [summary] if (summary := self._summary()) else []
        self._judge(code := self._trainer.wait())
        return code == 0

    def _strike_until_the_end(self) -> set[psutil.Process]:
        """Returns all processes that the trainer has had."""
        family: set[psutil.Process] = set()
        end, limit = None, time.monotonic() + MOST_LIFE_S
        while self._trainer.poll() is None and time.monotonic() < limit:
            with suppress(subprocess.TimeoutExpired):
                self._trainer.wait(self._chance.uniform(*BETWEEN))
            with suppress(psutil.NoSuchProcess):
                children = self._process.children(recursive=True)
                family.update(children)
                workers, forkserver = _parts(children)
                if not workers or size_of(self._metrics) == self._before:
                    continue
                end = end or time.monotonic() + self._chance.uniform(*LIFE)
                if time.monotonic() >= end:
                    self._finish()
                    break
                self._sample(len(children))
                self._strike(workers, forkserver)
        try:
            self._trainer.wait(MOST_END_S)
        except subprocess.TimeoutExpired:
            self._trainer.send_signal(signal.SIGABRT)  # by which it writes into its log where it hangs
        return family

    def _judge(self, code: int) -> None:
        """RuntimeError where the trainer had an end that we did not give it."""
        text = self._log.read_text(errors="replace")
        if code == 1 and any(words in text for words in GAVE_UP) and "Traceback" not in text:
            self._found.gave_up += 1
        elif code not in (0, -signal.SIGKILL, 128 + signal.SIGTERM):
            raise RuntimeError(f"the trainer ended with {code}: {text[-3000:]}")

    def _finish(self) -> None:
        """End the trainer; its workers learn of it by themselves."""
        blow = self._chance.choice(ENDS)
        self._found.strikes[f"trainer {blow.name}"] += 1
        self._trainer.send_signal(blow)

    def _strike(self, workers: list[psutil.Process], forkserver: list[psutil.Process]) -> None:
        target, blow = self._chance.choice(TARGETS), self._chance.choice(BLOWS)
        hit = {"worker": [self._chance.choice(workers)], "forkserver": forkserver, "all workers": workers}
        for process in hit[target]:
            # psutil looks at the time of start first: the number may be another process's by now.
            with suppress(psutil.NoSuchProcess):
                process.send_signal(blow)
                self._found.strikes[f"{target} {blow.name}"] += 1

    def _sample(self, processes: int) -> None:
        memory = self._process.memory_info().rss
        self._samples.append(Holding(self._process.num_fds(), memory, processes))

    def _watch_the_end(self, family: set[psutil.Process]) -> None:
        """Wait until all that the trainer had started is gone."""
        start = time.monotonic()
        _, alive = psutil.wait_procs(list(family), timeout=MOST_LINGER_S)
        self._found.longest_linger_s = max(self._found.longest_linger_s, time.monotonic() - start)
        self._found.left_processes += len(alive)

    def _summary(self) -> dict[str, Any] | None:
        """What grew in this life: the medians of its last quarter against those of its second."""
        if len(self._samples) < ENOUGH:
            return None
        quarter = len(self._samples) // 4

        def growth(name: str) -> float:
            values = [getattr(sample, name) for sample in self._samples]
            return statistics.median(values[-quarter:]) - statistics.median(values[quarter : 2 * quarter])

        return {
            "samples": len(self._samples),
            "most_descriptors": max(sample.descriptors for sample in self._samples),
            "most_processes": max(sample.processes for sample in self._samples),
            "growth_descriptors": growth("descriptors"),
            "growth_processes": growth("processes"),
            "growth_memory_mb": round(growth("memory") / 1e6, 2),
        }


def _parts(children: list[psutil.Process]) -> tuple[list[psutil.Process], list[psutil.Process]]:
    """The workers and the forkserver, of which they are children, among the processes of a trainer."""
    forkservers = []
    for child in children:
        with suppress(psutil.Error):
            if "multiprocessing.forkserver" in " ".join(child.cmdline()):
                forkservers.append(child)
    # A worker is a fork of the forkserver and shows the same words: it is the one whose parent is one too.
    numbers = {one.pid for one in forkservers}
    workers = []
    for one in forkservers:
        with suppress(psutil.Error):
            workers += [one] if one.ppid() in numbers else []
    return workers, [one for one in forkservers if one not in workers]


def calm_run(name: str, steps: int, folder: Path) -> RunHashes:
    """What a run comes to that nobody touches, in one process."""
    words = [*RECIPES[name], "backend=serial", f"train.n_env_steps_total={steps}", f"hydra.run.dir={folder}"]
    subprocess.run([sys.executable, str(MAIN), *words], check=True, stdout=subprocess.DEVNULL)
    return hashes_of(folder)


def killed_run(
    name: str, steps: int, base: Path, chance: random.Random, found: SoakResult
) -> tuple[int, RunHashes]:
    """The number of trainers that a run took, and what it came to."""
    run = base / "run"
    base.mkdir()
    new = [*RECIPES[name], *WORKERS, *KILLED, f"train.n_env_steps_total={steps}", f"hydra.run.dir={run}"]
    trainers, done = 0, False
    while not done:
        has_checkpoint = CheckpointStore(run / "checkpoints").has_any
        done = Life([f"resume={run}"] if has_checkpoint else new, base, chance, found).run()
        trainers += 1
    found.left_files += [name for name in os.listdir(base / "temporary") if not name.startswith(OF_TORCH)]
    return trainers, hashes_of(run)


def soak(
    minutes: float, steps: int, seed: int, scratch: Path, found: SoakResult, save: Callable[[], None]
) -> None:
    """Run after run of each recipe in turn, until the time is over; the last one is played to its end."""
    calm = {name: calm_run(name, steps, scratch / f"calm-{name}") for name in RECIPES}
    print("The runs to compare with are done.", flush=True)
    chance, deadline, number = random.Random(seed), time.monotonic() + 60 * minutes, 0
    while time.monotonic() < deadline:
        name = list(RECIPES)[number % len(RECIPES)]
        start = time.monotonic()
        trainers, hashes = killed_run(name, steps, scratch / str(number), chance, found)
        found.runs.append(
            {
                "recipe": name,
                "env_steps": steps,
                "trainers": trainers,
                "seconds": round(time.monotonic() - start, 1),
                "equal": {part: asdict(hashes)[part] == value for part, value in asdict(calm[name]).items()},
            }
        )
        print(found.runs[-1], dict(found.strikes), flush=True)
        save()
        number += 1


def complaints(found: SoakResult) -> list[str]:
    """What is wrong, as sentences; none where all is well."""
    wrong = list(found.failures)
    wrong += [f"Run {number} differs: {run}." for number, run in enumerate(found.runs) if not _equal(run)]
    if found.left_processes:
        wrong.append(f"{found.left_processes} processes outlived their trainer by {MOST_LINGER_S:.0f} s.")
    if found.left_files:
        wrong.append(f"Left in the temporary folder: {', '.join(found.left_files)}.")
    return wrong


def _equal(run: dict[str, Any]) -> bool:
    return all(run["equal"].values())


def main() -> int:
    """Soak, print, save; the exit code says whether all is well."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--env-steps", type=int, default=10_000, help="of each run")
    parser.add_argument("--seed", type=int, default=0, help="of what is struck when")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    found, start = SoakResult(), time.monotonic()

    def save() -> None:
        """After each run, so that a soak that is ended early has its figures too."""
        asked = {"minutes": options.minutes, "env_steps": options.env_steps, "seed": options.seed}
        strikes = {"strikes": dict(sorted(found.strikes.items())), "wrong": complaints(found)}
        minutes = round((time.monotonic() - start) / 60, 1)
        machine = facts() | {"load": os.getloadavg()}
        seen = {"machine": machine, "asked": asked, "minutes": minutes} | asdict(found) | strikes
        write(options.output, seen)

    with tempfile.TemporaryDirectory() as scratch:
        try:
            soak(options.minutes, options.env_steps, options.seed, Path(scratch), found, save)
        except (RuntimeError, subprocess.SubprocessError) as error:
            found.failures.append(str(error))
    save()
    wrong = complaints(found)
    print("\n".join(wrong) or "Nothing differs, nothing stays behind.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
