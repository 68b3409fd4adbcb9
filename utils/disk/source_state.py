"""Which version of the source runs: the commit of its checkout, and whether files differ from it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

# Git answers in milliseconds; a repository on a slow disk must not hold up a run.
SECONDS = 10.0


def source_state(checkout: Path) -> dict[str, Any]:
    """`commit` and `clean` of a checkout; both None, with the reason in `unknown`, where git cannot tell."""
    try:
        commit = _git(checkout, "rev-parse", "HEAD")
        changed = _git(checkout, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError) as error:
        return {"commit": None, "clean": None, "unknown": f"{type(error).__name__}: git gave no answer"}
    return {"commit": commit, "clean": not changed, "unknown": None}


def _git(checkout: Path, *words: str) -> str:
    # The checkout itself must be a repository: one above it is that of another project.
    command = ["git", f"--git-dir={checkout / '.git'}", f"--work-tree={checkout}", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS)
    return done.stdout.strip()
