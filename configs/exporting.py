"""`python main.py export=RUN_DIR export.to=trials.npz`: the trials of a run as a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from configs.compose import Composer, quoted_word
from configs.runs import RecordedRun, Runs, continued
from policies.learner import Learner
from policies.recording.export import export_trials
from utils.disk.own_files import check_can_be_made
from utils.options import OptionError, from_keywords, option
from utils.processes.imports import imports_from_elsewhere

EXPORT = "export"


@dataclass
class ExportConfig:
    """Where the dataset is written, and what is in it."""

    to: str = option("", "the file to write, trials.npz")
    trials: int | None = option(
        None, "new trials, played by the agent; null: the stored ones, or 100 on-policy", low=1
    )


@dataclass(frozen=True)
class ExportCommand:
    """A checked export."""

    run: RecordedRun
    file: Path
    trials: int | None


def asks_for_an_export(words: Sequence[str]) -> bool:
    """Whether a command line is one of these."""
    return any(_is_own(word) for word in words)


def _is_own(word: str) -> bool:
    name = word.partition("=")[0]
    return name == EXPORT or name.startswith(f"{EXPORT}.")


def read_export(composer: Composer, words: Sequence[str]) -> ExportCommand:
    """Read and check the words of a command line; a mistake is an `OptionError`."""
    folder, given = "", dict[str, Any]()
    for word in words:
        name, _, value = word.partition("=")
        if word.startswith("-"):
            raise OptionError(f"{EXPORT}= works on one run that exists already: leave out {word}.")
        if name == EXPORT:
            folder = value.strip("'\"")
        elif _is_own(word):
            (override,) = composer.parse([word])
            given[name.partition(".")[2]] = str(value) if name.endswith(".to") else override.value()
    options = from_keywords(ExportConfig, EXPORT, given)
    if not folder:
        raise OptionError(f"{EXPORT}= needs the folder of a run: {EXPORT}=outputs/...")
    file = Path(options.to.strip("'\"")).expanduser().absolute()
    if file.suffix != ".npz":
        raise OptionError(f"{EXPORT}.to= needs a file of numpy arrays: {EXPORT}.to=trials.npz.")
    if file.exists():
        raise OptionError(f"{file} is there already: {EXPORT}.to= takes a new file.")
    check_can_be_made(file.parent)
    others = [word for word in words if not _is_own(word)]
    overrides = composer.parse([quoted_word("resume", folder), *others])
    return ExportCommand(continued(composer, "resume", overrides), file, options.trials)


def run_export(command: ExportCommand, run_with: Runs) -> tuple[str, int]:
    """Write the dataset: (what to show, the exit code)."""
    counts: list[int] = []
    run = command.run
    with imports_from_elsewhere(run.run_dir):
        run_with(partial(_export, command, counts), run.config, run.family, run.run_dir)
    return f"{counts[0]} trials in {command.file}", 0


def _export(command: ExportCommand, counts: list[int], learner: Learner) -> float:
    learner.load()
    command.file.parent.mkdir(parents=True, exist_ok=True)
    counts.append(export_trials(learner, command.file, command.trials))
    return 0.0
