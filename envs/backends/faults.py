"""Faults of environments in words: from an error to a `Fault`, and from faults to an error for the user."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

from envs.backends.base import BackendError, Fault
from envs.base import SlotError

MESSAGE_LIMIT = 8_000
"""The most characters of an error's message that a fault holds."""
TRACE_LIMIT = 24_000
"""The most characters of a traceback that a fault holds."""


def shorten(text: str, length: int) -> str:
    """Return the text, without its middle if it is longer than `length` characters."""
    if len(text) <= length:
        return text
    half = length // 2
    return f"{text[:half]}\n... {len(text) - length} characters left out ...\n{text[-half:]}"


def fault_of_error(
    error: BaseException, slots: tuple[int, ...], lost: tuple[int, ...], first_slot: int = 0
) -> Fault:
    """Return the fault of an environment that raised in our own process while it ran these slots.

    A `SlotError` counts slots from `first_slot`. The error itself is not stored in the fault, since its frames
    hold the environment.
    """
    # A TracebackException gives a text even for errors whose own __str__ fails.
    report = traceback.TracebackException.from_exception(error)
    if isinstance(error, SlotError) and error.slot + first_slot in slots:
        culprits = (error.slot + first_slot,)
    else:
        culprits = slots
    return Fault(
        culprits,
        f"raised {type(error).__name__}: {shorten(str(report), MESSAGE_LIMIT)}",
        shorten("".join(report.format()), TRACE_LIMIT),
        lost,
    )


def construction_error(faults: Sequence[Fault]) -> BackendError:
    """Return the error that names each failure to build once, with its slots and its first traceback."""
    lines: list[str] = []
    for sentence in dict.fromkeys(fault.sentence for fault in faults):
        alike = [fault for fault in faults if fault.sentence == sentence]
        slots = sorted({slot for fault in alike for slot in fault.slots})
        where = f"slot {slots[0]}" if len(slots) == 1 else f"slots {slots[0]} to {slots[-1]}"
        lines.append(f"The environments of {where} could not be built: {sentence}")
        if alike[0].traceback:
            lines.append(alike[0].traceback.rstrip())
    return BackendError("\n".join(lines))


def render_error(slot: int, fault: Fault, *, lost: bool) -> RuntimeError:
    """Return the error that says why there is no picture; `lost` if the environment is gone."""
    sentence = f"The picture of slot {slot} could not be drawn: the environment {fault.sentence}"
    if lost:
        sentence += " (It is built anew at the next step or reset, unless on_fault=raise.)"
    return RuntimeError(f"{sentence}\n{fault.traceback}".rstrip())
