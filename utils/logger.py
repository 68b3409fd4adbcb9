"""The metrics of a run: JSON Lines are the truth, W&B a copy of it."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from utils.disk.own_files import open_own, replace_file

log = logging.getLogger(__name__)

STEP_KEY = "env_steps"
METRICS = "metrics.jsonl"


class StopRun(Exception):
    """Raised by a follower that has seen enough of a run: it ends there, without another checkpoint."""


class Follower(Protocol):
    """A service that gets a copy of every line, when it is written, and may raise `StopRun`."""

    def log(self, env_steps: int, values: Mapping[str, Any], /) -> None: ...


class Logger:
    """Writes `folder/metrics.jsonl`, one object per line; no line waits in a buffer of this process.

    Keys under `time/` are wall-clock measurements: everything else repeats exactly when a run is repeated or
    resumed.
    """

    def __init__(
        self, folder: Path, followers: Sequence[Follower] = (), resume_at: int | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / METRICS
        self.num_not_finite = 0
        self._followers = followers
        if resume_at is not None:
            _rewind(self.path, resume_at)
        self._file = open_own(self.path, "ab", buffering=0)
        self.offset: int = self._file.seek(0, os.SEEK_END)

    def log(self, env_steps: int, values: Mapping[str, Any]) -> None:
        """Append one line; NaN and infinity become null and are counted in `num_not_finite`."""
        if STEP_KEY in values:
            raise ValueError(f"{STEP_KEY!r} is the axis of the metrics and cannot be one of them.")
        plain = {key: self._plain(key, value) for key, value in values.items()}
        text = json.dumps({STEP_KEY: int(env_steps), **plain}, allow_nan=False, ensure_ascii=False)
        line = f"{text}\n".encode()
        # A nearly full disk takes a part of the line; the next write then raises the error.
        written = self._file.write(line)
        while written < len(line):
            written += self._file.write(line[written:])
        self.offset += len(line)
        for follower in self._followers:
            follower.log(int(env_steps), plain)

    def _plain(self, key: str, value: Any) -> Any:
        """The value in JSON's types; scalars and arrays of numpy and torch alike have `tolist`."""
        if hasattr(value, "tolist"):
            value = value.tolist()
        if isinstance(value, float):
            if math.isfinite(value):
                return value
            self.num_not_finite += 1
            return None
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, (list, tuple)):
            return [self._plain(key, part) for part in value]
        if isinstance(value, Mapping):
            return {str(name): self._plain(key, part) for name, part in value.items()}
        raise TypeError(
            f"The metric {key!r} is a {type(value).__name__}: log numbers, text, or lists of them."
        )

    def close(self) -> None:
        """Close the file; followers are closed by their owners."""
        self._file.close()

    def __enter__(self) -> Logger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of metrics without the damaged ones; none where there is no file."""
    if not path.is_file():
        return []
    return [line for text in path.read_bytes().split(b"\n") if (line := _line_of(text)) is not None]


def _line_of(text: bytes) -> dict[str, Any] | None:
    """One line of metrics; None where it is damaged."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):  # no JSON, no UTF-8, or endless brackets
        return None
    return line if isinstance(line, dict) and isinstance(line.get(STEP_KEY), int) else None


def _rewind(path: Path, offset: int) -> None:
    """Forget the lines after `offset`, which a resumed run will write again, and those that are damaged.

    So the next line is never appended to a broken one, and every line can be read.
    """
    there = path.read_bytes()[:offset] if path.exists() else b""
    *lines, rest = there.split(b"\n")
    damaged = [number for number, text in enumerate(lines, start=1) if _line_of(text) is None]
    if not (damaged or rest or len(there) < offset):
        with open_own(path, "ab") as file:
            file.truncate(offset)
        return
    replace_file(path, b"".join(text + b"\n" for text in lines if _line_of(text) is not None))

    # What is lost, in one sentence.
    problems: list[str] = []
    if len(there) < offset:
        problems.append(f"it has lost its last {offset - len(there)} bytes")
    if rest:
        problems.append("it ends within a line")
    if damaged:
        problems.append(
            f"its lines {', '.join(map(str, damaged[:10]))} cannot be read ({len(damaged)} in all)"
        )
    log.warning(
        "%s is damaged: %s. Lines that are whole stay, and the run goes on behind them.",
        path,
        " and ".join(problems),
    )
