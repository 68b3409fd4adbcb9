"""A sweep as a whole: its folder, its jobs in whatever processes a launcher starts, and what they came to."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from configs.launch import refuse_sweep_folder
from configs.sweep.job import FAILURE, has_finished
from configs.sweep.plan import SWEEP_FOLDER, Job, SweepPlan
from utils.machine import CORES, available_cores
from utils.options import OptionError
from utils.report.command import write_report
from utils.run_lock import RunLock, RunLockError

ROOT = Path(__file__).resolve().parents[2]


class FolderOfItsOwn(Callback):
    """Looks at the folder of a sweep and locks it, before Hydra or a job writes there.

    Hydra makes a warning of an error in a callback, but lets an exit pass.
    """

    _lock: RunLock | None = None

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Leave with a sentence where the sweep must not, or cannot, be written."""
        folder = Path(str(config.hydra.sweep.dir)).absolute()
        permitted = OmegaConf.select(config, "allow_links") is True
        try:
            # Two sweeps that start at once both found the folder free: the lock decides.
            self._lock = RunLock(folder, SWEEP_FOLDER)
            refuse_sweep_folder(folder, allow_links=permitted)
        except (OptionError, RunLockError) as error:
            self._release()
            raise SystemExit(str(error)) from error

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Let another sweep in."""
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: a launcher sends callbacks to the processes of its jobs, and the lock stays here."""
        return {}


def run_sweep(start: Callable[[], object], plan: SweepPlan, *, failed: int) -> tuple[str, str, int]:
    """Let Hydra run the jobs, whichever launcher it is; (report, sentence on failed jobs, exit code).

    What a job amounts to is read from its folder: a launcher may tell nothing of what it has run.
    """
    let_jobs_import()
    if plan.at_once > 1:
        os.environ[CORES] = str(max(1, available_cores() // plan.at_once))
    exit_code = 0
    try:
        start()
    except SystemExit as end:
        # A launcher may raise because of one job, when Hydra has shown it: there are others. Anything else
        # ends the sweep at once: a signal, or a folder that it must not write.
        if end.code not in (None, 0, failed):
            raise
        exit_code = failed if end.code else 0
    report = "" if plan.folder is None else _report(plan.folder)
    failures = [f"  [{job.number}] {job.words}: {why}" for job in plan.jobs if (why := _failure(job))]
    if not failures:
        return report, "", exit_code
    lines = [f"Failed: {len(failures)} of {len(plan.jobs)} jobs.", *failures]
    if plan.folder is not None:
        lines.append(f"Type the sweep again with {SWEEP_FOLDER}={plan.folder} to go on with what is missing.")
    return report, "\n".join(lines), failed


def _failure(job: Job) -> str:
    """Why a job has failed; nothing if it has not."""
    if job.folder is None:
        return ""
    with suppress(OSError, UnicodeDecodeError):
        return (job.folder / FAILURE).read_text(encoding="utf-8").strip()
    return "" if has_finished(job.folder, job.total) else f"it was ended before its end, see {job.folder}"


def _report(folder: Path) -> str:
    """Write the report into the sweep's folder; what to show of it."""
    try:
        return write_report([folder])
    except OptionError as reason:
        return f"No report: {reason}"


def let_jobs_import() -> None:
    """Let the jobs of a launcher import the project: an interpreter of their own does not start from main.py.

    Without it submitit's jobs find the project only where the sweep was started from the checkout.
    """
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [before])])
