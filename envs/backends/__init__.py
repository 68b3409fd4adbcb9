"""Backends: how slots are stepped. One file each, one contract (`base.py`); `serial` is the reference that
the others must equal.

A backend places shards and moves rows; it knows nothing of trials, tasks' meaning or learning. To add one: a
file with a subclass of `Backend`, and a line in the registry below. The tests over the registry are then its
tests.
"""

from envs.backends.base import Backend
from envs.backends.serial import SerialBackend
from envs.backends.threads.event_loop import AsyncioBackend
from envs.backends.threads.thread import ThreadBackend
from envs.backends.workers.pipe import PipeBackend
from envs.backends.workers.process import ProcessBackend

BACKENDS: dict[str, type[Backend]] = {
    "serial": SerialBackend,
    "process": ProcessBackend,
    "pipe": PipeBackend,
    "thread": ThreadBackend,
    "asyncio": AsyncioBackend,
}
