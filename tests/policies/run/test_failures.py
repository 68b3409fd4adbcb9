"""Errors of the machine and of the user are sentences; a fault of ours is not among them."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from policies.run.failures import ERRORS, is_explained, write_error
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


def test_a_traceback_of_ours_is_kept_in_the_run_folder(tmp_path: Path) -> None:
    for number in (1, 2):
        try:
            raise ZeroDivisionError(f"fault {number}")
        except ZeroDivisionError:
            assert write_error(tmp_path) == tmp_path / ERRORS
            assert write_error(tmp_path / "gone") is None
    text = (tmp_path / ERRORS).read_text()
    assert text.count("Traceback") == 2 and "fault 1" in text and "ZeroDivisionError: fault 2" in text
