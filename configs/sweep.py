"""What a sweep needs beside its jobs: a report at its end, and processes that other jobs can start."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from utils.console import Console
from utils.options import OptionError
from utils.report.command import write_report


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


def leave_loky() -> None:
    """Undo joblib's start method: other processes than joblib's own die at birth under it."""
    if multiprocessing.get_start_method(allow_none=True) == "loky":
        multiprocessing.set_start_method("fork", force=True)
