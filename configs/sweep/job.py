"""One job of a sweep, in whatever process a launcher runs it: a run that begins, or goes on with its own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from configs.compose import checked
from configs.runs import RecordedRun, Runs, found_again
from policies.learner import Learner
from policies.run.config import CHECKPOINTS
from policies.run.context import RunHost
from policies.run.hardware import BACKENDS_FILE
from policies.run.progress import Stage
from utils.checkpoint import newest_facts
from utils.console import Console
from utils.disk.own_files import open_own
from utils.processes.streams import lines_begin_with
from utils.report.folders import find_runs

# The file in the folder of a job that says in one line why the job has failed.
FAILURE = "failed.log"


def run_job(
    composed: DictConfig,
    run_with: Runs,
    *,
    train: Callable[[Learner], float],
    resume: Callable[[Learner], float],
    failed: int,
) -> float:
    """Run the job in the folder that Hydra made for it; returns what a sweeper may maximise.

    A launcher may start it again after a preemption or a time-out, and so may whoever types the sweep again:
    then it goes on with what it finds. A job that fails with the exit code `failed` does not end the sweep,
    and leaves a line that says why, since what a launcher shows of its jobs may be nothing.
    """
    leave_loky()
    hydra = HydraConfig.get()
    folder = Path(hydra.runtime.output_dir)
    with suppress(FileNotFoundError):
        (folder / FAILURE).unlink()
    alone = hydra.launcher._target_.endswith("BasicLauncher")
    with nullcontext() if alone else lines_begin_with(f"[{hydra.job.num}] "):
        host = RunHost(backends=Path(str(hydra.sweep.dir)) / BACKENDS_FILE)
        run_with = partial(run_with, host=host)
        return _begin_or_go_on(composed, folder, run_with, train, resume, failed)


def _begin_or_go_on(
    composed: DictConfig,
    folder: Path,
    run_with: Runs,
    train: Callable[[Learner], float],
    resume: Callable[[Learner], float],
    failed: int,
) -> float:
    try:
        found = found_again(composed, folder)
        if found is None:
            return run_with(train, *checked(composed), folder)
        return _go_on(found, run_with, resume)
    except SystemExit as end:
        if end.code != failed:
            raise
        _note(folder, end.__cause__ or end)
        return float("nan")
    except Exception as error:
        _note(folder, error)
        raise


def _go_on(found: RecordedRun, run_with: Runs, resume: Callable[[Learner], float]) -> float:
    if has_finished(found.run_dir, found.config.train.n_env_steps_total):
        Console().message(f"{found.run_dir} is finished already.")
        return _last_return(found.run_dir)
    Console().message(f"{found.run_dir} goes on from its last checkpoint.")
    return run_with(resume, found.config, found.family, found.run_dir)


def has_finished(run_dir: Path, total: int) -> bool:
    """Whether the run in a folder has trained so many env steps, and been evaluated after them."""
    counters = newest_facts(run_dir / CHECKPOINTS).get("counters", {})
    return counters.get("env_steps", 0) >= total and counters.get("stage") == Stage.collect


def _last_return(run_dir: Path) -> float:
    """The return in the last episode of the test list; NaN where trials of it were given up."""
    (run,) = find_runs([run_dir]).runs
    return float(run.evaluations[-1].returns[-1]) if run.evaluations else float("nan")


def _note(folder: Path, error: BaseException) -> None:
    text = " ".join(str(error).split()) or type(error).__name__
    with suppress(OSError), open_own(folder / FAILURE, "w", encoding="utf-8") as file:
        file.write(f"{text}\n")


def leave_loky() -> None:
    """Undo joblib's start method: other processes than joblib's own die at birth under it."""
    if multiprocessing.get_start_method(allow_none=True) == "loky":
        multiprocessing.set_start_method("fork", force=True)
