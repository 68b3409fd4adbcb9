"""A manifest is what was written for its folder, or the checkpoint is damaged: nothing else happens."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints import assert_is, prepared, save
from utils.checkpoint import CheckpointError, CheckpointStore
from utils.disk.manifest import FILE, DamagedError, Manifest, digest_of


def rewritten(checkpoint: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a manifest by hand, with the right hash."""
    body = json.loads((checkpoint / FILE).read_text())["body"]
    change(body)
    (checkpoint / FILE).write_text(json.dumps({"sha256": digest_of(body), "body": body}))


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    **{f"no {key}": lambda body, key=key: body.pop(key) for key in ("format", "step", "files", "segments")},
    "no facts": lambda body: body.pop("facts"),
    **{
        f"{key} is {value!r}": lambda body, key=key, value=value: body.update({key: value})
        for key in ("format", "name", "step", "files", "segments", "facts")
        for value in (None, "text", 7, [1], [{"file": "tensors.pt"}])
    },
    "a file elsewhere": lambda body: body["files"][0].update(file="../../../etc/passwd"),
    "a file that is a list": lambda body: body["files"][0].update(file=["tensors.pt"]),
    "arrays that are numbers": lambda body: next(iter(body["segments"].values())).update(arrays=[1]),
    "another step": lambda body: body.update(step=4),
    "another name": lambda body: body.update(name="000009-step-3"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_a_manifest_says_the_one_before_is_taken(tmp_path: Path, change: str) -> None:
    store = prepared(tmp_path)
    newest = tmp_path / store._names()[-1]
    rewritten(newest, lambda body: None)
    assert_is(CheckpointStore(tmp_path).latest(), 3)
    rewritten(newest, CHANGES[change])
    assert_is(CheckpointStore(tmp_path).latest(), 2)
    save(store, 5)  # whatever it names, nothing outside is removed and the next save works
    assert_is(CheckpointStore(tmp_path).latest(), 5)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"body":' * 50_000, "", "3", "[]", "\x00", '{"body": 1}'])
def test_no_text_is_too_strange(tmp_path: Path, text: str) -> None:
    store = prepared(tmp_path)
    (tmp_path / store._names()[-1] / FILE).write_text(text)
    assert_is(CheckpointStore(tmp_path).latest(), 2)


def test_a_renamed_checkpoint_is_not_taken_for_a_newer_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = prepared(tmp_path)
    older, newest = store._names()
    (tmp_path / older).rename(tmp_path / "000009-step-2")
    assert_is(CheckpointStore(tmp_path).latest(), 3)
    assert f"it was written as {older} at step 2" in caplog.text
    (tmp_path / newest).rename(tmp_path / "000008-step-3")
    with pytest.raises(CheckpointError, match="All 2 checkpoints"):
        CheckpointStore(tmp_path).latest()


def test_a_manifest_from_before_names_were_written_still_reads(tmp_path: Path) -> None:
    store = prepared(tmp_path)
    for name in store._names():
        rewritten(tmp_path / name, lambda body: body.pop("name"))
    assert_is(CheckpointStore(tmp_path).latest(), 3)
    newest = tmp_path / store._names()[-1]
    newest.rename(tmp_path / "000009-step-4")
    with pytest.raises(DamagedError, match="at step 3"):
        Manifest.read(tmp_path / "000009-step-4")
