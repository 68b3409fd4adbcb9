"""The warden ends what its process has marked, however that ends, and starts only where there is a mark."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from utils.processes.marks import are_supported

pytestmark = pytest.mark.skipif(not are_supported(), reason="Linux only")

ROOT = Path(__file__).resolve().parents[3]
PRELUDE = """
import os, signal, subprocess, sys
from utils.processes import warden
from utils.processes.marks import put_mark

def start(where):
    child = subprocess.Popen(["/bin/sleep", "1000"], stdout=subprocess.DEVNULL, start_new_session=True)
    put_mark(child.pid, warden.next_mark())
    os.makedirs(f"{where}/folder/inner")
    warden.remove_at_the_end(f"{where}/folder")
    return child

"""


def launch(text: str, folder: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """Run a script until it has printed some numbers; they are watched from then on."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PRELUDE + text, str(folder)],
        cwd=ROOT,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    return process, [os.pidfd_open(int(number)) for number in process.stdout.readline().split()]


def all_end(watched: list[int]) -> bool:
    """Whether all of these processes end."""
    try:
        for descriptor in watched:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            if not poll.poll(20_000):
                return False
        return True
    finally:
        for descriptor in watched:
            os.close(descriptor)


@pytest.mark.parametrize("how", ["SIGKILL", "os._exit", "the end"])
def test_what_is_marked_ends_with_its_process_and_the_warden_too(how: str, tmp_path: Path) -> None:
    last = "os._exit(0)" if how == "os._exit" else ""
    process, watched = launch(
        "child = start(sys.argv[1])\n"
        "print(child.pid, warden.warden_pid(), flush=True)\n"
        f"input()\nchild.returncode = 0\n{last}\n",
        tmp_path,
    )
    with process:
        if how == "SIGKILL":
            process.kill()
        out, _ = process.communicate("\n", timeout=60)
    assert (out, process.returncode) == ("", -signal.SIGKILL if how == "SIGKILL" else 0)
    assert all_end(watched) and os.listdir(tmp_path) == []


def test_a_warden_that_was_killed_is_replaced_and_knows_what_the_old_one_knew(tmp_path: Path) -> None:
    process, watched = launch(
        "child = start(sys.argv[1])\n"
        "os.kill(old := warden.warden_pid(), signal.SIGKILL)\n"
        "os.waitid(os.P_PID, old, os.WEXITED | os.WNOWAIT)\n"
        "warden.next_mark()\n"
        "assert warden.warden_pid() != old\n"
        "print(child.pid, warden.warden_pid(), flush=True)\n"
        "input()\n",
        tmp_path,
    )
    with process:
        process.kill()
    assert all_end(watched) and os.listdir(tmp_path) == []


def test_a_marked_process_has_a_warden_that_is_not_marked_and_a_fork_one_of_its_own(tmp_path: Path) -> None:
    """Otherwise the warden above would end the one below before that has done its work."""
    process, watched = launch(
        "put_mark(os.getpid(), warden.next_mark())\n"
        "read, write = os.pipe()\n"
        "if not (fork := os.fork()):\n"
        "    assert warden.warden_pid() is None\n"
        "    child = start(sys.argv[1])\n"
        "    os.write(write, b'%d %d' % (child.pid, warden.warden_pid()))\n"
        "    signal.pause()\n"
        "print(os.read(read, 100).decode(), fork, warden.warden_pid(), flush=True)\n"
        "input()\n",
        tmp_path,
    )
    with process:
        process.kill()
    assert all_end(watched) and os.listdir(tmp_path) == []


def test_a_signal_to_the_group_leaves_the_warden(tmp_path: Path) -> None:
    process, watched = launch(
        "os.setpgid(0, 0)\n"
        "child = start(sys.argv[1])\n"
        "print(child.pid, warden.warden_pid(), flush=True)\n"
        "input()\n",
        tmp_path,
    )
    with process:
        os.killpg(process.pid, signal.SIGKILL)
    assert all_end(watched) and os.listdir(tmp_path) == []
