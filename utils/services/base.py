"""What services that record a run have in common: what they are told, and which numbers they draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import pstdev
from typing import Any, Protocol

from utils.logger import Follower


class Service(Follower, Protocol):
    """A follower that records a run, from its start until it is closed."""

    # Where the run can be looked at; None where nothing is recorded.
    place: str | None

    def summary(self, values: Mapping[str, Any]) -> None:
        """The results of the run, which stand beside its name."""
        ...

    def media(self, env_steps: int, files: Sequence[Path]) -> None:
        """Pictures and films of the run, at their end."""
        ...

    def close(self, exit_code: int = 0) -> None:
        """The run has ended; a second call does nothing."""
        ...


def points(values: Mapping[str, Any]) -> dict[str, float | str]:
    """The numbers in a line of metrics that can be drawn, each under a name of its own.

    A list becomes name/1, name/2, ...; null is left out. Of a table of returns, [tasks, episodes], the spread
    over tasks is drawn: `eval/held_out/return_std_episode_1`, and the same with min and max.
    """
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if not isinstance(value, list):
            flat[name] = value
        elif any(isinstance(part, list) for part in value):
            if name.endswith("/returns"):
                flat |= _spread(name.removesuffix("s"), value)
        else:
            flat |= {f"{name}/{number}": part for number, part in enumerate(value, start=1)}
    return {name: value for name, value in flat.items() if value is not None}


def _spread(name: str, table: Sequence[Sequence[float | None]]) -> dict[str, float]:
    """The spread over tasks by episode; trials that were given up have no return."""
    found: dict[str, float] = {}
    for episode, column in enumerate(zip(*table, strict=True), start=1):
        known = [value for value in column if value is not None]
        if known:
            measures = {"std": pstdev(known), "min": min(known), "max": max(known)}
            found |= {f"{name}_{what}_episode_{episode}": value for what, value in measures.items()}
    return found
