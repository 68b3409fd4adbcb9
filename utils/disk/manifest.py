"""The manifest of a checkpoint: which files belong to it, with size and hash of each, and the run's facts."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]
FILE = "manifest.json"
FORMAT = 1
# A file stands in the folder that is searched for it: its name has no way to another one.
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


class DamagedError(Exception):
    """One checkpoint cannot be trusted."""


@dataclass(frozen=True)
class FileRecord:
    """What a manifest records of one file."""

    file: str
    size: int
    sha256: str
    arrays: tuple[str, ...] = ()

    @classmethod
    def of(cls, value: dict[str, Any]) -> FileRecord:
        """The record that JSON holds; ValueError, KeyError or TypeError where it holds none."""
        record = cls(value["file"], value["size"], value["sha256"], tuple(value["arrays"]))
        if not _FILE_NAME.fullmatch(record.file):
            raise ValueError(f"{record.file!r} is not the name of a file")
        if not all(isinstance(name, str) for name in record.arrays):
            raise TypeError("arrays are named by text")
        return record

    def verify(self, folder: Path) -> None:
        """DamagedError unless the file in this folder is what was written."""
        path = folder / self.file
        if size_of(path) != self.size:
            raise DamagedError(f"{self.file} should have {self.size} bytes, not {size_of(path)}")
        with open(path, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != self.sha256:  # pyright: ignore[reportArgumentType]
                raise DamagedError(f"{self.file} has changed")


@dataclass(frozen=True)
class Manifest:
    """A checkpoint as it was written: its own name and step, its files, its segments, and the run's facts."""

    name: str
    step: int
    files: tuple[FileRecord, ...]
    segments: dict[str, FileRecord] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def content(self) -> bytes:
        """The text of the file, which holds the hash of everything else in it."""
        body = {
            "format": FORMAT,
            "name": self.name,
            "step": self.step,
            "files": [vars(record) for record in self.files],
            "segments": {segment: vars(record) for segment, record in self.segments.items()},
            "facts": self.facts,
        }
        return json.dumps({"sha256": digest_of(body), "body": body}).encode()

    @classmethod
    def read(cls, checkpoint: Path) -> Manifest:
        """The manifest of a checkpoint; DamagedError where it is not what was written for this folder."""
        try:
            outer = json.loads((checkpoint / FILE).read_bytes())
            body, sha256 = outer["body"], outer["sha256"]
            if digest_of(body) != sha256:
                raise DamagedError(f"{FILE} has changed")
            if body["format"] != FORMAT:
                raise DamagedError(f"it has format {body['format']}, this version reads {FORMAT}")
            manifest = cls(
                # The first checkpoints did not know their own name.
                name=body.get("name", checkpoint.name),
                step=int(body["step"]),
                files=tuple(FileRecord.of(value) for value in body["files"]),
                segments={str(name): FileRecord.of(value) for name, value in body["segments"].items()},
                facts=dict(body["facts"]),
            )
        # Damage and malice take any form: no JSON, other types, keys that are not there, endless brackets.
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DamagedError(f"{FILE} is not readable") from error
        if manifest.name != checkpoint.name or not checkpoint.name.endswith(f"-step-{manifest.step}"):
            raise DamagedError(f"it was written as {manifest.name} at step {manifest.step}")
        return manifest

    def lost_segments(self, folder: Path) -> tuple[str, ...]:
        """The names of the segments whose files in this folder are not what was written."""
        lost: list[str] = []
        for name, record in self.segments.items():
            try:
                record.verify(folder)
            except (DamagedError, OSError):
                lost.append(name)
        return tuple(lost)


class SegmentFiles(Mapping[str, Arrays]):
    """The segments of a checkpoint in the order of saving; each is read when it is asked for."""

    def __init__(self, folder: Path, records: dict[str, FileRecord]) -> None:
        self._folder, self.records = folder, records

    def __getitem__(self, name: str) -> Arrays:
        record = self.records[name]
        with open(self._folder / record.file, "rb") as file:
            return {array: np.lib.format.read_array(file, allow_pickle=False) for array in record.arrays}

    def __iter__(self) -> Iterator[str]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)


class HashingFile:
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

    def __enter__(self) -> HashingFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def digest_of(body: Any) -> str:
    """The hash of something that is JSON."""
    return hashlib.sha256(json.dumps(body).encode()).hexdigest()


def size_of(path: Path) -> int | None:
    """The bytes of a file; None where there is none."""
    return path.stat().st_size if path.is_file() else None
