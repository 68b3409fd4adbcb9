"""What a search may try, in the words of Hydra's sweeps: `choice`, `range`, `interval`, `tag(log, ...)`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep

from utils.options import OptionError

Value = float | int | str


@dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`, both included: whole ones if these are, and every `step` if given."""

    low: float | int
    high: float | int
    # Whether the search moves in orders of magnitude.
    log: bool = False
    step: float | int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether its numbers are whole."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def ends(self) -> tuple[Value, ...]:
        """The values that a check of the space has to try."""
        return self.low, self.high


@dataclass(frozen=True)
class Choice:
    """Some values, as they are typed on a command line."""

    values: tuple[str, ...]

    @property
    def ends(self) -> tuple[Value, ...]:
        """The values that a check of the space has to try: any of them may be wrong."""
        return self.values


Space = Mapping[str, Range | Choice]


def space_of(overrides: Sequence[Override]) -> dict[str, Range | Choice]:
    """What is to be searched: each option that is given several values, by its name."""
    return {
        override.key_or_group: _dimension(override) for override in overrides if override.is_sweep_override()
    }


def _dimension(override: Override) -> Range | Choice:
    """The values of one option; a mistake is an `OptionError`."""
    given, word = override.value(), override.input_line
    if isinstance(given, IntervalSweep):
        assert given.start is not None and given.end is not None
        low, high, step = given.start, given.end, None
    elif isinstance(given, RangeSweep):
        steps = list(given.range())
        if not steps:
            raise OptionError(f"{word} gives no values: range(start,stop) ends before its stop.")
        # Hydra adds steps up; the sum of some tenths has a last digit too many.
        low, high, step = round(min(steps), 12), round(max(steps), 12), abs(given.step)
    else:
        return Choice(tuple(dict.fromkeys(override.sweep_string_iterator())))
    log = "log" in given.tags
    if low >= high:
        raise OptionError(f"{word} leaves nothing to search: its start has to be less than its end.")
    if log and low <= 0:
        raise OptionError(f"{word} has a logarithm, so it has to start above 0.")
    if log and step is not None:
        name = override.key_or_group
        raise OptionError(
            f"{word} has steps, which a logarithm has not: write {name}=tag(log,int(interval({low},{high})))."
        )
    return Range(low, high, log, step)


def words_of(values: Mapping[str, Value]) -> list[str]:
    """The words of a command line that set these values."""
    return [f"{name}={value}" for name, value in values.items()]


def to_check(space: Space) -> Iterator[dict[str, Value]]:
    """Settings that have every end of every option in turn, and otherwise the first ends."""
    first = {name: dimension.ends[0] for name, dimension in space.items()}
    yield first
    for name, dimension in space.items():
        yield from (first | {name: value} for value in dimension.ends[1:])
