"""One process per run folder: a lock that dies with its holder."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import weakref
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from utils.disk.own_files import part_from_other_names

log = logging.getLogger(__name__)

_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP)


class RunLockError(RuntimeError):
    """The run folder is in use; the text is one sentence for the user."""


class RunLock:
    """Holds `folder/.lock` until `release()`, or until this process dies in any way: it is never stale."""

    def __init__(self, folder: Path, option: str = "hydra.run.dir") -> None:
        """`option` is the one that names another folder."""
        path = folder / ".lock"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            part_from_other_names(path)
            self._file: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise RunLockError(
                f"The run folder {folder} cannot be made or written ({error.strerror or error}): "
                f"take another one with {option}=FOLDER."
            ) from error

        # The kernel's lock of the open file: it goes with the process, so a crash leaves nothing to clean up.
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._file, 32, 0).decode(errors="replace").strip() or "unknown"
            self._close()
            raise RunLockError(
                f"The run folder {folder} is in use by process {holder}: wait for it or stop it first."
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            log.warning(
                "The file system of %s has no locks (%s): let one process at a time use this folder.",
                folder,
                error,
            )

        # The file names its holder, for the sentence that refuses another process.
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

        # The lock belongs to the open file, which a forked worker shares: a worker that outlives the run
        # would hold the lock.
        close = weakref.WeakMethod(self._close)
        os.register_at_fork(after_in_child=lambda: method() if (method := close()) else None)

    def release(self) -> None:
        """Let another process in; a second call does nothing."""
        if self._file is not None:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(self._file, fcntl.LOCK_UN)
        self._close()

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> RunLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
