"""Marks: a number that a process passes on to whatever it starts, by which that is found and ended.

The number stands in a resource limit that Linux keeps for every process and has not enforced since 2.4.25,
the one on file locks. A variable of the environment would do less: a forked process shows that of the last
exec, and an exec may be given another environment. The limit goes through fork and exec, into sessions of
their own and to orphans, and can be set for a process that runs already.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import time
from collections.abc import Container, Iterator
from contextlib import suppress

# RLIMIT_LOCKS: Python has no name for it.
LIMIT = 10
LINE = b"Max file locks"
# A run has so many marks, the first of which is a multiple of their number.
MARKS_OF_A_RUN = 1 << 20
# How long one look waits for the last of the processes that it has ended.
LOOK_MS = 50
# How long those may take to end by themselves that ignore SIGTERM.
CLEANING_S = 2.0


def are_supported() -> bool:
    """Return whether this system has marks and what it takes to end a process that has one."""
    return hasattr(os, "pidfd_open") and hasattr(resource, "prlimit") and os.path.exists("/proc/self/limits")


def new_run() -> range:
    """Return the marks of a run, which no other run on this machine has: 40 of their bits are random."""
    first = (1 << 40 | int.from_bytes(os.urandom(5), "big")) * MARKS_OF_A_RUN
    return range(first, first + MARKS_OF_A_RUN)


def put_mark(pid: int, mark: int | None) -> None:
    """Mark a process, and what it starts from now on; with None, take its mark away."""
    # It may have ended; or the user has a hard limit of his own, and this process goes without a mark.
    with suppress(OSError, ValueError):
        hard = resource.prlimit(pid, LIMIT)[1]
        resource.prlimit(pid, LIMIT, (hard if mark is None else mark, hard))


def mark_of(pid: int) -> int:
    """Return the mark of a running process, 0 if it has none."""
    try:
        with open(f"/proc/{pid}/limits", "rb") as file:
            soft = file.read().partition(LINE)[2].split(None, 1)[:1]
        with open(f"/proc/{pid}/stat", "rb") as file:
            state = file.read().rpartition(b") ")[2][:1]
    except OSError:
        return 0
    # What has ended keeps its number, and its limits, until its parent asks for its end.
    has_ended = state in (b"Z", b"X")
    # Without a mark the limit is no number, but "unlimited".
    return int(soft[0]) if soft and soft[0].isdigit() and not has_ended else 0


def marked_processes(marks: Container[int]) -> Iterator[int]:
    """Yield every process of this user, but for this process, that has one of these marks."""
    me, user = os.getpid(), os.geteuid()
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == me:
            continue
        with suppress(OSError):  # it has ended meanwhile
            # The limits of the others need not be read; root's environments may run as anybody.
            if user in (0, entry.stat().st_uid) and mark_of(int(entry.name)) in marks:
                yield int(entry.name)


def end_marked(
    marks: Container[int], timeout: float, spared: Container[int] = (), cleaning: float = CLEANING_S
) -> int:
    """Kill the processes that have one of these marks, until there are none; return how many were killed.

    Those that ignore SIGTERM have `cleaning` seconds to end by themselves. The resource trackers of
    multiprocessing and joblib do so: they remove what the others leave in shared memory, and then end.
    """
    ended, start = set[int](), time.monotonic()
    # One that is killed may have started another one before, which the next look finds.
    while found := [pid for pid in marked_processes(marks) if pid not in spared]:
        waited = time.monotonic() - start
        now = [pid for pid in found if waited >= cleaning or not _ignores(pid, signal.SIGTERM)]
        ended.update(now)
        for pid in now:
            _end(pid, marks, LOOK_MS * (pid == now[-1]))
        if not now:
            time.sleep(LOOK_MS / 1000)
        if waited > timeout:  # the kernel does not let go of one that waits for a device
            break
    return len(ended)


def _ignores(pid: int, number: int) -> bool:
    """Whether a process ignores a signal, by which it shows that it will end in its own time."""
    with suppress(OSError), open(f"/proc/{pid}/status", "rb") as file:
        ignored = int(file.read().partition(b"SigIgn:")[2].split(None, 1)[0], 16)
        return bool(ignored >> (number - 1) & 1)
    return False


def _end(pid: int, marks: Container[int], wait_ms: int) -> None:
    """Kill a process if it still has one of these marks; wait so long for its end."""
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return
    try:
        # The mark is looked at again: the descriptor stands for whatever has the number now.
        if mark_of(pid) not in marks:
            return
        with suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(process, signal.SIGKILL)
        poll = select.poll()
        poll.register(process, select.POLLIN)
        poll.poll(wait_ms)
    finally:
        os.close(process)
