"""Checkpoints: what was saved comes back, whatever happens on the way."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from utils import checkpoint as module
from utils.checkpoint import Checkpoint, CheckpointError, CheckpointStore

PRIMITIVES = ("mkdir", "rename", "fsync", "unlink", "rmdir")


def contents(step: int) -> dict[str, Any]:
    """What a run would save at that step: everything in it depends on the step, the segments on their name
    only.
    """
    held = range(max(step - 2, 0), step + 1)
    generator = torch.Generator().manual_seed(step)
    return {
        "tensors": {
            "agent": {"weight": torch.full((3, 2), float(step)), "count": step},
            "generator": generator.get_state(),
        },
        "facts": {"trials": step * 10, "rng": {"state": 2**127 + step}, "best": -1.5 * step, "name": "größe"},
        "segments": {f"trials-{number}": lambda number=number: segment(number) for number in held},
    }


def segment(number: int) -> dict[str, Any]:
    return {
        "obs": np.full((4, 3), number, np.float32),
        "flags": np.arange(number, dtype=np.uint8),
        "step": np.array(number),
    }


def save(store: CheckpointStore, step: int) -> Path:
    return store.save(step, **contents(step))


def assert_is(checkpoint: Checkpoint | None, step: int) -> None:
    assert checkpoint is not None
    wanted = contents(step)
    assert checkpoint.step == step
    assert checkpoint.facts == wanted["facts"]
    assert checkpoint.tensors["agent"]["count"] == step
    assert torch.equal(checkpoint.tensors["agent"]["weight"], wanted["tensors"]["agent"]["weight"])
    assert torch.equal(checkpoint.tensors["generator"], wanted["tensors"]["generator"])
    assert list(checkpoint.segments) == list(wanted["segments"])
    for name, make in wanted["segments"].items():
        made, read = make(), checkpoint.segments[name]
        assert list(read) == list(made)
        for key, array in made.items():
            assert read[key].dtype == array.dtype and read[key].shape == array.shape
            assert np.array_equal(read[key], array)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


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
    real_write = module._HashingFile.write

    def write(self: module._HashingFile, data: Any) -> int:
        done.append("write")
        try:
            before("write", len(done) - 1)
        except BaseException:
            real_write(self, bytes(data)[: len(data) // 2])  # what a full disk or a kill leaves: a part
            self._file.flush()
            raise
        return real_write(self, data)

    monkeypatch.setattr(module._HashingFile, "write", write)
    return done


class _KilledHere(BaseException):
    """Carries a torn write out to `os._exit`."""


def prepared(folder: Path) -> CheckpointStore:
    """A store with two checkpoints, opened as a resumed run does: the next save writes a segment, replaces a
    checkpoint and prunes.
    """
    store = CheckpointStore(folder)
    for step in (2, 3):
        save(store, step)
    store = CheckpointStore(folder)
    store.latest()
    return store


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


def damaged_copies(origin: Path, folder: Path) -> list[tuple[str, Callable[[], object]]]:
    """Every way to damage the newest checkpoint in `folder`, a fresh copy of `origin`."""
    newest = folder / CheckpointStore(origin)._names()[-1]
    only_newest = [
        folder / "segments" / path.name
        for path in files(origin / "segments")
        if path.name.startswith("trials-3")
    ]
    ways: list[tuple[str, Callable[[], object]]] = []
    rng = np.random.default_rng(0)
    for path in [newest / "tensors.pt", newest / "manifest.json", *only_newest]:
        content = (origin / path.relative_to(folder)).read_bytes()
        cuts = sorted({0, 1, len(content) - 1, *rng.integers(0, len(content), 12).tolist()})
        ways += [
            (
                f"{path.name} cut at {cut}",
                lambda path=path, content=content, cut=cut: path.write_bytes(content[:cut]),
            )
            for cut in cuts
        ]
        for bit in rng.integers(0, 8 * len(content), 30).tolist():
            flipped = bytearray(content)
            flipped[bit // 8] ^= 1 << bit % 8
            ways.append(
                (
                    f"{path.name} bit {bit}",
                    lambda path=path, flipped=bytes(flipped): path.write_bytes(flipped),
                )
            )
        ways.append((f"{path.name} missing", path.unlink))
        ways.append((f"{path.name} replaced", lambda path=path: path.write_bytes(b"{}")))
    return ways


def test_any_damage_is_noticed_and_the_one_before_is_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    origin, folder = tmp_path / "origin", tmp_path / "copy"
    prepared(origin)
    ways = damaged_copies(origin, folder)
    assert len(ways) > 100
    for name, damage in ways:
        shutil.copytree(origin, folder)
        damage()
        caplog.clear()
        assert_is(CheckpointStore(folder).latest(), 2)
        assert "damaged" in caplog.text, name
        shutil.rmtree(folder)


def test_when_all_are_damaged_nothing_starts_from_scratch_silently(tmp_path: Path) -> None:
    prepared(tmp_path)
    for path in tmp_path.glob("*/tensors.pt"):
        path.write_bytes(b"")
    with pytest.raises(CheckpointError, match="All 2 checkpoints") as caught:
        CheckpointStore(tmp_path).latest()
    assert "\n" not in str(caught.value)


def test_a_run_resumed_from_further_back_never_trusts_nor_counts_the_damaged_one(tmp_path: Path) -> None:
    prepared(tmp_path)
    newest = CheckpointStore(tmp_path)._names()[-1]
    (tmp_path / newest / "tensors.pt").write_bytes(b"")
    store = CheckpointStore(tmp_path, keep=2)
    assert_is(store.latest(), 2)
    made = contents(3)
    made["segments"]["trials-3"] = lambda: {
        "obs": np.zeros(2)
    }  # the name of a segment of the damaged one, with another content
    store.save(3, **made)
    assert len(store._names()) == 2 and newest not in store._names()  # good, good: the damaged one has gone
    found = CheckpointStore(tmp_path).latest()
    assert found is not None and found.segments["trials-3"]["obs"].tolist() == [0.0, 0.0]


def test_a_save_without_looking_first_removes_nothing_of_unknown_health(tmp_path: Path) -> None:
    prepared(tmp_path)
    store = CheckpointStore(tmp_path, keep=2)
    made = contents(9)
    made["segments"]["trials-3"] = lambda: {"obs": np.zeros(2)}  # a name that is in use, for something else
    path = store.save(9, **made)
    assert len(store._names()) == 3
    (path / "tensors.pt").write_bytes(b"")
    assert_is(CheckpointStore(tmp_path).latest(), 3)
    save(store, 10)
    assert len(store._names()) == 2


class _Poison:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_poisoned_file_is_refused_and_not_executed_even_with_the_right_hash(
    tmp_path: Path, zipped: bool
) -> None:
    store = prepared(tmp_path / "run")
    marker = tmp_path / "executed"
    path = store.folder / store._names()[-1]
    if zipped:
        torch.save({"x": _Poison(marker)}, path / "tensors.pt")
    else:
        (path / "tensors.pt").write_bytes(pickle.dumps(_Poison(marker)))
    content = (path / "tensors.pt").read_bytes()
    body = json.loads((path / "manifest.json").read_text())["body"]
    body["files"][0].update(size=len(content), sha256=hashlib.sha256(content).hexdigest())
    (path / "manifest.json").write_text(json.dumps({"sha256": module._digest(body), "body": body}))
    assert_is(CheckpointStore(store.folder).latest(), 2)
    assert not marker.exists()
    pickle.loads(pickle.dumps(_Poison(marker)))
    assert marker.exists()  # the poison works


def test_a_reader_of_a_run_that_goes_on_finds_what_replaced_the_one_it_was_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(tmp_path, keep=1)
    save(store, 1)
    real = module._manifest

    def published_meanwhile(path: Path) -> dict[str, Any]:
        monkeypatch.setattr(module, "_manifest", real)
        save(store, 2)
        return real(path)

    monkeypatch.setattr(module, "_manifest", published_meanwhile)
    assert_is(CheckpointStore(tmp_path).latest(), 2)


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
    monkeypatch.setattr(module, "_FORMAT", 2)
    with caplog.at_level(logging.WARNING), pytest.raises(CheckpointError):
        CheckpointStore(tmp_path).latest()
    assert "format 1" in caplog.text
