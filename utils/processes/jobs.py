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


def end_with_this_process(*, also_if_killed: bool) -> None:
    """Have whatever this process starts from now on, jobs and what they start, end with this process.

    A sweep asks for it `also_if_killed`, since launchers leave their jobs behind then. A run does not: its
    environments in this process may start nothing, for which no warden is needed, and the service of W&B has
    to write its file when the run is killed. It must be called before W&B is imported, whose own exit handler
    then comes first.
    """
    me = os.getpid()
    # A process that is marked already ends with the one that marked it.
    if not are_supported() or mark_of(me):
        return
    if also_if_killed:
        put_mark(me, next_mark())
    else:
        mark = new_run().start
        put_mark(me, mark)
        atexit.register(_end_started, me, mark)


def _end_started(pid: int, mark: int) -> None:
    if os.getpid() == pid:  # and not a fork of it
        tracker: Any = vars(resource_tracker)["_resource_tracker"]
        # The tracker ends by itself, when it has cleaned up.
        end_marked({mark}, END_S, spared={tracker._pid})
