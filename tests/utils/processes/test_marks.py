"""A mark reaches whatever a marked process starts, however it is started, and only that is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from utils.processes.marks import are_supported, end_marked, mark_of, marked_processes, new_run, put_mark

pytestmark = pytest.mark.skipif(not are_supported(), reason="Linux only")

# Starts a child in a session of its own with an empty environment, a grandchild, and an orphan; then waits.
FAMILY = """
import os, subprocess, sys
SLEEP = ["/bin/sleep", "1000"]
heard, told = os.pipe()
subprocess.Popen(SLEEP, env={}, start_new_session=True)
if not os.fork():
    subprocess.Popen(SLEEP)
    os.write(told, b"the grandchild is there")
    os.execv(SLEEP[0], SLEEP)
if not os.fork():
    os.setsid()
    if not os.fork():
        os.execve(SLEEP[0], SLEEP, {})
    os._exit(0)
os.wait()
os.read(heard, 1)
print("ready", flush=True)
os.execv(SLEEP[0], SLEEP)
"""


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    """A process that is marked before it starts others."""
    with subprocess.Popen(
        [sys.executable, "-c", f"input()\n{FAMILY}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def let_start(process: subprocess.Popen[str], mark: int) -> None:
    """Mark it, and let it start the others."""
    put_mark(process.pid, mark)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "ready\n"


def test_whatever_a_marked_process_starts_has_its_mark_and_is_ended(parent: subprocess.Popen[str]) -> None:
    marks = new_run()
    with subprocess.Popen(["/bin/sleep", "1000"]) as other:
        try:
            let_start(parent, marks[7])
            found = list(marked_processes(marks))
            assert len(found) == 5 and {mark_of(pid) for pid in found} == {marks[7]}
            assert end_marked({marks[8]}, 10.0) == 0
            assert end_marked(marks, 10.0) == 5
            assert list(marked_processes(marks)) == []
            assert parent.wait() == -signal.SIGKILL
            assert other.poll() is None, "what has no mark is left alone"
        finally:
            other.kill()


def test_a_mark_is_taken_away(parent: subprocess.Popen[str]) -> None:
    marks = new_run()
    before = mark_of(parent.pid)
    put_mark(parent.pid, marks[1])
    assert mark_of(parent.pid) == marks[1]
    put_mark(parent.pid, None)
    assert mark_of(parent.pid) == before == 0


def test_what_has_ended_has_no_mark_although_nobody_asked_for_its_end(parent: subprocess.Popen[str]) -> None:
    marks = new_run()
    put_mark(parent.pid, marks[1])
    parent.kill()
    os.waitid(os.P_PID, parent.pid, os.WEXITED | os.WNOWAIT)
    assert f"{marks[1]}" in Path(f"/proc/{parent.pid}/limits").read_text(), "the kernel still has its limits"
    assert mark_of(parent.pid) == 0
    assert end_marked(marks, 10.0) == 0


def test_the_process_that_looks_is_not_ended() -> None:
    marks = new_run()
    put_mark(os.getpid(), marks[1])
    try:
        assert mark_of(os.getpid()) == marks[1]
        assert end_marked(marks, 10.0) == 0
    finally:
        put_mark(os.getpid(), None)


def test_runs_have_marks_of_their_own() -> None:
    first, second = new_run(), new_run()
    assert first[0] not in second and first[-1] not in second and len(first) == len(second)


def test_one_that_ignores_sigterm_may_clean_up_after_the_others(
    parent: subprocess.Popen[str], tmp_path: Path
) -> None:
    """So do the resource trackers of multiprocessing and joblib, when the processes that they serve end."""
    marks, left = new_run(), tmp_path / "left"
    left.touch()
    let_start(parent, marks[1])
    served, end = os.pipe()
    cleaner = f"""
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
os.read({served}, 1)
os.remove({str(left)!r})
"""
    with subprocess.Popen(
        [sys.executable, "-c", cleaner], stdout=subprocess.PIPE, text=True, pass_fds=[served]
    ) as tracker:
        assert tracker.stdout is not None and tracker.stdout.readline() == "ready\n"
        put_mark(tracker.pid, marks[2])
        threading.Thread(target=lambda: (parent.wait(), os.close(end))).start()
        # The cleaner takes as long as it needs on a busy machine.
        assert end_marked(marks, 60.0, cleaning=60.0) == 5
    os.close(served)
    assert tracker.returncode == 0 and not left.exists()


def test_one_that_ignores_sigterm_and_does_not_end_is_killed_too() -> None:
    marks = new_run()
    with subprocess.Popen(
        ["/bin/sh", "-c", "trap '' TERM; echo ready; exec sleep 1000"], stdout=subprocess.PIPE
    ) as deaf:
        assert deaf.stdout is not None and deaf.stdout.readline() == b"ready\n"
        put_mark(deaf.pid, marks[0])
        assert end_marked(marks, 10.0, cleaning=0.1) == 1
    assert deaf.returncode == -signal.SIGKILL
