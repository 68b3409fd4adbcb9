"""What every test has: one thread per library, and a check that it left nothing behind."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Generator, Iterator
from importlib.util import find_spec

import pytest

from tests.leaks import belongings, left_over

# What a test has ended may take its time to end, on a busy machine; only a leak waits for so long.
GRACE_S = 20.0
_FAILED = pytest.StashKey[bool]()
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

# Meta-World's environment has an older MuJoCo, without the batches that these ask for as they are imported.
collect_ignore: list[str] = []
if find_spec("mujoco") is not None and find_spec("mujoco.batch") is None:
    collect_ignore = [f"envs/meta/locomotion/test_{name}.py" for name in ("ant_dir", "mujoco_shard")]


# A shell starts background jobs with SIGINT ignored; Python and its children then never see it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="a test that is skipped fails")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember failures: the report of one keeps its frames, and with them what the test held."""
    report = yield
    if report.skipped and item.config.getoption("--no-skips"):
        report.outcome = "failed"
    if report.failed:
        item.stash[_FAILED] = True
    return report


@pytest.fixture(autouse=True)
def leaves_nothing_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """What this process and its children hold after a test is what they held before it (leaks.py)."""
    before = belongings()
    yield
    if _FAILED in request.node.stash:
        return
    deadline, pause = time.monotonic() + GRACE_S, 0.01
    while (left := left_over(before)) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(pause)
        pause = min(2 * pause, 1.0)
    assert not left, f"The test left behind: {left}"
