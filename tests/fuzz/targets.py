"""The targets of the fuzzers by name."""

from __future__ import annotations

from tests.fuzz.command_lines import CommandLines
from tests.fuzz.engine import Target
from tests.fuzz.environments import Environments
from tests.fuzz.metrics import Metrics
from tests.fuzz.run_folders import RunFolders
from tests.fuzz.segments import Segments

TARGETS: dict[str, type[Target]] = {
    target.name: target for target in (CommandLines, Environments, Metrics, RunFolders, Segments)
}
