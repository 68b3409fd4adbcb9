"""What the user sees, in a terminal and in a pipe."""

from __future__ import annotations

import io
import logging
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console as Terminal

from utils import console as module
from utils.console import Console, Progress, clock, roughly

PROGRESS = Progress(
    env_steps=250_000,
    total_env_steps=1_000_000,
    phase="random pool",
    env_steps_per_s=12345.6,
    updates=8123,
    updates_per_s=41.23,
    shares={"act": 0.31, "env": 0.40, "buffer": 0.03, "update": 0.22, "other": 0.04},
    episodes=8400,
    trials=4200,
    mean_length=187.3,
    mean_return_100=-12.34,
    return_by_episode=[-5.1, -7.24],
    evaluation={"held-out tasks": [5.2, 1234.5], "training tasks": [5.3, 9.1]},
    memory_parent=512 * 2**20,
    memory_workers=3 * 2**30,
)


class Screen(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The console's clock, in the hands of the test."""
    time = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: time.seconds))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return time


def rendered(progress: Progress, width: int) -> str:
    file = io.StringIO()
    Terminal(file=file, width=width).print(Console(io.StringIO()).panel(progress))
    return file.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_the_display_fits_and_holds_everything(width: int) -> None:
    text = rendered(PROGRESS, width)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    wanted = "random pool|25%|250,000 of 1,000,000 env steps|12,346 env steps/s|41.2 updates/s|elapsed|left"
    wanted += "|act 31%|env 40%|buffer 3%|update 22%|other 4%"
    wanted += "|4,200 trials|8,400 episodes of 187.3 steps|8,123 updates"
    wanted += "|512 MiB|workers 3.0 GiB|last 100 trials|-5.10|-7.24|-12.3|held-out tasks|5.20|1,234"
    for part in wanted.split("|"):
        assert part in text, part
    assert len(text.splitlines()) == 10


def test_at_the_start_nothing_is_known_and_nothing_is_invented() -> None:
    text = rendered(Progress(env_steps=0, total_env_steps=100), 80)
    assert "- env steps/s" in text and "-:--:-- left" in text and "nan" not in text and "return" not in text


def test_of_many_episodes_the_first_and_the_last_are_shown() -> None:
    text = rendered(
        replace(PROGRESS, evaluation={"held-out tasks": [float(index) for index in range(1, 21)]}), 80
    )
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    row = next(line for line in text.splitlines() if line.startswith("held-out"))
    assert re.findall(r"[\d.]+", row) == ["1.00", "2.00", "3.00", "4.00", "5.00", "20.0", "210.0"]


def test_a_pipe_gets_a_line_now_and_then_and_one_for_each_evaluation(now: SimpleNamespace) -> None:
    file = io.StringIO()
    with Console(file, plain_seconds=10.0) as console:
        assert not console.is_live
        console.headline("AntDir " + "x" * 200)
        calm = replace(PROGRESS, evaluation={})
        for _ in range(30):  # 0 s, 10 s, 20 s
            console.update(calm)
            now.seconds += 1
        console.update(calm)  # 30 s
        now.seconds += 1
        console.update(PROGRESS)
        console.update(PROGRESS)
        console.message("done")
    lines = file.getvalue().splitlines()
    assert lines[0] == "AntDir " + "x" * 200
    assert [line.count("held-out tasks by episode 5.20 1,234") for line in lines[1:]] == [0, 0, 0, 0, 1, 0, 0]
    assert lines[-2] == "done" and lines[-1].startswith(" 25%")  # the last state, on the way out
    assert "\x1b" not in file.getvalue()


def test_between_two_drawings_nothing_is_rendered(
    now: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []
    real = Console.panel
    monkeypatch.setattr(
        Console, "panel", lambda self, progress: drawn.append(progress.env_steps) or real(self, progress)
    )
    with Console(Screen(), live_seconds=0.5) as console:
        assert console.is_live and console.due
        for step in range(100):
            console.update(replace(PROGRESS, env_steps=step))
            now.seconds += 0.01
            assert console.due == (step % 50 == 49)
        console.update(replace(PROGRESS, env_steps=100))
        now.seconds += 0.01
        console.update(replace(PROGRESS, env_steps=101))
    assert drawn == [0, 50, 100, 101]  # the last one is what stays on the screen


def test_the_time_left_counts_what_this_process_did(now: SimpleNamespace) -> None:
    with Console(io.StringIO()) as console:
        console.update(replace(PROGRESS, env_steps=500_000))  # resumed here
        now.seconds += 60
        assert console.seconds_left(replace(PROGRESS, env_steps=600_000)) == pytest.approx(240)


def test_logging_and_print_go_above_the_display(
    now: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    handler = logging.StreamHandler(screen)  # as made by a logging configuration, long before
    logging.getLogger().addHandler(handler)
    try:
        with Console(screen) as console:
            console.update(PROGRESS)
            before = len(screen.getvalue())
            logging.getLogger("x").warning("a warning")
            shown = screen.getvalue()[before:]
            assert shown.index("a warning") < shown.index(
                "random pool"
            )  # then the display is drawn again below
        assert handler.stream is screen
    finally:
        logging.getLogger().removeHandler(handler)


def test_clock() -> None:
    assert [clock(value) for value in (0, 59.6, 3661, 90_061, float("nan"))] == [
        "0:00:00",
        "0:01:00",
        "1:01:01",
        "1 d 1:01:01",
        "-:--:--",
    ]


def test_a_duration_as_one_says_it() -> None:
    assert [roughly(value) for value in (0.2, 40.4, 89, 150, 5399, 9000, 129_600)] == [
        "about 2 seconds",
        "about 40 seconds",
        "about 89 seconds",
        "about 2 minutes",
        "about 90 minutes",
        "about 2.5 hours",
        "about 1.5 days",
    ]


SHOWING = """
import sys
sys.path.insert(0, {root!r})
from tests.utils.test_console import PROGRESS
from utils.console import Console
with Console(plain_seconds=0.0) as console:
    for _ in range(3):
        console.message("a line " + 100_000 * "x")
        console.update(PROGRESS)
print("the run went on", file=sys.stderr)
"""


@pytest.mark.parametrize(
    "shell", ["{0} {1} | true", "{0} {1} > /dev/full"], ids=["nobody reads", "disk full"]
)
def test_a_display_that_is_gone_ends_no_run(shell: str, tmp_path: Path) -> None:
    """As with `| tee log` when Ctrl-C has ended the tee."""
    script = tmp_path / "show.py"
    script.write_text(SHOWING.format(root=str(Path(__file__).parents[2])))
    command = shell.format(sys.executable, script)
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0 and "the run went on" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
