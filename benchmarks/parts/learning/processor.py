"""What a process has taken of the processor, and what other programs took meanwhile."""

from __future__ import annotations

import resource
import subprocess
from contextlib import suppress
from time import perf_counter

import psutil


def processor_seconds(process: subprocess.Popen[bytes]) -> float:
    """What a process and its children have taken of the processor; 0 once it is gone."""
    with suppress(psutil.Error):
        main = psutil.Process(process.pid)
        times = [one.cpu_times() for one in (main, *main.children(recursive=True))]
        return sum(one.user + one.system for one in times)
    return 0.0


class Busy:
    """From its making on: how many cores other programs than the processes waited for have taken."""

    def __init__(self) -> None:
        self._began, self._all, self._own = perf_counter(), _machine_seconds(), _children_seconds()

    def others(self) -> float:
        """On average; the children have to have ended."""
        taken = _machine_seconds() - self._all - (_children_seconds() - self._own)
        return max(0.0, taken / (perf_counter() - self._began))


def _machine_seconds() -> float:
    times = psutil.cpu_times()
    return (
        sum(times)
        - times.idle
        - getattr(times, "iowait", 0.0)
        - getattr(times, "guest", 0.0)
        - getattr(times, "guest_nice", 0.0)
    )


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
