"""Recorded episodes of CAGE Challenge 2 as a file: which arrays it holds, read and checked."""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.meta.cyber import scenario as sc
from envs.meta.cyber.network import Verb

Arrays = dict[str, NDArray[Any]]

# What a file writes where there is no target, no exploit, no draw.
NONE = 255


class RecordingError(ValueError):
    """A file that holds no recorded episodes, in a sentence that goes on after the file's name."""


class _Numbers(NamedTuple):
    """The numbers of an array: from 0 to `highest`, and NONE where `or_none` says so."""

    highest: int
    or_none: bool = False
    # The shape of what is recorded of one step.
    of_a_step: tuple[int, ...] = ()
    lowest: int = 0

    def allow(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        return ((values >= self.lowest) & (values <= self.highest)) | (self.or_none & (values == NONE))

    def __str__(self) -> str:
        return f"{self.lowest} to {self.highest}" + (f", or {NONE}" if self.or_none else "")


_HOSTS = (sc.NUM_HOSTS,)
_SET_OF_HOSTS = _Numbers((1 << sc.NUM_HOSTS) - 1)
# Everything is after the step, [episodes, steps, ...]; the observation of a reset is not stored.
_FORMAT = {
    "act": _Numbers(sc.NUM_ACTIONS - 1),
    "obs": _Numbers(255, of_a_step=(7,)),
    "rew10": _Numbers(0, lowest=-32768),
    "red_act": _Numbers(Verb.impact),
    "red_target": _Numbers(sc.NUM_HOSTS - 1, or_none=True),
    "red_exploit": _Numbers(sc.NUM_EXPLOITS - 1, or_none=True),
    "red_success": _Numbers(2),
    "blue_success": _Numbers(2),
    "detected": _Numbers(1, or_none=True),
    "green_act": _Numbers(1),
    "green_target": _Numbers(sc.NUM_HOSTS - 1, or_none=True),
    "level": _Numbers(2, of_a_step=_HOSTS),
    "decoys": _Numbers(255, of_a_step=_HOSTS),
    "red_ports": _Numbers((1 << sc.NUM_PORTS) - 1, of_a_step=_HOSTS),
    "malware": _SET_OF_HOSTS,
    "removable": _SET_OF_HOSTS,
    "sticky": _SET_OF_HOSTS,
    "op": _Numbers(7),
    "bline_state": _Numbers(14, or_none=True),
}
# The return of each episode.
TOTAL = "total"

# What numpy and zipfile raise where a file is damaged: in the container, in a member, in a member's header.
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, EOFError, ValueError, KeyError, NotImplementedError),
    *(RuntimeError, SyntaxError, tokenize.TokenError, TypeError, OverflowError, MemoryError),
)


def read_recording(file: Path) -> Arrays:
    """The arrays of a file, checked; a RecordingError says in a sentence what is wrong with it."""
    try:
        arrays = _loaded(file)
    except OSError as error:
        raise RecordingError(f"the file cannot be read ({error.strerror or error}).") from None
    except _DAMAGE as error:
        first = str(error).partition("\n")[0].rstrip(".")
        raise RecordingError(f"this is no whole .npz file of recorded episodes ({first}).") from None
    check_recording(arrays)
    return arrays


def _loaded(file: Path) -> Arrays:
    with zipfile.ZipFile(file) as container:
        if damaged := container.testzip():
            raise zipfile.BadZipFile(f"{damaged} is damaged")
    with np.load(file, allow_pickle=False) as recorded:
        # A member that is no array comes out as bytes.
        return {name: np.asarray(recorded[name]) for name in (*_FORMAT, TOTAL) if name in recorded}


def check_recording(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse missing arrays, and other shapes, types or numbers than recorded episodes have."""
    if missing := [name for name in (*_FORMAT, TOTAL) if name not in arrays]:
        raise RecordingError(f"the file has no array {', '.join(missing)}.")
    shape = arrays["act"].shape
    if len(shape) != 2 or 0 in shape:
        raise RecordingError(
            f"its array act has the shape {shape}, which must be episodes and steps, one of each at least."
        )
    for name, numbers in _FORMAT.items():
        _check_array(name, arrays[name], (*shape, *numbers.of_a_step))
        wrong = ~numbers.allow(arrays[name])
        if wrong.any():
            place = np.argwhere(wrong)[0]
            raise RecordingError(
                f"episode {place[0]}, step {place[1]} of its array {name} holds "
                f"{arrays[name][tuple(place)]}, which must be {numbers}."
            )
    _check_array(TOTAL, arrays[TOTAL], shape[:1])
    if not np.isfinite(arrays[TOTAL]).all():
        raise RecordingError(f"its array {TOTAL} holds a number that is not finite.")
    _check_targets(arrays)


def _check_array(name: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise RecordingError(f"its array {name} has the shape {array.shape}, which must be {shape}.")
    kinds = "iuf" if name == TOTAL else "iu"
    if array.dtype.kind not in kinds:
        wanted = "numbers" if name == TOTAL else "whole numbers"
        raise RecordingError(f"its array {name} is of the type {array.dtype}, which must be {wanted}.")


def _check_targets(arrays: Mapping[str, NDArray[Any]]) -> None:
    """A sweep is of a subnet, Impact of Op_Server0, a sleep of nothing; all others are of a host."""
    verb, target = arrays["red_act"], arrays["red_target"]
    fits = np.where(verb == Verb.sleep, target == NONE, target < sc.NUM_HOSTS)
    fits &= (verb != Verb.sweep) | (target < len(sc.SUBNETS))
    fits &= (verb != Verb.impact) | (target == sc.OP_SERVER)
    scans, scanned = arrays["green_act"] == 1, arrays["green_target"]
    for name, possible, values in (
        ("red_target", fits, target),
        ("green_target", (scanned < NONE) == scans, scanned),
    ):
        if not possible.all():
            episode, step = np.argwhere(~possible)[0]
            raise RecordingError(
                f"episode {episode}, step {step} of its array {name} holds {values[episode, step]}, which "
                f"does not fit the action."
            )
