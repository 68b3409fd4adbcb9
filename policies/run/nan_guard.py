"""NanGuard: ends a run whose losses are no numbers any more, by one sentence, and keeps the batch with which
they ceased to be.
"""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from buffers.base import Batch

LARGEST = 1e15
"""No metric of an update comes near; beyond, a loss explodes, though it may take a while until it is
infinite.
"""
FILE = "exploded.pt"
"""What is kept in the run folder; torch.load(weights_only=True) reads it."""


class ExplodedError(RuntimeError):
    """A loss is not finite, or huge; the text is one sentence for the user."""


class NanGuard:
    """Looks at the metrics of an update when the next one has been started: by then they are there, and no
    device stands still for it.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._waiting: tuple[int, Batch, dict[str, Tensor], Tensor] | None = None

    def watch(self, update: int, batch: Batch, metrics: dict[str, Tensor]) -> None:
        """An update, counted from 0, has been made of this batch."""
        self.settle()
        largest = torch.stack([value.detach().float() for value in metrics.values()]).abs().max()
        self._waiting = update, batch, metrics, largest

    def settle(self) -> None:
        """Look at the last update too: before its parameters act or are saved."""
        if self._waiting is None:
            return
        update, batch, metrics, largest = self._waiting
        self._waiting = None
        if not float(largest) <= LARGEST:  # false for NaN
            raise ExplodedError(self._sentence(update, batch, metrics))

    def _sentence(self, update: int, batch: Batch, metrics: dict[str, Tensor]) -> str:
        values = {name: float(value) for name, value in metrics.items()}
        name = next(name for name, value in values.items() if not abs(value) <= LARGEST)
        rows = _plain(batch)
        spoilt = [key for key, part in rows.items() if part.is_floating_point() and not part.isfinite().all()]
        cause = (
            f"because {' and '.join(spoilt)} of its batch are not finite"
            if spoilt
            else "though its batch is finite: a smaller algorithm.learning_rate or an algorithm.max_grad_norm may keep it down"
        )
        return f"{name} was {values[name]:g} in update {update}, {cause}{self._keep({'update': update, 'metrics': values, 'batch': rows})}."

    def _keep(self, found: dict[str, Any]) -> str:
        if self._folder is None:
            return ""
        partial = self._folder / f".{FILE}.{os.getpid()}"
        try:
            torch.save(found, partial)
            partial.replace(self._folder / FILE)
        except (OSError, RuntimeError) as error:  # torch raises the latter where the disk is full
            return f" (the batch could not be saved: {error})"
        return f" (the batch is in {self._folder / FILE})"


def _plain(batch: Batch) -> dict[str, Tensor]:
    """The tensors of a batch by name; parts of a dict as `obs.part`."""
    parts: dict[str, Tensor] = {}
    for item in fields(batch):
        value = getattr(batch, item.name)
        named = (
            {f"{item.name}.{key}": part for key, part in value.items()}
            if isinstance(value, dict)
            else {item.name: value}
        )
        parts |= {name: part.detach().cpu() for name, part in named.items() if isinstance(part, Tensor)}
    return parts
