"""Checkpoints for tests: what a run would save at a step, and whether it came back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from utils.checkpoint import Checkpoint, CheckpointStore


def contents(step: int) -> dict[str, Any]:
    """What a run would save at that step: everything in it depends on the step, the segments on their name
    only.
    """
    held = range(max(step - 2, 0), step + 1)
    generator = torch.Generator().manual_seed(step)
    return {
        "tensors": {
            "agent": {"weight": torch.full((3, 2), float(step)), "count": step},
            "generator": generator.get_state(),
        },
        "facts": {"trials": step * 10, "rng": {"state": 2**127 + step}, "best": -1.5 * step, "name": "größe"},
        "segments": {f"trials-{number}": lambda number=number: segment(number) for number in held},
    }


def segment(number: int) -> dict[str, Any]:
    return {
        "obs": np.full((4, 3), number, np.float32),
        "flags": np.arange(number, dtype=np.uint8),
        "step": np.array(number),
    }


def save(store: CheckpointStore, step: int) -> Path:
    return store.save(step, **contents(step))


def assert_is(checkpoint: Checkpoint | None, step: int) -> None:
    assert checkpoint is not None
    wanted = contents(step)
    assert checkpoint.step == step
    assert checkpoint.facts == wanted["facts"]
    assert checkpoint.tensors["agent"]["count"] == step
    assert torch.equal(checkpoint.tensors["agent"]["weight"], wanted["tensors"]["agent"]["weight"])
    assert torch.equal(checkpoint.tensors["generator"], wanted["tensors"]["generator"])
    assert list(checkpoint.segments) == list(wanted["segments"])
    for name, make in wanted["segments"].items():
        made, read = make(), checkpoint.segments[name]
        assert list(read) == list(made)
        for key, array in made.items():
            assert read[key].dtype == array.dtype and read[key].shape == array.shape
            assert np.array_equal(read[key], array)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def prepared(folder: Path) -> CheckpointStore:
    """A store with two checkpoints, opened as a resumed run does: the next save writes a segment, replaces a
    checkpoint and prunes.
    """
    store = CheckpointStore(folder)
    for step in (2, 3):
        save(store, step)
    store = CheckpointStore(folder)
    store.latest()
    return store
