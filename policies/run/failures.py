"""Errors that end a run: one sentence where the cause is outside, a traceback where it is our own fault."""

from __future__ import annotations

import errno
import traceback
from datetime import datetime
from pathlib import Path

from envs.backends.base import BackendError
from envs.parallel_env_manager import WorkerError
from policies.run.nan_guard import ExplodedError
from utils.checkpoint import CheckpointError
from utils.disk.own_files import open_own
from utils.options import OptionError
from utils.run_lock import RunLockError

# Errors whose text is written for the user.
EXPLAINED = (BackendError, CheckpointError, ExplodedError, OptionError, RunLockError, WorkerError)

# A full, failing or closed disk, or used-up memory, files or processes: no fault of our code.
MACHINE = ("ENOSPC", "EDQUOT", "EROFS", "EIO", "ESTALE", "EACCES", "ENOMEM", "EMFILE", "ENFILE", "EAGAIN")

# The file of a run folder that holds the tracebacks of our own errors.
ERRORS = "error.log"


def is_explained(error: BaseException) -> bool:
    """Whether the text of an error says all; any other error is a fault of ours, and needs its traceback."""
    if isinstance(error, OSError) and error.errno is not None:
        return errno.errorcode.get(error.errno) in MACHINE
    return isinstance(error, EXPLAINED)


def write_error(run_dir: Path) -> Path | None:
    """Append the traceback of the exception that is being handled to the run's `error.log`.

    Returns the file, or None where it cannot be written, since the disk may be what has failed.
    """
    # Appended: a run that is resumed may fail again, and both tracebacks may be needed.
    path = run_dir / ERRORS
    try:
        with open_own(path, "a", encoding="utf-8") as file:
            file.write(f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S %z}\n{traceback.format_exc()}\n")
    except OSError:
        return None
    return path
