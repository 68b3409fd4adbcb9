"""The warden: a small process that waits for the end of this one, and then ends whatever this one marked.

However this process dies, the kernel tells the warden. It is started with the first mark that is asked for,
nobody waits for it, and it sleeps until the end. Without it, as where marks are not to be had or where it was
killed itself, what the marked processes started stays behind if this process is killed.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from utils.processes.marks import MARKS_OF_A_RUN, are_supported, end_marked, new_run, put_mark

# The descriptors of a warden: messages from its process, and that process itself.
MESSAGES, WATCHED = 0, 1
# How long a warden goes on ending processes.
END_S = 60.0
PROGRAM = "import sys; sys.path.append(sys.argv[1]); from utils.processes.warden import main; main()"
ROOT = str(Path(__file__).resolve().parents[2])
# What an interpreter may need to be found and to start.
VARIABLES = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL")


@dataclass
class _Warden:
    """The warden of a process: its number, our end of its pipe, and the marks that it looks for."""

    pid: int
    messages: int
    marks: range
    num_given: int = 0
    folders: list[str] = field(default_factory=list)


class _ThisProcess:
    """The warden of this process, once it has one."""

    lock = threading.Lock()
    warden: _Warden | None = None


def next_mark() -> int | None:
    """Return a new mark, for a process that is to end with this one; None where there are no marks."""
    if not are_supported():
        return None
    with _ThisProcess.lock:
        warden = _started()
        warden.num_given = (warden.num_given + 1) % MARKS_OF_A_RUN
        return warden.marks[warden.num_given]


def remove_at_the_end(folder: str) -> None:
    """Have a temporary folder removed once this process has ended, if it could not do that itself."""
    with _ThisProcess.lock:
        if _ThisProcess.warden is not None and folder not in _ThisProcess.warden.folders:
            _ThisProcess.warden.folders.append(folder)
            _tell(_ThisProcess.warden, folder)


def warden_pid() -> int | None:
    """Return the number of this process's warden, if it has one."""
    return _ThisProcess.warden and _ThisProcess.warden.pid


def warden_pipe() -> int | None:
    """Return the descriptor by which this process speaks to its warden, if it has one."""
    return _ThisProcess.warden and _ThisProcess.warden.messages


def _tell(warden: _Warden, folder: str) -> None:
    with suppress(BrokenPipeError):  # the warden was killed
        os.write(warden.messages, os.fsencode(folder) + b"\0")


def _started() -> _Warden:
    """Return the warden of this process, which is started if there is none, or if it was killed."""
    old = _ThisProcess.warden
    if old is not None and _is_running(old.pid):
        return old
    # A new one for the same marks.
    new = _Warden(*_start(marks := old.marks if old else new_run()), marks)
    if old is not None:
        os.close(old.messages)
        new.num_given, new.folders = old.num_given, old.folders
        for folder in old.folders:
            _tell(new, folder)
    _ThisProcess.warden = new
    return new


def _is_running(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG) == (0, 0)
    except ChildProcessError:  # somebody else has asked for its end
        return False


def _start(marks: range) -> tuple[int, int]:
    """Start a warden; return its number and our end of its pipe."""
    out, into = os.pipe()
    watched, nowhere = os.pidfd_open(os.getpid()), os.open(os.devnull, os.O_WRONLY)
    # Some megabytes of a new interpreter: a fork of this process would hold on to its memory. It is in a
    # session of its own, out of reach of what a terminal or a scheduler sends to our group.
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-c", PROGRAM, ROOT, str(marks.start)],
            {name: os.environ[name] for name in VARIABLES if name in os.environ},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, out, MESSAGES),
                (os.POSIX_SPAWN_DUP2, watched, WATCHED),
                (os.POSIX_SPAWN_DUP2, nowhere, 2),
            ],
            setsid=True,
        )
    except BaseException:
        os.close(into)
        raise
    finally:
        for descriptor in (out, watched, nowhere):
            os.close(descriptor)
    # If this process is marked itself, its warden must not be ended before its time.
    put_mark(pid, None)
    return pid, into


def _forget() -> None:
    """In a forked child: the warden is its parent's."""
    warden, _ThisProcess.warden = _ThisProcess.warden, None
    _ThisProcess.lock = threading.Lock()
    if warden is not None:
        os.close(warden.messages)


os.register_at_fork(after_in_child=_forget)


# -- in the warden -------------------------------------------------------------------------------------------


def main() -> None:
    """Run the whole life of a warden."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    folders = _messages_until_the_end().split(b"\0")
    first = int(sys.argv[2])
    end_marked(range(first, first + MARKS_OF_A_RUN), END_S)
    for folder in filter(None, folders):
        _remove(folder)


def _messages_until_the_end() -> bytes:
    """Read what the watched process says, until it has ended."""
    os.set_blocking(MESSAGES, False)
    poll, said = select.poll(), b""
    poll.register(MESSAGES, select.POLLIN)
    poll.register(WATCHED, select.POLLIN)
    while True:
        # The end is looked at first: what was said before it is in the pipe by then.
        ready = {descriptor for descriptor, _ in poll.poll()}
        try:
            more = os.read(MESSAGES, 1 << 16)
            said += more
        except BlockingIOError:
            more = None
        if WATCHED in ready and not more:
            return said
        if more == b"":  # the pipe has ended before the process
            poll.unregister(MESSAGES)


def _remove(folder: bytes) -> None:
    import shutil  # here, since a warden is to start quickly

    shutil.rmtree(folder, ignore_errors=True)
