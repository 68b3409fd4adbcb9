"""What a test may leave behind: descriptors, threads, child processes, and names of shared memory."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

import psutil

from utils.processes.warden import warden_pid, warden_pipe

SHARED = Path("/dev/shm")
# The largest number that Linux gives to a process has seven digits.
_PID = re.compile(r"(?<![0-9A-Za-z])\d{1,7}(?![0-9A-Za-z])")

Belongings = dict[str, set[str]]


def belongings() -> Belongings:
    """What this process holds, but for its helpers, which live as long as it does."""
    server: Any = vars(forkserver)["_forkserver"]
    tracker: Any = vars(resource_tracker)["_resource_tracker"]
    helpers = {server._forkserver_pid, tracker._pid, warden_pid()}
    helper_files = {server._forkserver_alive_fd, tracker._fd, warden_pipe()}
    children: set[str] = set()
    for child in psutil.Process().children(recursive=True):
        try:
            if child.pid not in helpers:
                children.add(_named(child))
        except psutil.NoSuchProcess:
            continue
    return {
        "files": {f"{number} -> {target}" for number, target in _open_files() if number not in helper_files},
        "threads": {f"{thread.name} {thread.ident}" for thread in threading.enumerate()},
        "children": children,
        "shared memory": set(os.listdir(SHARED)) if SHARED.exists() else set(),
    }


def _named(child: psutil.Process) -> str:
    """A process by its number and command; one that has ended and was not waited for is another thing.

    Whether it sleeps or runs just now is not part of it: a server does either.
    """
    ended = " (zombie)" if child.status() == psutil.STATUS_ZOMBIE else ""
    return f"{child.pid}{ended} {' '.join(child.cmdline())[:200]}"


def left_over(before: Belongings) -> Belongings:
    """What this process, or one that it started, has more of than before."""
    after = belongings()
    more = {kind: after[kind] - before[kind] for kind in after}
    # All programs share one /dev/shm: what others put there meanwhile is theirs.
    if more["shared memory"]:
        more["shared memory"] = set(_made_here(more["shared memory"]))
    return {kind: things for kind, things in more.items() if things}


def _made_here(names: set[str]) -> Iterator[str]:
    """Yield those of these names in /dev/shm that this process, or one that it started, must have made."""
    family = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    held_here, held_elsewhere = set[str](), set[str]()
    for pid in psutil.pids():
        holder = held_here if pid in family else held_elsewhere
        holder.update(names.intersection(_shared_names(pid)))
    for name in names:
        # Many libraries write the number of their process into a name (joblib, torch). Another's number shows
        # that the name is no leak of ours, even if that process has ended.
        numbers = {int(number) for number in _PID.findall(name)}
        ours = name in held_here or bool(numbers & family)
        nobodys = not numbers and name not in held_elsewhere
        if ours or nobodys:
            yield name


def _shared_names(pid: int) -> Iterator[str]:
    """Yield the names in /dev/shm that a process has mapped or open, as far as we may look."""
    folder = Path(f"/proc/{pid}")
    with suppress(OSError):  # it has ended, or is not ours
        for line in (folder / "maps").read_text(errors="replace").splitlines():
            yield _name_below_shared(line)
    with suppress(OSError):
        for entry in os.listdir(folder / "fd"):
            with suppress(OSError):
                yield _name_below_shared(os.readlink(folder / "fd" / entry))


def _name_below_shared(text: str) -> str:
    """The name in /dev/shm that a line of maps or the target of a descriptor ends with, or nothing."""
    return text.partition(f"{SHARED}/")[2].removesuffix(" (deleted)").partition("/")[0]


def _open_files() -> Iterator[tuple[int, str]]:
    folder = Path("/proc/self/fd")
    for name in os.listdir(folder) if folder.exists() else []:
        try:
            target = os.readlink(folder / name)
        except FileNotFoundError:  # the listing's own descriptor
            continue
        if "/mpl-data/fonts/" not in target:  # matplotlib keeps the fonts that it has drawn with
            yield int(name), target
