"""The list of what a run has written into its folder of checkpoints: nothing else is ever removed there."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from utils.disk.own_files import is_plain_file, is_plain_folder, replace_file

log = logging.getLogger(__name__)

LIST = "written.json"
SEGMENTS = "segments"
# A segment has its name and the beginning of its hash; drafts have a dot, their name and a few digits.
_SEGMENT_FILE = re.compile(r"([A-Za-z0-9_-]+)\.[0-9a-f]{16}")
_FILES = ("tensors.pt", "manifest.json")


class WrittenList:
    """Names of checkpoints and segments, each noted before it is written, until nothing is left of it.

    So whatever a kill or a full disk leaves behind is known, and what others put there is not touched.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._segments = folder, folder / SEGMENTS

    def add(self, names: Iterable[str]) -> None:
        """Note what is about to be written."""
        before = self.names()
        if not before.issuperset(names):
            self._write(before.union(names))

    def names(self) -> set[str]:
        """The names on the list; none where it cannot be read, and then nothing is removed."""
        path = self._folder / LIST
        try:
            names = json.loads(path.read_bytes())
            return {name for name in names if isinstance(name, str)}
        except FileNotFoundError:
            return set()
        except (ValueError, TypeError, RecursionError):
            log.warning("%s is damaged: what it named stays on the disk.", path)
            return set()

    def remove_drafts(self) -> None:
        """Remove what was begun and never published, and checkpoints that were hidden to be removed."""
        names = self.names()
        for path in self._folder.glob(".*"):
            if _named(path) in names:
                self._remove_checkpoint(path)
        for path in self._own_segments():
            if path.name.startswith(".") and _named(path) in names:
                _remove(path)
        for path in self._folder.glob(f".{LIST}.*"):
            _remove(path)

    def remove_segments(self, needed: set[str], also: set[str]) -> None:
        """Remove segments on the list, and those `also` named, that are not `needed`; then forget them."""
        names = self.names()
        for path in self._own_segments():
            name = _SEGMENT_FILE.fullmatch(path.name)
            listed = name is not None and name[1] in names
            if (listed or path.name in also) and path.name not in needed:
                _remove(path)
        # What could not be removed stays on the list.
        present = {_named(path) for path in self._all()}
        if not names <= present:
            self._write(names & present)

    def _own_segments(self) -> list[Path]:
        """The files that segments may be; none behind a link, where nothing is removed."""
        return list(self._segments.iterdir()) if is_plain_folder(self._segments) else []

    def _all(self) -> Iterator[Path]:
        yield from self._folder.iterdir()
        if self._segments.is_dir():
            yield from self._segments.iterdir()

    def _write(self, names: set[str]) -> None:
        replace_file(self._folder / LIST, json.dumps(sorted(names)).encode())

    @staticmethod
    def _remove_checkpoint(path: Path) -> None:
        # Its own files one by one: a folder that holds anything else stays.
        if is_plain_folder(path):
            for name in _FILES:
                _remove(path / name)
            with suppress(OSError):
                os.rmdir(path)


def _named(path: Path) -> str:
    """The name on the list of a checkpoint, a segment, or a draft of one."""
    return path.name.lstrip(".").partition(".")[0]


def _remove(path: Path) -> None:
    """Remove a regular file; where that fails it stays on the list, and a later save tries again."""
    if is_plain_file(path):
        with suppress(OSError):
            os.unlink(path)
