"""Targets: what a benchmark is to reach, what it reached, and both as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Target:
    """A number that is wanted, at least or at most, and the number that was measured."""

    target: str
    wanted: float
    # None where it was not measured in this run.
    reached: float | None
    unit: str = ""
    at_most: bool = False
    # How it was reached: by which row, or under which conditions.
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where it was not measured."""
        if self.reached is None:
            return None
        return self.reached <= self.wanted if self.at_most else self.reached >= self.wanted

    def as_json(self) -> dict[str, Any]:
        """The target as it stands in a file of results."""
        return {**asdict(self), "met": self.met}

    def __str__(self) -> str:
        bound = "<=" if self.at_most else ">="
        reached = f"{self.reached:.2f} {self.unit}".rstrip()
        wanted = f"{self.wanted:g} {self.unit}".rstrip()
        line = f"{self.target:72}{bound:>3} {wanted:>8}{reached:>12}  {met_text(self.met):8} {self.note}"
        return line.rstrip()


def met_text(met: bool | None) -> str:
    """Whether a target is met, in words."""
    return "met" if met else "NOT MET"


def targets_text(targets: Sequence[Target]) -> str:
    """A line for every target that was measured, and how many were not."""
    measured = [target for target in targets if target.reached is not None]
    lines = ["", "Targets: what is wanted, and what was reached", *map(str, measured)]
    if len(measured) < len(targets):
        lines.append(f"{len(targets) - len(measured)} more were not measured in this run.")
    return "\n".join(lines)
