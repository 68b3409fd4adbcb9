"""The fuzzers by hand: `python -m tests.fuzz [target ...] [--seconds 60] [--seed S] [--case N]`.

Without a target all are played, for so many seconds each. Every finding is printed with the command that
shows it again; the exit code is 1 where there is one.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import torch

from tests.fuzz.engine import Target, findings
from tests.fuzz.targets import TARGETS

# One case takes milliseconds: longer than this is a hang, also on a machine that is busy.
HANG_S = 120


def main() -> int:
    """Play, and say what was found."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*", choices=[[], *TARGETS], metavar=f"target: {', '.join(TARGETS)}")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target")
    parser.add_argument("--seed", type=int, help="of all cases; by default another one each time")
    parser.add_argument("--case", type=int, help="play this one only")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else time.time_ns() % 2**32
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, _hangs)
    found = 0
    for name in options.targets or TARGETS:
        with tempfile.TemporaryDirectory() as folder, closing(TARGETS[name](Path(folder))) as target:
            found += _played(target, seed, options.seconds, options.case)
    return min(found, 1)


def _played(target: Target, seed: int, seconds: float, case: int | None) -> int:
    """Play one target; returns the number of its findings."""
    deadline, played = time.monotonic() + seconds, 0

    def numbers() -> Iterator[int]:
        nonlocal played
        for number in itertools.count() if case is None else [case]:
            if time.monotonic() > deadline and case is None:
                return
            signal.alarm(HANG_S)
            played += 1
            yield number

    found = 0
    for finding in findings(target, seed, numbers()):
        found += 1
        show(finding.text)
    signal.alarm(0)
    show(f"{target.name}: {played} cases with seed {seed}, {found} findings")
    return found


def show(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _hangs(*_: object) -> None:
    raise TimeoutError(f"it took more than {HANG_S} s")


if __name__ == "__main__":
    sys.exit(main())
