"""Checkpoints: what was saved comes back, whatever happens on the way."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkpoints import assert_is, contents, prepared, save
from utils.checkpoint import CheckpointError, CheckpointStore
from utils.disk import manifest
from utils.disk.manifest import HashingFile

PRIMITIVES = ("mkdir", "rename", "replace", "fsync", "unlink", "rmdir")


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    assert CheckpointStore(tmp_path / "none").latest() is None
    for step in (3, 5):
        save(CheckpointStore(tmp_path), step)
        assert_is(CheckpointStore(tmp_path).latest(), step)
    with pytest.raises(AssertionError):  # the comparison of these tests can fail
        assert_is(CheckpointStore(tmp_path).latest(), 3)


def test_the_newest_save_wins_even_at_the_same_or_a_lower_step(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    for step in (7, 7, 4):
        save(store, step)
        assert_is(CheckpointStore(tmp_path).latest(), step)


def test_a_segment_is_asked_for_and_written_once_and_removed_when_no_checkpoint_names_it(
    tmp_path: Path,
) -> None:
    asked: list[str] = []

    def save_counting(store: CheckpointStore, step: int) -> None:
        made = contents(step)
        for name, make in made["segments"].items():
            made["segments"][name] = lambda name=name, make=make: asked.append(name) or make()
        store.save(step, **made)

    store = CheckpointStore(tmp_path, keep=2)
    for step in range(5):
        save_counting(store, step)
    assert asked == [f"trials-{number}" for number in range(5)]
    resumed = CheckpointStore(tmp_path, keep=2)
    resumed.latest()
    save_counting(resumed, 5)
    assert asked == [f"trials-{number}" for number in range(6)]
    kept = {path.name.split(".")[0] for path in (tmp_path / "segments").iterdir()}
    assert kept == {f"trials-{number}" for number in (2, 3, 4, 5)}
    assert_is(CheckpointStore(tmp_path).latest(), 5)


def test_only_the_newest_good_ones_are_kept(tmp_path: Path) -> None:
    for keep in (1, 3):
        store = CheckpointStore(tmp_path / str(keep), keep=keep)
        for step in range(5):
            save(store, step)
        steps = [int(name.rpartition("-")[2]) for name in store._names()]
        assert steps == list(range(5))[-keep:]
    with pytest.raises(ValueError, match="at least 1"):
        CheckpointStore(tmp_path, keep=0)


def hook(
    monkeypatch: pytest.MonkeyPatch,
    before: Callable[[str, int], None],
    torn: Callable[[], None] | None = None,
) -> list[str]:
    """Call `before(name, number)` ahead of every primitive operation on the disk; the list fills with their
    names.
    """
    done: list[str] = []

    def hooked(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*args: Any, **kwargs: Any) -> Any:
            done.append(name)
            before(name, len(done) - 1)
            return real(*args, **kwargs)

        return operation

    for name in PRIMITIVES:
        monkeypatch.setattr(os, name, hooked(name, getattr(os, name)))
    real_write = HashingFile.write

    def write(self: HashingFile, data: Any) -> int:
        done.append("write")
        try:
            before("write", len(done) - 1)
        except BaseException:
            real_write(self, bytes(data)[: len(data) // 2])  # what a full disk or a kill leaves: a part
            self._file.flush()
            raise
        return real_write(self, data)

    monkeypatch.setattr(HashingFile, "write", write)
    return done


class _KilledHere(BaseException):
    """Carries a torn write out to `os._exit`."""


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_kill_before_any_primitive_operation_leaves_the_old_or_the_new_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    origin = tmp_path / "origin"
    prepared(origin)
    survived: list[int] = []
    for point in range(200):
        folder = tmp_path / str(point)
        shutil.copytree(origin, folder)
        child = os.fork()
        if child == 0:
            _save_and_die(folder, point)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        assert code in (0, 9)
        store = CheckpointStore(folder)
        found = store.latest()
        assert found is not None
        assert_is(found, found.step)
        survived.append(found.step)
        assert all(store._read(name) for name in store._names())  # and no half one is left behind it
        save(store, found.step + 1)
        save(store, found.step + 2)
        assert_is(CheckpointStore(folder).latest(), found.step + 2)
        assert not list(folder.rglob(".*"))
        assert len(list((folder / "segments").iterdir())) == 4
        shutil.rmtree(folder)
        if code == 0:
            break
    assert len(survived) > 20
    assert survived == sorted(survived) and set(survived) == {3, 4}  # old until published, new from there on
    assert "damaged" not in caplog.text


def _save_and_die(folder: Path, point: int) -> None:
    store = CheckpointStore(folder)
    store.latest()

    def kill(name: str, number: int) -> None:
        if number == point:
            if name == "write":
                raise _KilledHere
            os._exit(9)

    with pytest.MonkeyPatch.context() as patch:
        hook(patch, kill)
        try:
            save(store, 4)
        except _KilledHere:
            os._exit(9)
        except BaseException:  # noqa: BLE001 - a forked child must never return into pytest
            os._exit(1)
    os._exit(0)


def test_everything_is_on_the_disk_before_it_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[int] = set()
    unsynced: list[str] = []
    real_fsync, real_rename = os.fsync, os.rename

    def fsync(handle: int) -> None:
        synced.add(os.fstat(handle).st_ino)
        real_fsync(handle)

    def rename(source: Path, target: Path) -> None:
        if Path(source).parent == tmp_path and not Path(target).name.startswith("."):  # the publishing one
            new = [
                path
                for path in [
                    source,
                    *Path(source).iterdir(),
                    tmp_path / "segments",
                    *(tmp_path / "segments").iterdir(),
                ]
                if path.exists()
            ]
            unsynced.extend(str(path) for path in new if path.stat().st_ino not in synced)
            synced.discard(tmp_path.stat().st_ino)
        real_rename(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", rename)
    save(CheckpointStore(tmp_path), 1)
    assert unsynced == []
    assert tmp_path.stat().st_ino in synced  # and the rename itself, afterwards


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EACCES])
def test_a_failing_disk_is_one_error_that_leaves_the_old_checkpoint_and_the_store_usable(
    tmp_path: Path, code: int
) -> None:
    failed = 0
    for point in range(200):
        folder = tmp_path / str(point)
        store = prepared(folder)

        def fail(_: str, number: int, point: int = point) -> None:
            if number == point:
                raise OSError(code, os.strerror(code))

        with pytest.MonkeyPatch.context() as patch:
            done = hook(patch, fail)
            try:
                save(store, 4)
            except CheckpointError as error:
                failed += 1
                assert os.strerror(code) in str(error) and "\n" not in str(error)
                assert store.failures == 1
                assert not list(folder.rglob(".*"))
        found = CheckpointStore(folder).latest()
        assert found is not None
        assert_is(found, found.step)
        save(store, 5)
        save(store, 6)
        assert store.failures == 0
        assert_is(CheckpointStore(folder).latest(), 6)
        assert not list(folder.rglob(".*"))
        shutil.rmtree(folder)
        if point >= len(done):
            break
    assert failed > 10


def test_what_cannot_be_read_back_is_refused_before_anything_is_published(tmp_path: Path) -> None:
    store = prepared(tmp_path)
    with pytest.raises(TypeError):
        store.save(4, tensors={}, facts={"x": object()})
    with pytest.raises(ValueError, match="bject"):
        store.save(4, tensors={}, facts={}, segments={"bad": lambda: {"x": np.array([object()])}})
    with pytest.raises(ValueError, match="cannot be called"):
        store.save(4, tensors={}, facts={}, segments={"../x": dict})
    assert_is(CheckpointStore(tmp_path).latest(), 3)
    save(store, 4)
    assert not list(tmp_path.rglob(".*"))


def test_a_checkpoint_of_another_format_is_not_guessed_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    save(CheckpointStore(tmp_path), 1)
    monkeypatch.setattr(manifest, "FORMAT", 2)
    with caplog.at_level(logging.WARNING), pytest.raises(CheckpointError):
        CheckpointStore(tmp_path).latest()
    assert "format 1" in caplog.text
