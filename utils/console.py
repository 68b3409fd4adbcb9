"""What the user sees of a run: a live display in a terminal, a plain line now and then anywhere else."""

from __future__ import annotations

import logging
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import TextIO

from rich.console import Console as Terminal
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

log = logging.getLogger(__name__)

LIVE_SECONDS = 0.5
PLAIN_SECONDS = 10.0
_MAX_EPISODES = 6


@dataclass
class Progress:
    """How far a run has come; NaN and empty stand for what is not known yet."""

    env_steps: int
    total_env_steps: int
    phase: str = ""  # "random pool", "collect", "update", "evaluate"
    env_steps_per_s: float = math.nan
    updates: int = 0
    total_updates: int = 0  # 0: not known
    updates_per_s: float = math.nan
    # Part of the time in act, env, buffer, update, other.
    shares: dict[str, float] = field(default_factory=dict)
    episodes: int = 0
    trials: int = 0
    mean_length: float = math.nan  # env steps of an episode
    mean_return_100: float = math.nan  # mean trial return of the last 100 trials
    return_by_episode: list[float] = field(default_factory=list)  # the same trials, episodes 1..k
    # Of the newest evaluation: name -> return of episodes 1..k.
    evaluation: dict[str, list[float]] = field(default_factory=dict)
    tasks: str = ""  # which tasks the last wave has played
    servers: str = ""  # what messages to services have cost
    memory_parent: int = 0  # bytes
    memory_workers: int = 0


class _Screen(Terminal):
    """A terminal that may go away while the run goes on: a closed window, an ended `tee`, a full disk."""

    def on_broken_pipe(self) -> None:
        """Rich calls this where the reader of a pipe has ended."""
        self.lose()

    def lose(self) -> None:
        """Show nothing any more."""
        # What is still buffered goes nowhere; otherwise the interpreter fails to write it when it ends.
        self.quiet = True
        with suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), self.file.fileno())


class Console:
    """The display of one run.

    In a terminal it redraws in place; in a pipe or a file it prints a line every `plain_seconds` and at each
    evaluation. `update` between two drawings costs one reading of the clock, and `due` spares a caller the
    work of collecting numbers that would not be drawn.
    """

    def __init__(
        self,
        file: TextIO | None = None,
        *,
        plain_seconds: float = PLAIN_SECONDS,
        live_seconds: float = LIVE_SECONDS,
    ) -> None:
        self._terminal = _Screen(file=file, highlight=False)
        self.is_live = self._terminal.is_terminal and not self._terminal.is_dumb_terminal
        self._seconds = live_seconds if self.is_live else plain_seconds
        self._live: Live | None = None
        if self.is_live:
            # No refreshing thread: it would take the interpreter from the loop at its own moments, and a fork
            # at the wrong one would copy a held lock.
            self._live = Live(console=self._terminal, auto_refresh=False, vertical_overflow="crop")
        self._redirected: list[tuple[logging.StreamHandler[TextIO], TextIO]] = []
        self._began = time.monotonic()
        self._began_at: int | None = None
        self._drawn = -math.inf
        self._last: Progress | None = None
        self._evaluation: dict[str, list[float]] = {}

    def headline(self, text: str) -> None:
        """The first line of a run, or another that should stand out."""
        self._print(Text(text, style="bold"))

    def message(self, text: str) -> None:
        """A line that stays, above the live display."""
        self._print(Text(text))

    def _print(self, text: Text) -> None:
        with self._unless_lost():
            self._terminal.print(text, soft_wrap=True)

    @contextmanager
    def _unless_lost(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._terminal.lose()
            log.warning("Nothing more can be shown (%s); the run goes on.", error)

    @property
    def due(self) -> bool:
        """Whether `update` would draw now."""
        return time.monotonic() - self._drawn >= self._seconds

    def update(self, progress: Progress) -> None:
        """Show how far the run has come, unless that was shown just now; a new evaluation is always shown."""
        evaluated = progress.evaluation != self._evaluation
        if not evaluated and not self.due:
            self._last = progress
            return
        if self._began_at is None:
            self._began_at = progress.env_steps
        self._last = progress
        self._drawn = time.monotonic()
        if self._live is not None:
            with self._unless_lost():
                self._live.update(self.panel(progress), refresh=True)
        else:
            self._print(Text(self.line(progress, with_evaluation=evaluated)))
        self._evaluation = {name: list(values) for name, values in progress.evaluation.items()}

    @property
    def elapsed(self) -> float:
        """The seconds since the display was entered."""
        return time.monotonic() - self._began

    def seconds_left(self, progress: Progress) -> float:
        """The time that is left, at the rate of this process so far; NaN before its first step.

        Steps come in bursts, before the updates that they pay for: the slower of the two decides.
        """
        # Steps before a resume were not done by this process.
        done = progress.env_steps - (self._began_at or 0)
        if done <= 0:
            return math.nan
        steps_left = max(0, progress.total_env_steps - progress.env_steps)
        by_steps = steps_left * self.elapsed / done
        if not progress.updates_per_s > 0:
            return by_steps
        updates_left = max(0, progress.total_updates - progress.updates)
        return max(by_steps, updates_left / progress.updates_per_s)

    def line(self, progress: Progress, with_evaluation: bool = False) -> str:
        """The state of the run in one line of text."""
        parts = [
            f"{_percent(progress)} {progress.env_steps:,}/{progress.total_env_steps:,} env steps",
            progress.phase,
            f"{_number(progress.env_steps_per_s)} env steps/s",
            f"{_number(progress.updates_per_s)} updates/s",
            f"return {_number(progress.mean_return_100)}",
            f"by episode {_numbers(progress.return_by_episode)}" if progress.return_by_episode else "",
            f"servers {progress.servers}" if progress.servers else "",
            f"left {clock(self.seconds_left(progress))}",
        ]
        if with_evaluation:
            parts.append(f"tasks {progress.tasks}" if progress.tasks else "")
            parts += [f"{name} by episode {_numbers(values)}" for name, values in progress.evaluation.items()]
        return " | ".join(part for part in parts if part)

    def panel(self, progress: Progress) -> Group:
        """The live display: a bar, facts below it, and a table of returns."""
        left = clock(self.seconds_left(progress))
        bar = Table.grid(padding=(0, 1), expand=True)
        bar.add_column(no_wrap=True, min_width=11)
        bar.add_column(ratio=1)
        bar.add_column(no_wrap=True, justify="right")
        steps = f"{_percent(progress)}  {progress.env_steps:,} of {progress.total_env_steps:,} env steps"
        bar.add_row(
            Text(progress.phase, style="cyan"),
            ProgressBar(total=progress.total_env_steps, completed=progress.env_steps),
            Text(steps),
        )

        facts = Table.grid(padding=(0, 1))
        facts.add_column(style="dim", no_wrap=True, min_width=11)
        facts.add_column(overflow="fold")
        facts.add_row(
            "speed",
            f"{_number(progress.env_steps_per_s)} env steps/s   {_number(progress.updates_per_s)} updates/s",
        )
        facts.add_row("time", f"{clock(self.elapsed)} elapsed   {left} left")
        if progress.shares:
            facts.add_row(
                "spent on", "   ".join(f"{name} {share:.0%}" for name, share in progress.shares.items())
            )
        episodes = f"{progress.episodes:,} episodes of {_number(progress.mean_length)} steps"
        facts.add_row("done", f"{progress.trials:,} trials   {episodes}   {progress.updates:,} updates")
        if progress.tasks:
            facts.add_row("tasks", progress.tasks)
        if progress.servers:
            facts.add_row("servers", progress.servers)
        memory = _bytes(progress.memory_parent)
        if progress.memory_workers:
            memory += f" + workers {_bytes(progress.memory_workers)}"
        facts.add_row("memory", memory)
        return Group(bar, facts, *self._returns(progress))

    @staticmethod
    def _returns(progress: Progress) -> Iterator[Table]:
        rows = {"last 100 trials": progress.return_by_episode, **progress.evaluation}
        count = max((len(values) for values in rows.values()), default=0)
        if count == 0:
            return
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
        table.add_column("return", no_wrap=True, min_width=15)
        shown = _shown(count)
        for title in ["episode 1", *(str(index + 1) for index in shown[1:]), "trial"]:
            table.add_column(title, justify="right", no_wrap=True)
        for name, values in rows.items():
            if values:
                total = math.fsum(values)
                if values is progress.return_by_episode:
                    total = progress.mean_return_100
                cells = [_number(values[index]) if index < len(values) else "" for index in shown]
                table.add_row(name, *cells, Text(_number(total), style="dim"))
        yield table

    def __enter__(self) -> Console:
        self._began = time.monotonic()
        if self._live is not None:
            # The display puts streams of its own in the place of stdout and stderr.
            before = (sys.stdout, sys.stderr)
            with self._unless_lost():
                self._live.start()
            # Handlers of logging keep the stream they were made with, and would write into the middle of the
            # display.
            for handler in logging.getLogger().handlers:
                if isinstance(handler, logging.StreamHandler) and handler.stream in before:
                    self._redirected.append((handler, handler.stream))
                    handler.setStream(sys.stdout if handler.stream is before[0] else sys.stderr)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._last is not None:
            self._drawn = -math.inf
            self.update(self._last)
        for handler, stream in self._redirected:
            handler.setStream(stream)
        self._redirected.clear()
        if self._live is not None:
            with self._unless_lost():
                self._live.stop()


def clock(seconds: float) -> str:
    """A duration as h:mm:ss, with days where there are any."""
    if not math.isfinite(seconds):
        return "-:--:--"
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    left = f"{hour}:{minute:02}:{second:02}"
    return f"{days} d {left}" if days else left


def roughly(seconds: float) -> str:
    """A duration as one says it: `about 40 seconds`, `about 3 minutes`, `about 2.5 hours`."""
    if seconds < 90:
        return f"about {max(seconds, 2):.0f} seconds"
    if seconds < 5400:
        return f"about {seconds / 60:.0f} minutes"
    if seconds < 129_600:
        return f"about {seconds / 3600:.1f} hours"
    return f"about {seconds / 86_400:.1f} days"


def _shown(count: int) -> list[int]:
    """The episodes for which a table has room: the first ones and the last."""
    if count <= _MAX_EPISODES:
        return list(range(count))
    return [*range(_MAX_EPISODES - 1), count - 1]


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}"


def _numbers(values: Sequence[float]) -> str:
    return " ".join(_number(value) for value in values)


def _percent(progress: Progress) -> str:
    return f"{min(progress.env_steps / max(progress.total_env_steps, 1), 1):4.0%}"


def _bytes(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
