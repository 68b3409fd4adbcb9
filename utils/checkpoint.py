"""Checkpoints that survive a kill at any point: written aside, verified, published by one rename, and loaded
without running code.

    folder/000007-step-120000/   tensors.pt, manifest.json (sha256 and size of every file, and of itself)
    folder/segments/             arrays written once and shared by checkpoints, named by segment and content
    folder/written.json          the names of all of them: only what is listed is ever removed

A name that starts with a dot is unfinished work and is never read. The hashes guard against accidents, not
against an attacker that rewrites them too; against an attacker, nothing here unpickles objects.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from utils.disk.manifest import (
    FILE,
    Arrays,
    DamagedError,
    FileRecord,
    HashingFile,
    Manifest,
    SegmentFiles,
    size_of,
)
from utils.disk.written import SEGMENTS, WrittenList
from utils.text import harmless

log = logging.getLogger(__name__)

TENSORS = "tensors.pt"
_NAME = re.compile(r"(\d{6,})-step-(\d+)")
_SEGMENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


class CheckpointError(RuntimeError):
    """A checkpoint could not be written or read; the text is one sentence for the user."""

    def __init__(self, text: object = "") -> None:
        # It repeats what stands in files that may come from somebody else.
        super().__init__(harmless(str(text)))


class LostSegmentsError(CheckpointError):
    """Segments are damaged that every checkpoint needs; `names` are those of the newest checkpoint."""

    def __init__(self, names: tuple[str, ...], text: str) -> None:
        super().__init__(text)
        self.names = names


@dataclass(frozen=True)
class Checkpoint:
    """One verified checkpoint."""

    step: int
    tensors: dict[str, Any]
    facts: dict[str, Any]
    # The segments that are what was written.
    segments: SegmentFiles
    path: Path
    # The names of the others.
    lost: tuple[str, ...] = ()


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
        self._segments = folder / SEGMENTS
        self._written = WrittenList(folder)
        self._trusted: list[str] = []  # names written or verified by this store, oldest first
        self._newest_segments: dict[str, FileRecord] = {}  # the segments of the newest of them
        self._new_files: list[Path] = []  # segments that the present save has written

    def save(
        self,
        step: int,
        *,
        tensors: Mapping[str, Any],
        facts: Mapping[str, Any],
        segments: Mapping[str, Callable[[], Arrays]] | None = None,
    ) -> Path:
        """Publish a checkpoint, or fail with CheckpointError and leave the folder as it was.

        The content of a segment never changes: it is asked for, and written, in the first save that names it.
        """
        facts_text = json.dumps(facts)  # what cannot be JSON is refused before anything is written
        try:
            path = self._publish(step, tensors, json.loads(facts_text), segments or {})
        except OSError as error:
            self.failures += 1
            self._undo()
            before = "those before it are intact" if self.has_any else "there is none before it"
            raise CheckpointError(
                f"The checkpoint at step {step} could not be written to {self.folder} ({error}); {before}."
            ) from error
        self.failures = 0
        try:
            self._prune()
        except (OSError, DamagedError) as error:
            log.warning("Old checkpoints in %s could not be removed: %s", self.folder, error)
        return path

    @property
    def has_any(self) -> bool:
        """Whether a checkpoint is here, good or damaged."""
        return bool(self._names())

    def latest(
        self,
        *,
        with_segments: bool = True,
        without_damaged: bool = False,
        accept: Callable[[dict[str, Any]], object] = lambda facts: None,
    ) -> Checkpoint | None:
        """The newest checkpoint whose files all are what was written; None where nothing was ever saved.

        CheckpointError where all are damaged; LostSegmentsError where only segments are, unless it is to be
        read `without_damaged` ones. Segments may be gigabytes: without them, they are not verified. `accept`
        raises ValueError, KeyError or TypeError for facts that nobody could go on with.
        """
        seen: list[str] = []
        partly: Checkpoint | None = None
        # A run that goes on meanwhile may have replaced what was being read: then the names are new ones.
        while (names := self._names()) != seen:
            seen, partly = names, None
            for name in reversed(names):
                checkpoint = self._tried(name, with_segments, accept)
                if checkpoint is not None and not checkpoint.lost:
                    return self._trust(checkpoint)
                partly = partly or checkpoint
        if partly is not None and without_damaged:
            return self._trust(partly)
        if partly is not None:
            raise LostSegmentsError(
                partly.lost, f"Segments in {self._segments} are damaged: {', '.join(partly.lost)}."
            )
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
        self._written.remove_drafts()

        # All that is about to be written is listed first: what a kill leaves is then known.
        number = max((int(name.split("-")[0]) for name in self._names()), default=-1) + 1
        name = f"{number:06d}-step-{step}"
        self._new_files = []
        self._written.add([name, *(new for new in segments if self._record(new) is None)])
        records = self._write_segments(segments)

        # The draft has a name that readers ignore.
        draft, final = _draft_of(self.folder / name), self.folder / name
        os.mkdir(draft)
        memory = io.BytesIO()  # torch.save to a file on a full disk fails in C++, without the cause
        torch.save(dict(tensors), memory)
        with HashingFile(draft / TENSORS) as file:
            file.write(memory.getbuffer())
            files = (FileRecord(TENSORS, file.size, file.seal()),)

        # The manifest is written last, with the hash of every other file and of itself.
        with HashingFile(draft / FILE) as file:
            file.write(Manifest(name, step, files, records, facts).content())
            file.seal()

        # All content is on the disk before the one rename that publishes it.
        _sync(draft)
        os.rename(draft, final)
        self._new_files = []  # they belong to a checkpoint now
        _sync(self.folder)
        self._trusted.append(name)
        self._newest_segments = records
        return final

    def _record(self, segment: str) -> FileRecord | None:
        """The record of a segment that has been written and is there; None where it is to be written."""
        record = self._newest_segments.get(segment)
        if record is None or size_of(self._segments / record.file) != record.size:
            return None
        return record

    def _write_segments(self, segments: Mapping[str, Callable[[], Arrays]]) -> dict[str, FileRecord]:
        if segments and not self._segments.is_dir():
            os.mkdir(self._segments)
            _sync(self.folder)
        records: dict[str, FileRecord] = {}
        for name, make in segments.items():
            records[name] = self._record(name) or self._write_segment(name, make())
        if self._new_files:
            _sync(self._segments)
        return records

    def _write_segment(self, name: str, arrays: Arrays) -> FileRecord:
        """One file: the arrays one after another in .npy format."""
        if not _SEGMENT_NAME.fullmatch(name):
            raise ValueError(f"A segment cannot be called {name!r}: letters, digits, - and _ only.")
        draft = _draft_of(self._segments / name)
        self._new_files.append(draft)
        with HashingFile(draft) as file:
            for array in arrays.values():
                # Only `write` of a file is called, though numpy's annotation asks for a whole one.
                out: Any = file
                np.lib.format.write_array(out, np.asarray(array), allow_pickle=False)
            size, sha256 = file.size, file.seal()
        # Named by its content: even after a resume from further back no name stands for two contents.
        final = self._segments / f"{name}.{sha256[:16]}"
        if not final.exists():
            self._new_files.append(final)
        os.rename(draft, final)
        return FileRecord(final.name, size, sha256, tuple(arrays))

    def _undo(self) -> None:
        """Remove what a save that failed has written: a full disk must not get fuller with each try."""
        for path in self._new_files:
            with suppress(OSError):
                os.unlink(path)
        with suppress(OSError):
            self._written.remove_drafts()

    def _prune(self) -> None:
        """Remove all but the newest good ones; without enough good ones, those of unknown health stay too."""
        if len(self._trusted) < self.keep:
            return
        self._trusted = self._trusted[-self.keep :]
        kept = [Manifest.read(self.folder / name) for name in self._trusted]
        listed = self._written.names()
        old: set[str] = set()
        segments: set[str] = set()
        for name in set(self._names()) - set(self._trusted):
            # A checkpoint is this run's if it is listed, or if its manifest says so.
            with suppress(DamagedError, FileNotFoundError):
                segments |= {record.file for record in Manifest.read(self.folder / name).segments.values()}
                old.add(name)
            if name in listed:
                old.add(name)
        self._written.add(old)
        for name in old:
            # Hidden first: half of a checkpoint must not be taken for a whole one.
            os.rename(self.folder / name, self.folder / f".{name}")
        self._written.remove_drafts()
        # A segment goes with the last checkpoint that names it.
        needed = {record.file for manifest in kept for record in manifest.segments.values()}
        self._written.remove_segments(needed, also=segments)

    # Reading ------------------------------------------------------------------------------------------------

    def _names(self) -> list[str]:
        """Published checkpoints, oldest first."""
        names = os.listdir(self.folder) if self.folder.is_dir() else []
        return sorted(
            (name for name in names if _NAME.fullmatch(name)), key=lambda name: int(name.split("-")[0])
        )

    def _trust(self, checkpoint: Checkpoint) -> Checkpoint:
        self._trusted, self._newest_segments = [checkpoint.path.name], dict(checkpoint.segments.records)
        return checkpoint

    def _tried(
        self, name: str, with_segments: bool, accept: Callable[[dict[str, Any]], object]
    ) -> Checkpoint | None:
        """The checkpoint of this name, with the segments that it has lost; None where it is damaged."""
        try:
            checkpoint = self._read(name, with_segments=with_segments)
            accept(checkpoint.facts)
        except (DamagedError, OSError, ValueError, KeyError, TypeError) as error:
            log.warning(
                "The checkpoint %s is damaged (%s): trying the one before it.", self.folder / name, error
            )
            return None
        if checkpoint.lost:
            log.warning(
                "The checkpoint %s is damaged (in its segments %s): trying the one before it.",
                checkpoint.path,
                ", ".join(checkpoint.lost),
            )
        return checkpoint

    def _read(self, name: str, *, with_segments: bool = True) -> Checkpoint:
        path = self.folder / name
        manifest = Manifest.read(path)
        # Hash before reading: what is read is what was written.
        for record in manifest.files:
            record.verify(path)
        lost = manifest.lost_segments(self._segments) if with_segments else ()
        segments = {name: record for name, record in manifest.segments.items() if name not in lost}
        found = SegmentFiles(self._segments, segments)
        return Checkpoint(manifest.step, _tensors(path / TENSORS), manifest.facts, found, path, lost)


def newest_facts(folder: Path) -> dict[str, Any]:
    """The facts of the newest checkpoint whose manifest can be read; its other files are not looked at."""
    for name in reversed(CheckpointStore(folder)._names()):
        with suppress(DamagedError, OSError):
            return Manifest.read(folder / name).facts
    return {}


def _tensors(path: Path) -> dict[str, Any]:
    try:
        # weights_only stays true whatever the error advises: a file that needs more is not one of ours.
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a crafted file can make the loader raise anything
        raise DamagedError(
            f"{path.name} holds more than tensors and numbers: {str(error).splitlines()[0]}"
        ) from error


def _draft_of(path: Path) -> Path:
    """Where something is written before it gets its name; never the place of another draft."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}")


def _sync(folder: Path) -> None:
    """Force a folder's list of names to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
