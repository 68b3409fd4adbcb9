"""Where the time goes: a clock that hands every moment to one named share."""

from __future__ import annotations

from time import perf_counter


class Stopwatch:
    """`lap(name)` gives the time since the last lap to `name`; it costs a fifth of a microsecond."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._started = self._last = perf_counter()

    def lap(self, name: str) -> None:
        """The time since the last lap was `name`."""
        now = perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._last
        self._last = now

    @property
    def total(self) -> float:
        """Seconds since the start."""
        return perf_counter() - self._started

    def shares(self) -> dict[str, float]:
        """Each name's share of all the laps."""
        total = sum(self.seconds.values()) or 1.0
        return {name: seconds / total for name, seconds in self.seconds.items()}
