"""The pipe backend: the workers of the process backend, with the rows in their messages.

It is for rows that do not fit shared memory, and it is a baseline: with a worker per slot it has the layout
of most libraries, one process per environment and a pipe to each.
"""

from __future__ import annotations

from envs.backends.workers.process import ProcessBackend
from envs.backends.workers.transport import SentRows


class PipeBackend(ProcessBackend):
    """Worker processes whose requests carry actions and whose replies carry rows."""

    transport = SentRows

    @property
    def description(self) -> str:
        return f"{super().description}, rows through pipes"
