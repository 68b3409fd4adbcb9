"""Closed standard streams are filled with nothing, for this process and those that it starts."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from utils.processes.streams import lines_begin_with

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = """
import os, subprocess
from utils.processes.streams import fill_standard_streams
fill_standard_streams()
assert os.pipe()[0] > 2
ends = [os.readlink(f"/proc/self/fd/{number}") for number in range(3)]
below = subprocess.run(["/bin/sh", "-c", "readlink /proc/self/fd/0"], stdout=subprocess.PIPE).stdout
with open(os.environ["ANSWER"], "w") as file:
    file.write(" ".join([*ends, below.decode().strip()]))
"""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="Linux only")
@pytest.mark.parametrize("closed", [(), (0,), (0, 1, 2)])
def test_what_is_closed_becomes_nothing_and_what_is_open_stays(
    closed: tuple[int, ...], tmp_path: Path
) -> None:
    others = "".join(f" {number}>{tmp_path}/{number}" for number in range(3) if number not in closed)
    gone = "".join(f" {number}>&-" for number in closed)
    answer = tmp_path / "answer"
    command = f"ANSWER={answer} exec \"{sys.executable}\" -c '{SCRIPT}'{others}{gone}"
    subprocess.run(["/bin/sh", "-c", command.replace("'\n", "'")], cwd=ROOT, check=True)
    expected = ["/dev/null" if number in closed else f"{tmp_path}/{number}" for number in (0, 1, 2, 0)]
    assert answer.read_text().split() == expected


def test_a_letter_that_a_console_cannot_show_is_shown_by_its_code() -> None:
    script = "from utils.processes.streams import show_any_letter; show_any_letter(); print('gr\\u00fcn')"
    for encoding, shown in (("ascii", b"gr\\xfcn\n"), ("utf-8", "grün\n".encode())):
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONIOENCODING": encoding},
            cwd=ROOT,
            capture_output=True,
            check=True,
        )
        assert done.stdout == shown


def test_lines_begin_with_a_prefix_also_those_that_are_written_in_parts_and_those_of_logging(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = sys.stdout, sys.stderr
    handler = logging.StreamHandler(sys.stderr)
    logging.getLogger().addHandler(handler)
    try:
        with lines_begin_with("[3] "):
            for part in ("one", " line\nan", "other\n", "the last"):
                sys.stdout.write(part)
            logging.getLogger().warning("take care")
            assert not sys.stdout.isatty(), "a display that redraws itself would redraw what others write"
    finally:
        logging.getLogger().removeHandler(handler)
    assert (sys.stdout, sys.stderr, handler.stream) == (*before, before[1])
    shown = capsys.readouterr()
    assert shown.out == "[3] one line\n[3] another\n[3] the last\n"
    assert shown.err == "[3] take care\n"
