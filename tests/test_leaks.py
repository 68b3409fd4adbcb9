"""The check around every test finds what it left behind, and blames it for nothing of other programs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import pytest

from tests.leaks import SHARED, belongings, left_over

pytestmark = pytest.mark.skipif(not SHARED.exists(), reason="Linux only")


@contextmanager
def names_removed(*names: str) -> Iterator[None]:
    try:
        yield
    finally:
        for name in names:
            with suppress(FileNotFoundError):
                (SHARED / name).unlink()


@contextmanager
def another_program(*code: str) -> Iterator[str]:
    """A program that is no child of ours, which has run this code; what it printed."""
    text = "\n".join(["import os, sys", *code, "sys.stdout.flush()", "sys.stdin.read()"])
    # It is the child of a process that ends at once.
    start = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]])"
    with subprocess.Popen(
        [sys.executable, "-c", start, text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        printed = parent.stdout.readline().strip()
        parent.wait()
        yield printed
        parent.stdin.close()
        parent.stdout.read()  # until it has ended


def test_shared_memory_that_nobody_unlinks_is_a_leak() -> None:
    before = belongings()
    memory = SharedMemory(create=True, size=64)
    held = left_over(before)["shared memory"]
    memory.close()
    orphaned = left_over(before)["shared memory"]
    memory.unlink()
    assert held == orphaned == {memory.name} and "shared memory" not in left_over(before)


def test_a_name_with_the_number_of_our_process_is_a_leak() -> None:
    before, name = belongings(), f"torch_{os.getpid()}_retrial"
    with names_removed(name):
        (SHARED / name).touch()
        assert left_over(before) == {"shared memory": {name}}


def test_what_another_program_holds_is_its_own() -> None:
    before = belongings()
    code = f"print((file := open('{SHARED}/retrial-test-held', 'w')).name)"
    with names_removed("retrial-test-held"), another_program(code) as path:
        assert Path(path).exists()
        assert "shared memory" not in left_over(before)


def test_what_another_program_that_has_ended_left_is_its_own() -> None:
    before = belongings()
    code = f"name = f'joblib_memmapping_folder_{{os.getpid()}}_a0'; os.mkdir('{SHARED}/' + name); print(name)"
    with another_program(code) as name:
        assert (SHARED / name).is_dir()
        assert "shared memory" not in left_over(before)
    assert (SHARED / name).is_dir() and left_over(before) == {}
    (SHARED / name).rmdir()


def test_a_child_and_a_file_are_leaks(tmp_path: Path) -> None:
    before = belongings()
    with (
        open(tmp_path / "file", "w"),
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child,
    ):
        left = left_over(before)
        child.kill()
    assert left.keys() == {"files", "children"} and left_over(before) == {}
