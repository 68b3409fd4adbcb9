"""The process that environments belong to: a fork of theirs that comes back never goes on in its place."""

from __future__ import annotations

import logging
import mmap
import os

_log = logging.getLogger(__name__)

# One byte that every fork of this process shares: the warning is told once, whichever child comes first.
_told = mmap.mmap(-1, 1)


class HomeProcess:
    """A context manager around the code of environments, made in the process to which they belong.

    An environment may call `os.fork` and return in the child too. Then there would be two workers that answer
    the same requests, or two trainers that write into the same run: the child is ended where it comes out.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()

    def __enter__(self) -> None:
        return

    def __exit__(self, *_: object) -> None:
        self.end_forks()

    def end_forks(self) -> None:
        """End this process, if it is a fork of the one to which the environments belong."""
        if os.getpid() == self._pid:
            return
        try:
            if not _told[0]:
                _told[0] = 1
                _log.warning(
                    "An environment forked process %d, and its child came back from the call: the child was "
                    "ended, and the data is not touched. (This is told once.)",
                    self._pid,
                )
        finally:
            # Nothing of the parent may be flushed, closed or stopped twice.
            os._exit(1)
