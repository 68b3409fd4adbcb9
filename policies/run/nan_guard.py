"""NanGuard: ends a run whose losses are not finite any more, and saves the batch of that update."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from buffers.base import Batch
from utils.disk.own_files import replacing

# No healthy metric comes near. Beyond it a loss explodes, even if it is not infinite yet.
LARGEST = 1e15
# The file in the run folder with the batch of the failed update; torch.load(weights_only=True) reads it.
FILE = "exploded.pt"


class ExplodedError(RuntimeError):
    """A loss is not finite, or huge; the text is one sentence for the user."""


@dataclass
class _Unchecked:
    """An update whose metrics have not been checked yet."""

    number: int
    batch: Batch
    metrics: dict[str, Tensor]
    # The largest absolute value among the metrics, still on the device.
    largest: Tensor


class NanGuard:
    """Checks each update one update late: by then its metrics are there, and no device waits for it."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._unchecked: _Unchecked | None = None

    def watch(self, number: int, batch: Batch, metrics: dict[str, Tensor]) -> None:
        """Update `number`, counted from 0, has been made of this batch; the one before it is checked."""
        self.check_last()
        # One number for all metrics, still on the device: reading it here would make the host wait.
        largest = torch.stack([value.detach().float() for value in metrics.values()]).abs().max()
        self._unchecked = _Unchecked(number, batch, metrics, largest)

    def check_last(self) -> None:
        """Check the last update, and end the run by an `ExplodedError` where its metrics are wrong."""
        update, self._unchecked = self._unchecked, None
        if update is not None and not float(update.largest) <= LARGEST:  # a comparison with NaN is false
            raise ExplodedError(self._explain(update))

    def _explain(self, update: _Unchecked) -> str:
        """One sentence: which metric, in which update, and whether its batch is the cause."""
        # The first metric that is wrong, since a NaN soon reaches all of them.
        values = {name: float(value) for name, value in update.metrics.items()}
        name = next(name for name, value in values.items() if not abs(value) <= LARGEST)

        # A batch that is not finite comes from the environment; otherwise the learning itself has failed.
        tensors = _tensors_of(update.batch)
        spoilt = [
            key for key, part in tensors.items() if part.is_floating_point() and not part.isfinite().all()
        ]
        if spoilt:
            cause = f"because {' and '.join(spoilt)} of its batch are not finite"
        else:
            cause = (
                "though its batch is finite: "
                "a smaller algorithm.learning_rate or an algorithm.max_grad_norm may keep it down"
            )
        saved = self._save({"update": update.number, "metrics": values, "batch": tensors})
        return f"{name} was {values[name]:g} in update {update.number}, {cause}{saved}."

    def _save(self, evidence: dict[str, Any]) -> str:
        """Save the evidence in the run folder, and return the part of the sentence that says where."""
        if self._folder is None:
            return ""
        try:
            with replacing(self._folder / FILE) as file:
                torch.save(evidence, file)
        except (OSError, RuntimeError) as error:  # torch raises the latter where the disk is full
            return f" (the batch could not be saved: {error})"
        return f" (the batch is in {self._folder / FILE})"


def _tensors_of(batch: Batch) -> dict[str, Tensor]:
    """The tensors of a batch by name, on the CPU; those of a dict field are `<field>.<key>`."""
    tensors: dict[str, Tensor] = {}
    for item in fields(batch):
        value = getattr(batch, item.name)
        if isinstance(value, dict):
            tensors |= {f"{item.name}.{key}": part.detach().cpu() for key, part in value.items()}
        elif isinstance(value, Tensor):
            tensors[item.name] = value.detach().cpu()
    return tensors
