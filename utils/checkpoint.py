"""Checkpoints that survive a kill at any point: written aside, verified, published by one rename, and loaded
without running code.

    folder/000007-step-120000/   tensors.pt, manifest.json (sha256 and size of every file, and of itself)
    folder/segments/             arrays written once and shared by checkpoints, named by segment and content

A name that starts with a dot is unfinished work and is never read. The hashes guard against accidents, not
against an attacker who rewrites them too; against that one, nothing here unpickles objects.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

log = logging.getLogger(__name__)

Arrays = dict[str, NDArray[Any]]
_FORMAT = 1
_NAME = re.compile(r"(\d{6,})-step-(\d+)")
_SEGMENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


class CheckpointError(RuntimeError):
    """A checkpoint could not be written or read; the text is one sentence for the user."""


class _Damaged(Exception):
    """One checkpoint cannot be trusted."""


@dataclass(frozen=True)
class _Entry:
    """What the manifest knows of one file."""

    file: str
    size: int
    sha256: str
    arrays: tuple[str, ...] = ()


class _HashingFile:
    """A new file that is hashed as it is written: reading it back to hash it would double the cost."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "xb")
        self._hash = hashlib.sha256()
        self.size = 0

    def write(self, data: Any) -> int:
        """Append bytes."""
        self._hash.update(data)
        written = self._file.write(data)
        self.size += written
        return written

    def seal(self) -> str:
        """Force the content to the disk; its sha256."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return self._hash.hexdigest()

    def __enter__(self) -> _HashingFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


class Segments(Mapping[str, Arrays]):
    """The segments of a checkpoint in the order they were saved in, each read when it is asked for."""

    def __init__(self, folder: Path, entries: dict[str, _Entry]) -> None:
        self._folder, self._entries = folder, entries

    def __getitem__(self, name: str) -> Arrays:
        entry = self._entries[name]
        with open(self._folder / entry.file, "rb") as file:
            return {array: np.lib.format.read_array(file, allow_pickle=False) for array in entry.arrays}

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


@dataclass(frozen=True)
class Checkpoint:
    """One verified checkpoint."""

    step: int
    tensors: dict[str, Any]
    facts: dict[str, Any]
    segments: Segments
    path: Path


class CheckpointStore:
    """The checkpoints of one run: the newest `keep` good ones stay. One process writes; others may read
    meanwhile.
    """

    def __init__(self, folder: Path, keep: int = 2) -> None:
        if keep < 1:
            raise ValueError("keep must be at least 1: a store without its last checkpoint is empty.")
        self.folder = folder
        self.keep = keep
        self.failures = 0  # saves that failed in a row
        self._good: list[str] = []  # names written or verified by this store, oldest first
        self._held: dict[str, _Entry] = {}  # the segments of the newest of them

    def save(
        self,
        step: int,
        *,
        tensors: Mapping[str, Any],
        facts: Mapping[str, Any],
        segments: Mapping[str, Callable[[], Arrays]] | None = None,
    ) -> Path:
        """Publish a checkpoint. What a segment's name stands for never changes: it is asked for and written
        in the first save that names it.

        Fails with CheckpointError, leaving the checkpoints that were there.
        """
        facts_text = json.dumps(facts)  # what cannot be JSON is refused before anything is written
        try:
            path = self._publish(step, tensors, json.loads(facts_text), segments or {})
        except OSError as error:
            self.failures += 1
            self._clear_unfinished()
            text = f"The checkpoint at step {step} could not be written to {self.folder} ({error}); those before it are intact."
            raise CheckpointError(text) from error
        self.failures = 0
        try:
            self._prune()
        except (OSError, _Damaged) as error:
            log.warning("Old checkpoints in %s could not be removed: %s", self.folder, error)
        return path

    @property
    def has_any(self) -> bool:
        """Whether anything was ever saved here, good or damaged."""
        return bool(self._names())

    def latest(self, *, with_segments: bool = True) -> Checkpoint | None:
        """The newest checkpoint all of whose files are what was written; None where nothing was ever saved;
        CheckpointError where all are damaged.

        Segments may be gigabytes: who does not need them need not have them looked at.
        """
        seen: list[str] = []
        while (
            names := self._names()
        ) != seen:  # a run that goes on meanwhile may have replaced what was being read
            seen = names
            for name in reversed(names):
                try:
                    checkpoint, entries = self._read(name, with_segments=with_segments)
                except (_Damaged, OSError) as error:
                    log.warning(
                        "The checkpoint %s is damaged (%s): trying the one before it.",
                        self.folder / name,
                        error,
                    )
                    continue
                self._good, self._held = [name], entries
                return checkpoint
        if seen:
            raise CheckpointError(
                f"All {len(seen)} checkpoints in {self.folder} are damaged: start a new run, or bring back the folder from a copy."
            )
        return None

    # Writing ------------------------------------------------------------------------------------------------

    def _publish(
        self,
        step: int,
        tensors: Mapping[str, Any],
        facts: dict[str, Any],
        segments: Mapping[str, Callable[[], Arrays]],
    ) -> Path:
        if not self.folder.is_dir():
            self.folder.mkdir(parents=True)
            _sync(self.folder.parent)
        self._clear_unfinished()
        entries = self._write_segments(segments)
        number = max((int(name.split("-")[0]) for name in self._names()), default=-1) + 1
        name = f"{number:06d}-step-{step}"
        draft, final = self.folder / f".{name}", self.folder / name
        os.mkdir(draft)
        memory = io.BytesIO()  # torch.save to a file on a full disk fails in C++, without the cause
        torch.save(dict(tensors), memory)
        with _HashingFile(draft / "tensors.pt") as file:
            file.write(memory.getbuffer())
            files = [_Entry("tensors.pt", file.size, file.seal())]
        body = {
            "format": _FORMAT,
            "step": step,
            "files": [vars(entry) for entry in files],
            "segments": {segment: vars(entry) for segment, entry in entries.items()},
            "facts": facts,
        }
        with _HashingFile(draft / "manifest.json") as file:
            file.write(json.dumps({"sha256": _digest(body), "body": body}).encode())
            file.seal()
        _sync(draft)
        os.rename(draft, final)
        _sync(self.folder)
        self._good.append(name)
        self._held = entries
        return final

    def _write_segments(self, segments: Mapping[str, Callable[[], Arrays]]) -> dict[str, _Entry]:
        folder = self.folder / "segments"
        if segments and not folder.is_dir():
            os.mkdir(folder)
            _sync(self.folder)
        entries: dict[str, _Entry] = {}
        for name, make in segments.items():
            held = self._held.get(name)
            entries[name] = (
                held
                if held and _size(folder / held.file) == held.size
                else _write_segment(folder, name, make())
            )
        if any(entry is not self._held.get(name) for name, entry in entries.items()):
            _sync(folder)
        return entries

    def _clear_unfinished(self) -> None:
        for path in [*self.folder.glob(".*-step-*"), *self.folder.glob("segments/.*")]:
            with suppress(OSError):
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _prune(self) -> None:
        """Remove what is not among the newest good ones; a checkpoint of unknown health stays until enough
        good ones are there.
        """
        if len(self._good) < self.keep:
            return
        self._good = self._good[-self.keep :]
        for name in set(self._names()) - set(self._good):
            # Hidden first: half of a checkpoint must not look like a whole one.
            os.rename(self.folder / name, self.folder / f".{name}")
        needed = {
            entry.file
            for name in self._good
            for entry in self._entries(_manifest(self.folder / name)).values()
        }
        for path in (self.folder / "segments").glob("*"):
            if path.name not in needed:
                path.unlink()
        self._clear_unfinished()

    # Reading ------------------------------------------------------------------------------------------------

    def _names(self) -> list[str]:
        """Published checkpoints, oldest first."""
        names = os.listdir(self.folder) if self.folder.is_dir() else []
        return sorted(
            (name for name in names if _NAME.fullmatch(name)), key=lambda name: int(name.split("-")[0])
        )

    @staticmethod
    def _entries(body: dict[str, Any]) -> dict[str, _Entry]:
        return {
            name: _Entry(**{**entry, "arrays": tuple(entry["arrays"])})
            for name, entry in body["segments"].items()
        }

    def _read(self, name: str, *, with_segments: bool = True) -> tuple[Checkpoint, dict[str, _Entry]]:
        path = self.folder / name
        body = _manifest(path)
        entries = self._entries(body)
        for entry in body["files"]:
            _verify(path / entry["file"], entry["size"], entry["sha256"])
        for entry in entries.values() if with_segments else ():
            _verify(self.folder / "segments" / entry.file, entry.size, entry.sha256)
        try:
            # weights_only stays true whatever it says: a file that needs more is not one of ours.
            tensors = torch.load(path / "tensors.pt", map_location="cpu", weights_only=True)
        except Exception as error:  # a crafted file can make the loader raise anything
            raise _Damaged(
                f"tensors.pt holds more than tensors and numbers: {str(error).splitlines()[0]}"
            ) from error
        return Checkpoint(
            body["step"], tensors, body["facts"], Segments(self.folder / "segments", entries), path
        ), entries


def _write_segment(folder: Path, name: str, arrays: Arrays) -> _Entry:
    """One file: the arrays one after another in .npy format."""
    if not _SEGMENT_NAME.fullmatch(name):
        raise ValueError(f"A segment cannot be called {name!r}: letters, digits, - and _ only.")
    draft = folder / f".{name}"
    with _HashingFile(draft) as file:
        for array in arrays.values():
            np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)  # pyright: ignore[reportArgumentType]
        size, sha256 = file.size, file.seal()
    final = f"{name}.{sha256[:16]}"  # named by content: the same name never stands for two contents, not even after a resume from further back
    os.rename(draft, folder / final)
    return _Entry(final, size, sha256, tuple(arrays))


def _manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((path / "manifest.json").read_bytes())
        body, sha256 = manifest["body"], manifest["sha256"]
    except (ValueError, KeyError, TypeError) as error:
        raise _Damaged("manifest.json is not readable") from error
    if _digest(body) != sha256:
        raise _Damaged("manifest.json has changed")
    if body["format"] != _FORMAT:
        raise _Damaged(f"it has format {body['format']}, this version reads {_FORMAT}")
    return body


def _verify(path: Path, size: int, sha256: str) -> None:
    if _size(path) != size:
        raise _Damaged(f"{path.name} should have {size} bytes, not {_size(path)}")
    with open(path, "rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != sha256:  # pyright: ignore[reportArgumentType]
            raise _Damaged(f"{path.name} has changed")


def _digest(body: Any) -> str:
    return hashlib.sha256(json.dumps(body).encode()).hexdigest()


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def _sync(folder: Path) -> None:
    """Force a folder's list of names to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
