"""What a run on disk amounts to, as hashes: two runs are the same where theirs are."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from utils.checkpoint import CheckpointStore
from utils.logger import METRICS

# Metrics that say how long something took, or what was killed meanwhile.
OF_THE_MACHINE = ("time/", "faults/")


@dataclass(frozen=True)
class RunHashes:
    """Hashes of what a run has written and of what it would go on with."""

    metrics: str
    tensors: str
    replay: str
    streams: str
    counters: str


def hashes_of(folder: Path) -> RunHashes:
    """The hashes of the run in a folder, whose replay has overwritten no trial yet."""
    lines = [json.loads(text) for text in (folder / METRICS).read_text(encoding="utf-8").splitlines()]
    kept = [
        {name: value for name, value in line.items() if not name.startswith(OF_THE_MACHINE)} for line in lines
    ]
    checkpoint = CheckpointStore(folder / "checkpoints").latest()
    if checkpoint is None:
        raise RuntimeError(f"{folder} has no checkpoint")
    # Where one segment ends depends on when a run was stopped; their rows one after the other do not.
    segments = list(checkpoint.segments.values())
    names = [name for name in segments[0] if name != "first"] if segments else []
    rows = {name: np.concatenate([segment[name] for segment in segments]) for name in names}
    return RunHashes(
        metrics=_hash(kept),
        tensors=_hash(checkpoint.tensors),
        replay=_hash(rows),
        streams=_hash(checkpoint.facts["sampling"]),
        counters=_hash([checkpoint.facts["counters"], checkpoint.facts["num_added"]]),
    )


def _hash(value: Any) -> str:
    found = hashlib.sha256()
    _take(value, found)
    return found.hexdigest()


def _take(part: Any, found: Any) -> None:
    """Add nested tensors, arrays and numbers to a hash."""
    if isinstance(part, dict):
        part = [one for pair in part.items() for one in pair]
    if isinstance(part, (list, tuple)):
        for one in part:
            _take(one, found)
    elif isinstance(part, (torch.Tensor, np.ndarray)):
        array = torch.as_tensor(part).detach().cpu().contiguous().numpy()
        found.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    else:
        found.update(f"{part!r};".encode())
