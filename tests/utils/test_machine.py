"""Facts about the machine."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from utils.machine import (
    CORES,
    _left_in_groups,
    available_cores,
    available_memory,
    describe,
    is_amd,
    resident_bytes,
)


def test_cores_are_those_this_process_may_use() -> None:
    assert 1 <= available_cores() <= (os.cpu_count() or 1)
    if hasattr(os, "sched_setaffinity"):
        one_core = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"
        code = f"{one_core}; from utils import machine; print(machine.available_cores())"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
        assert done.stdout.strip() == "1", done.stderr


@pytest.mark.parametrize(("share", "cores"), [("2", 2), ("0", 1), ("99", 4), ("", 4), ("two", 4)])
def test_a_job_beside_others_has_its_share_of_the_cores(
    share: str, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(4)), raising=False)
    monkeypatch.setenv(CORES, share)
    assert available_cores() == cores


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

before, kept = faults(), keep_freed_memory()
faults()
print(before, kept, faults())
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    before, kept, after = done.stdout.split()
    assert (kept == "True") == (platform.libc_ver()[0] == "glibc")
    assert kept == "False" or int(after) < int(before) / 10


@pytest.mark.parametrize(("version", "place"), [(1, "memory"), (2, "."), (2, "unified")])
def test_the_limit_of_a_container_or_a_batch_job_counts(version: int, place: str, tmp_path: Path) -> None:
    member, top = tmp_path / "cgroup", tmp_path / place
    member.write_text("5:cpu:/job\n4:memory:/job/step\n" if version == 1 else "0::/job/step\n")
    names = (
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
        if version == 1
        else ("memory.max", "memory.current", "")
    )
    for folder, limit, used in ((top / "job", "5000", "3000"), (top / "job" / "step", "max", "1000")):
        folder.mkdir(parents=True)
        for name, text in (
            (names[0], limit),
            (names[1], used),
            ("memory.stat", f"cache 7\n{names[2]}inactive_file 300\n{names[2]}active_file 200\n"),
        ):
            (folder / name).write_text(text)
    assert list(_left_in_groups(member, tmp_path)) == [2500]
    assert list(_left_in_groups(tmp_path / "no groups here", tmp_path)) == []


@pytest.mark.parametrize(("vendor", "found"), [("AuthenticAMD", True), ("GenuineIntel", False)])
def test_the_maker_of_the_processor_is_read_where_linux_has_it(
    vendor: str, found: bool, tmp_path: Path
) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(f"processor\t: 0\nvendor_id\t: {vendor}\nflags\t: fpu\n")
    assert is_amd(file) == found
