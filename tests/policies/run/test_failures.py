"""Errors of the machine and of the user are sentences; a fault of ours is not among them."""

from __future__ import annotations

import errno

import pytest

from policies.run.failures import is_explained
from utils.checkpoint import CheckpointError
from utils.options import OptionError


@pytest.mark.parametrize(
    ("error", "explained"),
    [
        (OptionError("seed=-1 is out of range."), True),
        (CheckpointError("The disk is full."), True),
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (PermissionError(errno.EACCES, "Permission denied"), True),
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), False),
        (OSError("without a number"), False),
        (ZeroDivisionError("division by zero"), False),
    ],
    ids=repr,
)
def test_only_a_named_error_is_shown_without_its_traceback(error: Exception, explained: bool) -> None:
    assert is_explained(error) is explained
