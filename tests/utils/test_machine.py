"""Facts about the machine."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

from utils.machine import available_cores, available_memory, describe, resident_bytes


def test_cores_are_those_this_process_may_use() -> None:
    assert 1 <= available_cores() <= (os.cpu_count() or 1)
    if hasattr(os, "sched_setaffinity"):
        code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); from utils import machine; print(machine.available_cores())"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
        assert done.stdout.strip() == "1", done.stderr


def test_memory_is_counted_and_a_process_that_has_gone_counts_nothing() -> None:
    assert available_memory() > 2**20
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    mine = resident_bytes([os.getpid()])
    assert mine > 2**20
    assert resident_bytes([gone.pid]) == 0
    assert abs(resident_bytes([os.getpid(), gone.pid]) - mine) < mine / 2


def test_the_description_is_one_line_without_the_name_of_the_machine() -> None:
    text = describe()
    assert "cores" in text and "Python" in text and "\n" not in text
    assert os.uname().nodename not in text.split()


def test_glibc_keeps_freed_memory_when_it_is_told_to() -> None:
    """In a process of its own: there is no way back."""
    code = """
import resource, sys
import numpy as np
from utils.machine import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        np.ones(2_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

before, told = faults(), keep_freed_memory()
faults()
print(before, told, faults())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    before, told, after = done.stdout.split()
    assert (told == "True") == (platform.libc_ver()[0] == "glibc")
    assert told == "False" or int(after) < int(before) / 10
