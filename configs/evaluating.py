"""Commands that end with a text; that of evaluate= measures one run on disk, or several into one table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from configs.cli import CommandLine
from configs.runs import RecordedRun, Runs
from policies.evaluation.outcome import Outcome, assess, side_by_side
from policies.learner import Learner
from policies.recording.services import record_evaluation
from utils.processes.imports import imports_from_elsewhere


def make_answer(command: CommandLine, run_with: Runs, *, failed: int) -> tuple[str, int]:
    """Do what a command line asks for; (what is to be shown, the exit code)."""
    # Here, since both begin runs as evaluate= does.
    if command.search is not None:
        from configs.search.running import run_search

        return run_search(command.search, run_with, failed=failed)
    if command.export is not None:
        from configs.exporting import run_export

        return run_export(command.export, run_with)
    return evaluate_runs(command.runs, run_with, failed=failed)


def evaluate_runs(runs: Sequence[RecordedRun], run_with: Runs, *, failed: int) -> tuple[str, int]:
    """Evaluate runs: (what is to be shown, the exit code, which is `failed` if a run ended with that).

    A single run has a table of its own. Of several runs one that fails does not end the others.
    """
    outcomes: dict[Path, Outcome] = {}
    films: list[Path] = []
    exit_code = 0
    for run in runs:
        try:
            act = partial(_assess, outcomes, films)
            with imports_from_elsewhere(run.run_dir):
                run_with(act, run.config, run.family, run.run_dir, learns=False)
        except SystemExit as end:
            if end.code != failed or len(runs) == 1:
                raise
            exit_code = failed
    table = next(iter(outcomes.values())).table() if len(runs) == 1 else side_by_side(outcomes)
    return "\n".join([table, *(f"film: {path}" for path in films)]), exit_code


def _assess(outcomes: dict[Path, Outcome], films: list[Path], learner: Learner) -> float:
    learner.load()
    assert learner.run_dir is not None
    outcomes[learner.run_dir] = outcome = assess(learner)
    record_evaluation(learner.context, learner.counters.env_steps, outcome.metrics)
    films += learner.film()
    return 0.0
