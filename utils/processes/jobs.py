"""What a run or a sweep has started, as a whole: it ends with the process that the user started."""

from __future__ import annotations

import atexit
import os
from multiprocessing import resource_tracker
from typing import Any

from utils.processes.marks import are_supported, end_marked, mark_of, new_run, put_mark
from utils.processes.warden import next_mark

# How long the end of this process waits for that of what it has started.
END_S = 5.0


def end_with_this_process() -> bool:
    """Have whatever this process starts from now on, and what that starts, end with this process.

    That is at its end by itself, and not where it is killed: its environments in this process may start
    nothing, for which no warden is needed, and the service of W&B has to write its file then. It must be
    called before W&B is imported, whose own exit handler then comes first. Returns False where a process that
    has started this one sees to it.
    """
    me = os.getpid()
    if not are_supported():
        return True
    if mark_of(me):
        return False
    mark = new_run().start
    put_mark(me, mark)
    atexit.register(_end_started, me, mark)
    return True


def end_also_if_killed() -> None:
    """Have what this process starts from now on end with it also where it is killed.

    A sweep asks for it, since launchers leave their jobs behind then.
    """
    put_mark(os.getpid(), next_mark())


def _end_started(pid: int, mark: int) -> None:
    if os.getpid() == pid:  # and not a fork of it
        tracker: Any = vars(resource_tracker)["_resource_tracker"]
        # The tracker ends by itself, when it has cleaned up after this process.
        end_marked({mark}, END_S, spared={tracker._pid}, cleaning=0.0)
