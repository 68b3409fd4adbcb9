"""Facts about this machine: cores and memory."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil

# The variable that says how many of the cores this process, and what it starts, should use: jobs that run
# side by side have a share each.
CORES = "RETRIAL_CORES"


def available_cores() -> int:
    """The cores that this process may use, or its share of them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    share = os.environ.get(CORES, "")
    return max(1, min(cores, int(share))) if share.isdecimal() else cores


def available_memory() -> int:
    """Bytes that could be taken now without swapping or breaking the limit of a container or a batch job."""
    return min(
        [
            int(psutil.virtual_memory().available),
            *_left_in_groups(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")),
        ]
    )


def _left_in_groups(member: Path, root: Path) -> Iterator[int]:
    """Bytes that the limits of this process's control groups (version 2, or 1) leave."""
    with suppress(OSError, ValueError):
        for line in member.read_text().splitlines():
            _, kinds, group = line.split(":", 2)
            if not kinds:  # version 2, which stands in a folder of its own beside version 1
                top, names = root, _GROUP_FILES[2]
                if (root / "unified").is_dir():
                    top = root / "unified"
            elif "memory" in kinds.split(","):
                top, names = root / "memory", _GROUP_FILES[1]
            else:
                continue
            # The limits of the groups above hold too.
            place = top / group.lstrip("/")
            for folder in [place, *(parent for parent in place.parents if parent.is_relative_to(top))]:
                with suppress(OSError, ValueError):  # no such file, or "max": no limit here
                    yield _left_in(folder, *names)


# By version: the limit, what is used of it, and how the names of `memory.stat` begin.
_GROUP_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    2: ("memory.max", "memory.current", ""),
}


def _left_in(group: Path, limit: str, used: str, prefix: str) -> int:
    """What a group may still take; caches of files, which the kernel gives up, count as free."""
    facts = dict(fact.split() for fact in (group / "memory.stat").read_text().splitlines())
    caches = sum(int(facts.get(f"{prefix}{kind}_file", 0)) for kind in ("active", "inactive"))
    return max(0, int((group / limit).read_text()) - int((group / used).read_text()) + caches)


def keep_freed_memory() -> bool:
    """Have glibc keep the memory of large arrays for the next ones; False where the C library is another.

    By default it gives every large block back, and the next one is paid for page by page: up to half the time
    of a gradient update.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    return all(libc.mallopt(parameter, _KEEP_UP_TO) == 1 for parameter in (_MMAP_THRESHOLD, _TRIM_THRESHOLD))


_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
_KEEP_UP_TO = 1 << 30


def resident_bytes(pids: Iterable[int]) -> int:
    """Bytes resident in these processes; one that has just died counts nothing."""
    total = 0
    for pid in pids:
        try:
            total += psutil.Process(pid).memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


@cache
def is_amd(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether the processor is AMD's; False where that is not known."""
    if not cpuinfo.exists():  # not Linux
        return "AMD" in platform.processor()
    with open(cpuinfo, encoding="utf-8", errors="replace") as lines:
        return any(line.startswith("vendor_id") and "AuthenticAMD" in line for line in lines)


def describe() -> str:
    """One line about the machine that a measurement was made on."""
    memory = psutil.virtual_memory().total / 2**30
    system = f"{platform.system()} {platform.machine()}"
    python = f"Python {platform.python_version()}"
    return f"{system}, {available_cores()} cores, {memory:.0f} GiB, {python}"
