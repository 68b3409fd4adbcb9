"""The machine that a measurement is made on: its facts, all its cores at work, and the file of results."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from utils.machine import available_cores, describe

PACKAGES = ("torch", "numpy", "gymnasium", "mujoco", "stable-baselines3", "envpool", "torchrl")


def facts() -> dict[str, Any]:
    """The machine, the versions that matter, and both as one text."""
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
    aside.write_text(json.dumps(found, indent=1, default=asdict) + "\n", encoding="utf-8")
    aside.replace(path)
    print(f"Written to {path}.")


def on_every_core(call: Callable[..., Any], *arguments: Any, timeout: float) -> list[Any]:
    """Call `call(*arguments, barrier)` in one process per core, bound to it; return what the calls return.

    A call waits at the barrier when it is prepared, so that all cores are busy while any of them measures.
    """
    context = multiprocessing.get_context("spawn")
    cores: list[int | None] = [None] * available_cores()
    if hasattr(os, "sched_getaffinity"):
        cores = sorted(os.sched_getaffinity(0))  # pyright: ignore[reportAssignmentType]
    barrier, answers = context.Barrier(len(cores)), context.Queue()
    processes = [
        context.Process(target=_on_core, args=(core, call, arguments, barrier, answers)) for core in cores
    ]
    for process in processes:
        process.start()
    found = [answers.get(timeout=timeout) for _ in processes]
    for process in processes:
        process.join()
    return found


def _on_core(
    core: int | None, call: Callable[..., Any], arguments: tuple[Any, ...], barrier: Any, answers: Any
) -> None:
    if core is not None:
        os.sched_setaffinity(0, {core})
    answers.put(call(*arguments, barrier))
