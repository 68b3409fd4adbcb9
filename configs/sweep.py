"""What a sweep needs beside its jobs: a folder of its own, a report, and processes that jobs can start."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from configs.launch import refuse_sweep_folder
from utils.console import Console
from utils.options import OptionError
from utils.report.command import write_report
from utils.run_lock import RunLock, RunLockError

ROOT = Path(__file__).resolve().parents[1]


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
            self._lock = RunLock(folder, "hydra.sweep.dir")
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


class ReportAtEnd(Callback):
    """Compares the runs of a sweep when its last job has ended, whichever launcher ran them.

    Hydra calls it in the process that started the sweep, and makes a warning of whatever it raises.
    """

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Write the report into the sweep's folder, and show its table."""
        folder = Path(str(config.hydra.sweep.dir))
        try:
            text = write_report([folder])
        except OptionError as reason:
            text = f"No report: {reason}"
        Console().message(text)


def let_jobs_import() -> None:
    """Let the jobs of a launcher import the project: an interpreter of their own does not start from main.py.

    Without it submitit's jobs find the project only where the sweep was started from the checkout.
    """
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [before])])


def leave_loky() -> None:
    """Undo joblib's start method: other processes than joblib's own die at birth under it."""
    if multiprocessing.get_start_method(allow_none=True) == "loky":
        multiprocessing.set_start_method("fork", force=True)
