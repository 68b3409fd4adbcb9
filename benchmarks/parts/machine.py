"""On what a measurement was made, and where it is written."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any

from utils.machine import available_cores, describe

PACKAGES = ("torch", "numpy", "gymnasium", "mujoco", "stable-baselines3", "envpool", "torchrl")


def facts() -> dict[str, Any]:
    """The machine and the versions that matter, and both as one text."""
    versions = {name: _version(name) for name in PACKAGES}
    packages = ", ".join(f"{name} {version or 'not installed'}" for name, version in versions.items())
    return {"text": f"{describe()}\n{packages}", "cores": available_cores(), "versions": versions}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def write(path: Path, found: dict[str, Any]) -> None:
    """Save results as JSON; a crash leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}")
    aside.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    aside.replace(path)
    print(f"Written to {path}.")
