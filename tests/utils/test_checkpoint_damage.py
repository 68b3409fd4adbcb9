"""A damaged checkpoint is noticed and never trusted, and a poisoned one is never executed."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.checkpoints import assert_is, contents, files, prepared, save
from utils.checkpoint import CheckpointError, CheckpointStore
from utils.disk.manifest import Manifest, digest_of


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
    (path / "manifest.json").write_text(json.dumps({"sha256": digest_of(body), "body": body}))
    assert_is(CheckpointStore(store.folder).latest(), 2)
    assert not marker.exists()
    pickle.loads(pickle.dumps(_Poison(marker)))
    assert marker.exists()  # the poison works


def test_a_reader_of_a_run_that_goes_on_finds_what_replaced_the_one_it_was_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(tmp_path, keep=1)
    save(store, 1)
    real = Manifest.read

    def published_meanwhile(path: Path) -> Manifest:
        monkeypatch.setattr(Manifest, "read", real)
        save(store, 2)
        return real(path)

    monkeypatch.setattr(Manifest, "read", published_meanwhile)
    assert_is(CheckpointStore(tmp_path).latest(), 2)


def test_what_a_damaged_file_makes_an_error_say_acts_on_no_terminal() -> None:
    assert str(CheckpointError("There is no \x1b]0;title\x07.")) == r"There is no \x1b]0;title\x07."
