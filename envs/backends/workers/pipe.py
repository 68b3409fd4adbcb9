"""The pipe backend: the workers of the process backend with the rows in their messages, for what does not fit
shared memory, and as a baseline.

With a worker per slot it is the layout that most libraries have: one process per environment, and a pipe to
each.
"""

from __future__ import annotations

from envs.backends.workers.process import ProcessBackend
from envs.backends.workers.transport import SentRows


class PipeBackend(ProcessBackend):
    """Worker processes whose requests carry actions and whose replies carry rows."""

    carrier = SentRows

    @property
    def description(self) -> str:
        return f"{super().description}, rows through pipes"
