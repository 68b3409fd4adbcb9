"""What was recorded: a file for each entry, with the curve and the circumstances of every run."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.learn import LIMIT, METRICS, ROOT, Run
from benchmarks.parts.curves import Point
from benchmarks.parts.machine import write
from benchmarks.zoo.entries import KEPT, Entry, Recording, digest
from envs.meta.make_env import make_family
from policies.evaluation.levels import REFERENCES
from policies.evaluation.table import POLICIES
from policies.play import load_agent
from policies.run.config import RECORD, read_record
from policies.run.forecast import MINUTES
from utils.disk.own_files import read_object

RESULTS = ROOT / "benchmarks" / "results" / "zoo"
# The record of a run in its own folder.
BESIDE_RUN = "zoo.json"
MOST_BYTES = 10_000_000
# An agent that is larger does not come with the project.
MOST_AGENT_BYTES = 1_000_000


@dataclass
class Recorded:
    """One run, and what it can be judged by."""

    run: Run
    # Of the settings that it was recorded with.
    digest: str
    commit: str
    # By which a run with the same settings finds what this one took.
    learned: str
    # What random actions and the oracle return in an episode, as far as it is known.
    levels: dict[str, float]

    @property
    def last(self) -> Point:
        """Its last evaluation."""
        return self.run.curve[-1]

    @property
    def minutes(self) -> float:
        """What it took of one core."""
        return (self.run.processor_s or self.last.processor_s or self.run.wall_s) / 60

    @property
    def is_whole(self) -> bool:
        """Whether it has taken all its env steps."""
        return self.run.ended != LIMIT


def file_of(entry: Entry, folder: Path = RESULTS) -> Path:
    """Where the runs of an entry are kept."""
    return folder / f"{entry.name}.json"


def load_entry(entry: Entry, folder: Path = RESULTS) -> dict[str, Recorded]:
    """The recorded runs of an entry, by label."""
    file = file_of(entry, folder)
    if not file.exists():
        return {}
    return {label: _recorded(found) for label, found in json.loads(file.read_text(encoding="utf-8")).items()}


def _recorded(found: dict[str, Any]) -> Recorded:
    fields: dict[str, Any] = dict(found["run"])
    fields["curve"] = [Point(**point) for point in fields["curve"]]
    return Recorded(Run(**fields), found["digest"], found["commit"], found["learned"], found["levels"])


def store(job: Recording, recorded: Recorded, folder: Path = RESULTS) -> bool:
    """Put a run among those of its entry, unless more of it is there; whether it was."""
    runs = load_entry(job.entry, folder)
    found = runs.get(job.label)
    if found and found.digest == recorded.digest and found.run.env_steps > recorded.run.env_steps:
        return False
    runs[job.label] = recorded
    write(file_of(job.entry, folder), {label: asdict(one) for label, one in runs.items()})
    return True


def name_of(job: Recording) -> str:
    """By which the folders of its runs begin."""
    return "_".join(filter(None, (job.entry.name, job.companion)))


def unfinished(job: Recording, parent: Path) -> tuple[Recorded, Path] | None:
    """The newest run of a recording that was ended by its limit and can go on, and its folder."""
    for file in sorted(parent.glob(f"{name_of(job)}_seed{job.seed}_*/{BESIDE_RUN}"), reverse=True):
        found = _recorded(json.loads(file.read_text(encoding="utf-8")))
        if found.is_whole or found.digest != digest(job.words):
            continue
        *_, last = (file.parent / METRICS).read_text(encoding="utf-8").splitlines()
        # Where the two differ, the run went on without us.
        if json.loads(last)["env_steps"] == found.run.env_steps:
            return found, file.parent
    return None


def save_beside(recorded: Recorded, run_dir: Path) -> None:
    """Keep the record in the folder of its run too, from which the run may go on."""
    write(run_dir / BESIDE_RUN, asdict(recorded))


def kept_agent(entry: Entry, folder: Path = RESULTS) -> Path:
    """Where the agent of an entry is kept, if it comes with the project."""
    return folder / f"{entry.name}.pt"


def keep_agent(job: Recording, run_dir: Path, folder: Path = RESULTS) -> None:
    """Keep the agent of a run beside its record, if it is one that comes with the project."""
    if job.companion or job.seed != job.entry.seeds[0] or job.entry.name not in KEPT:
        return
    file = kept_agent(job.entry, folder)
    file.parent.mkdir(parents=True, exist_ok=True)
    load_agent(run_dir).record.save(file)
    if file.stat().st_size > MOST_AGENT_BYTES:
        file.unlink()


def is_current(job: Recording, runs: Mapping[str, Recorded]) -> bool:
    """Whether the run is recorded, with the settings that its command has today."""
    found = runs.get(job.label)
    return found is not None and found.digest == digest(job.words)


def is_long(recorded: Recorded, minutes: float) -> bool:
    """Whether a run has come to its end, or has had so many minutes of a core."""
    # The clock that ends a run is on the wall, and a core is not always its alone.
    return recorded.is_whole or recorded.minutes >= 0.9 * minutes


def is_enough(job: Recording, runs: Mapping[str, Recorded], minutes: float) -> bool:
    """Whether the run is recorded to its end, or for so many minutes of a core."""
    return is_current(job, runs) and is_long(runs[job.label], minutes)


def minutes_left(job: Recording, runs: Mapping[str, Recorded], most: float, had: float = 0.0) -> float:
    """What the run will take of a core, if it takes `most` minutes in all and goes on after `had` of them."""
    found = runs.get(job.label)
    whole = found.minutes if found is not None and found.is_whole else job.entry.minutes
    return max(min(whole, most) - had, 0.0)


def store_minutes(entries: Iterable[Entry], folder: Path = RESULTS) -> None:
    """Keep what runs of the same settings took on average, which a run of today tells at its start."""
    minutes: dict[str, list[float]] = {}
    for entry in entries:
        for one in filter(lambda run: run.is_whole, load_entry(entry, folder).values()):
            minutes.setdefault(one.learned, []).append(one.minutes)
    write(folder / MINUTES.name, {key: round(fmean(minutes[key]), 1) for key in sorted(minutes)})


def levels_of_run(run_dir: Path) -> dict[str, float]:
    """The reference scores of a run's family, or what the run itself has measured."""
    options = dict(read_record(run_dir / RECORD)["env"])
    reference = make_family(options.pop("family"), **options).spec.reference
    if reference is not None:
        scores = {policy: getattr(reference, policy) for policy in POLICIES}
        return {policy: score for policy, score in scores.items() if score is not None}
    measured = [
        entry
        for entry in read_object(run_dir / REFERENCES, MOST_BYTES).values()
        if entry["list"] in ("held_out", "in_distribution")
    ]
    # What is measured stands last.
    return {policy: fmean(measured[-1][policy]) for policy in POLICIES if measured and policy in measured[-1]}


# Recording itself writes there, which changes nothing of what the next run plays.
WRITTEN = ("benchmarks/results", "docs")


def commit(root: Path = ROOT) -> str:
    """The commit of the checkout; with a plus where code or settings differ from it."""
    changed = [
        "status",
        "--porcelain",
        "--untracked-files=no",
        "--",
        *(f":(exclude){name}" for name in WRITTEN),
    ]
    return (_git(root, "rev-parse", "--short=7", "HEAD") or "unknown") + "+" * bool(_git(root, *changed))


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True).stdout.strip()
