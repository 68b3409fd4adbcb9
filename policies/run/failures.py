"""Which errors end a run with one sentence: those of the environment, the machine or the user, not our own."""

from __future__ import annotations

import errno

from envs.backends.base import BackendError
from envs.parallel_env_manager import WorkerError
from policies.run.nan_guard import ExplodedError
from utils.checkpoint import CheckpointError
from utils.options import OptionError
from utils.run_lock import RunLockError

EXPLAINED = (BackendError, CheckpointError, ExplodedError, OptionError, RunLockError, WorkerError)
"""Errors whose text is written for the user."""

MACHINE = ("ENOSPC", "EDQUOT", "EROFS", "EIO", "ESTALE", "EACCES", "ENOMEM", "EMFILE", "ENFILE", "EAGAIN")
"""A full, failing or closed disk, and used-up memory, files or processes: no fault of the code that meets it."""


def is_explained(error: BaseException) -> bool:
    """Whether the text of an error says all; any other error is a fault of ours, and needs its traceback."""
    if isinstance(error, OSError) and error.errno is not None:
        return errno.errorcode.get(error.errno) in MACHINE
    return isinstance(error, EXPLAINED)
