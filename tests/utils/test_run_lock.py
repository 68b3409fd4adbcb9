"""One process per run folder, however the others die."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from pathlib import Path

import pytest

from utils.run_lock import RunLock, RunLockError

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def test_the_second_is_told_who_holds_the_folder(tmp_path: Path) -> None:
    with RunLock(tmp_path), pytest.raises(RunLockError, match=str(os.getpid())) as caught:
        RunLock(tmp_path)
    assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)


def test_after_release_the_next_one_may(tmp_path: Path) -> None:
    first = RunLock(tmp_path)
    first.release()
    first.release()
    RunLock(tmp_path).release()


def test_a_killed_holder_leaves_no_lock_behind(tmp_path: Path) -> None:
    held, tell = os.pipe()
    child = os.fork()
    if child == 0:
        kept = RunLock(tmp_path)
        os.write(tell, b"x")
        signal.pause()
        os._exit(bool(kept))
    os.read(held, 1)
    with pytest.raises(RunLockError, match=f"process {child}:"):
        RunLock(tmp_path)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    RunLock(tmp_path).release()
    os.close(held)
    os.close(tell)


def test_a_forked_worker_that_outlives_the_holder_does_not_keep_the_lock(tmp_path: Path) -> None:
    ready, tell_ready = os.pipe()
    wait, go = os.pipe()
    child = os.fork()
    if child == 0:
        kept = RunLock(tmp_path)
        if os.fork() == 0:
            os.close(go)
            os.write(tell_ready, b"x")
            os.read(wait, 1)  # lives until the test closes its end
            os._exit(0)
        os._exit(0 if kept else 1)
    os.waitpid(child, 0)
    os.read(ready, 1)
    RunLock(tmp_path).release()
    for handle in (ready, tell_ready, wait, go):
        os.close(handle)


def test_where_the_file_system_knows_no_locks_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_locks(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with RunLock(tmp_path):
        assert str(tmp_path) in caplog.text and "has no locks" in caplog.text


def test_what_a_lock_is_a_link_to_stays_as_it_is(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("years of work")
    (tmp_path / ".lock").symlink_to(home)
    with pytest.raises(RunLockError, match="cannot be made or written"):
        RunLock(tmp_path)
    (tmp_path / ".lock").unlink()
    os.link(home, tmp_path / ".lock")
    RunLock(tmp_path).release()
    assert home.read_text() == "years of work"


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "run", tmp_path / ("x" * 300)):
        with pytest.raises(RunLockError, match="cannot be made or written") as caught:
            RunLock(folder)
        assert "\n" not in str(caught.value)
