"""Checkpoints that survive a kill at any point: written aside, verified, published by one rename, and loaded
without running code.

    folder/000007-step-120000/   tensors.pt, manifest.json (sha256 and size of every file, and of itself)
    folder/segments/             arrays written once and shared by checkpoints, named by segment and content

A name that starts with a dot is unfinished work and is never read. The hashes guard against accidents, not
against an attacker that rewrites them too; against an attacker, nothing here unpickles objects.
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
class _FileRecord:
    """What a manifest records of one file."""

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


class SegmentFiles(Mapping[str, Arrays]):
    """The segments of a checkpoint in the order of saving; each is read when it is asked for."""

    def __init__(self, folder: Path, entries: dict[str, _FileRecord]) -> None:
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
    segments: SegmentFiles
    path: Path


class CheckpointStore:
    """The checkpoints of one run, of which the newest `keep` good ones stay.

    One process writes; others may read meanwhile.
    """

    def __init__(self, folder: Path, keep: int = 2) -> None:
        if keep < 1:
            raise ValueError("keep must be at least 1: a store without its last checkpoint is empty.")
        self.folder = folder
        self.keep = keep
        self.failures = 0  # saves that failed in a row
        self._trusted: list[str] = []  # names written or verified by this store, oldest first
        self._newest_segments: dict[str, _FileRecord] = {}  # the segments of the newest of them

    def save(
        self,
        step: int,
        *,
        tensors: Mapping[str, Any],
        facts: Mapping[str, Any],
        segments: Mapping[str, Callable[[], Arrays]] | None = None,
    ) -> Path:
        """Publish a checkpoint, or fail with CheckpointError and leave the checkpoints that were there.

        The content of a segment never changes: it is asked for, and written, in the first save that names it.
        """
        facts_text = json.dumps(facts)  # what cannot be JSON is refused before anything is written
        try:
            path = self._publish(step, tensors, json.loads(facts_text), segments or {})
        except OSError as error:
            self.failures += 1
            self._clear_unfinished()
            raise CheckpointError(
                f"The checkpoint at step {step} could not be written to {self.folder} ({error}); "
                "those before it are intact."
            ) from error
        self.failures = 0
        try:
            self._prune()
        except (OSError, _Damaged) as error:
            log.warning("Old checkpoints in %s could not be removed: %s", self.folder, error)
        return path

    @property
    def has_any(self) -> bool:
        """Whether a checkpoint is here, good or damaged."""
        return bool(self._names())

    def latest(self, *, with_segments: bool = True) -> Checkpoint | None:
        """The newest checkpoint whose files all are what was written; None where nothing was ever saved.

        CheckpointError where all are damaged. Segments may be gigabytes: without them, they are not verified.
        """
        seen: list[str] = []
        # A run that goes on meanwhile may have replaced what was being read: then the names are new ones.
        while (names := self._names()) != seen:
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
                self._trusted, self._newest_segments = [name], entries
                return checkpoint
        if seen:
            raise CheckpointError(
                f"All {len(seen)} checkpoints in {self.folder} are damaged: start a new run, "
                "or bring back the folder from a copy."
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
        # Where a folder's list of names has changed, it is forced to the disk: a file without a name is lost.
        if not self.folder.is_dir():
            self.folder.mkdir(parents=True)
            _sync(self.folder.parent)
        self._clear_unfinished()
        entries = self._write_segments(segments)

        # The draft has a name that readers ignore.
        number = max((int(name.split("-")[0]) for name in self._names()), default=-1) + 1
        name = f"{number:06d}-step-{step}"
        draft, final = self.folder / f".{name}", self.folder / name
        os.mkdir(draft)
        memory = io.BytesIO()  # torch.save to a file on a full disk fails in C++, without the cause
        torch.save(dict(tensors), memory)
        with _HashingFile(draft / "tensors.pt") as file:
            file.write(memory.getbuffer())
            files = [_FileRecord("tensors.pt", file.size, file.seal())]

        # The manifest is written last, with the hash of every other file and of itself.
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

        # All content is on the disk before the one rename that publishes it.
        _sync(draft)
        os.rename(draft, final)
        _sync(self.folder)
        self._trusted.append(name)
        self._newest_segments = entries
        return final

    def _write_segments(self, segments: Mapping[str, Callable[[], Arrays]]) -> dict[str, _FileRecord]:
        folder = self.folder / "segments"
        if segments and not folder.is_dir():
            os.mkdir(folder)
            _sync(self.folder)
        entries: dict[str, _FileRecord] = {}
        for name, make in segments.items():
            entry = self._newest_segments.get(name)
            if entry is None or _size(folder / entry.file) != entry.size:
                entry = _write_segment(folder, name, make())
            entries[name] = entry
        if any(entry is not self._newest_segments.get(name) for name, entry in entries.items()):
            _sync(folder)
        return entries

    def _clear_unfinished(self) -> None:
        for path in [*self.folder.glob(".*-step-*"), *self.folder.glob("segments/.*")]:
            with suppress(OSError):
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()

    def _prune(self) -> None:
        """Remove all but the newest good ones; without enough good ones, those of unknown health stay too."""
        if len(self._trusted) < self.keep:
            return
        self._trusted = self._trusted[-self.keep :]
        for name in set(self._names()) - set(self._trusted):
            # Hidden first: half of a checkpoint must not be taken for a whole one.
            os.rename(self.folder / name, self.folder / f".{name}")
        # A segment goes with the last checkpoint that names it.
        needed = {
            entry.file
            for name in self._trusted
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
    def _entries(body: dict[str, Any]) -> dict[str, _FileRecord]:
        return {
            name: _FileRecord(**{**entry, "arrays": tuple(entry["arrays"])})
            for name, entry in body["segments"].items()
        }

    def _read(self, name: str, *, with_segments: bool = True) -> tuple[Checkpoint, dict[str, _FileRecord]]:
        path = self.folder / name
        body = _manifest(path)
        entries = self._entries(body)
        # Hash before reading: what is read is what was written.
        for entry in body["files"]:
            _verify(path / entry["file"], entry["size"], entry["sha256"])
        for entry in entries.values() if with_segments else ():
            _verify(self.folder / "segments" / entry.file, entry.size, entry.sha256)
        try:
            # weights_only stays true whatever the error advises: a file that needs more is not one of ours.
            tensors = torch.load(path / "tensors.pt", map_location="cpu", weights_only=True)
        except Exception as error:  # a crafted file can make the loader raise anything
            raise _Damaged(
                f"tensors.pt holds more than tensors and numbers: {str(error).splitlines()[0]}"
            ) from error
        return Checkpoint(
            body["step"], tensors, body["facts"], SegmentFiles(self.folder / "segments", entries), path
        ), entries


def _write_segment(folder: Path, name: str, arrays: Arrays) -> _FileRecord:
    """One file: the arrays one after another in .npy format."""
    if not _SEGMENT_NAME.fullmatch(name):
        raise ValueError(f"A segment cannot be called {name!r}: letters, digits, - and _ only.")
    draft = folder / f".{name}"
    with _HashingFile(draft) as file:
        for array in arrays.values():
            # Only `write` of a file is called, though numpy's annotation asks for a whole one.
            out: Any = file
            np.lib.format.write_array(out, np.asarray(array), allow_pickle=False)
        size, sha256 = file.size, file.seal()
    # Named by its content: not even after a resume from further back does one name stand for two contents.
    final = f"{name}.{sha256[:16]}"
    os.rename(draft, folder / final)
    return _FileRecord(final, size, sha256, tuple(arrays))


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
