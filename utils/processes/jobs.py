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


def end_with_this_process() -> None:
    """Have whatever this process starts from now on end with it, however it ends: jobs, and what they start.

    Launchers leave their jobs behind when they are killed.
    """
    if not mark_of(os.getpid()):  # a process that is marked ends with the one that marked it
        put_mark(os.getpid(), next_mark())


def end_at_exit() -> None:
    """Have whatever this process starts from now on ended by this process, if that comes to its end itself.

    There is no warden for it: an environment in this process may have started nothing, and the service of W&B
    has to write its file when this process is killed. Called before W&B is imported, whose own exit handler
    then comes first.
    """
    if are_supported() and not mark_of(os.getpid()):
        mark = new_run().start
        put_mark(os.getpid(), mark)
        atexit.register(_end_started, os.getpid(), mark)


def _end_started(pid: int, mark: int) -> None:
    if os.getpid() == pid:  # and not a fork of it
        tracker: Any = vars(resource_tracker)["_resource_tracker"]
        # The tracker ends by itself, when it has cleaned up.
        end_marked({mark}, END_S, spared={tracker._pid})
