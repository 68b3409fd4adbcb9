"""The file of facts about the process that works on a run, and about those before it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from utils.disk.own_files import read_object, replace_file

# The file of a run folder that says what its options amounted to when it was last started.
USED = "used.json"
# In it: for each resume what the process before it had used, as far as that was something else.
HISTORY, MOST_RESUMES = "before_resumes", 100


def save_used(used: Mapping[str, Any], folder: Path) -> None:
    """Write what the options amount to here."""
    replace_file(folder / USED, (json.dumps(used, indent=1) + "\n").encode())


def used_before(folder: Path, used: Mapping[str, Any], env_steps: int) -> dict[str, Any]:
    """The history of a run that is resumed at `env_steps`: what processes before this one used otherwise."""
    before = read_object(folder / USED)
    changed = [name for name in used if before.get(name) != used[name]]
    facts = {"until_env_steps": env_steps} | {name: before.get(name) for name in changed}
    history = before.get(HISTORY)
    earlier = history if isinstance(history, list) else []
    return {HISTORY: [*earlier, facts][-MOST_RESUMES:]}
