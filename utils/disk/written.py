"""Lists of what a run has written into its folders: nothing else is ever removed there."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from utils.disk.own_files import is_plain_file, is_plain_folder, replace_file

log = logging.getLogger(__name__)

LIST = "written.json"
SEGMENTS = "segments"
# A segment has its name and the beginning of its hash; drafts have a dot, their name and a few digits.
_SEGMENT_FILE = re.compile(r"([A-Za-z0-9_-]+)\.[0-9a-f]{16}")
_FILES = ("tensors.pt", "manifest.json")


class NameList:
    """Names in a file of their own, each noted before what it names is written.

    So whatever a kill or a full disk leaves behind is known, and what others put there is not touched.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, names: Iterable[str]) -> None:
        """Note what is about to be written."""
        before = self.names()
        if not before.issuperset(names):
            self.set(before.union(names))

    def names(self) -> set[str]:
        """The names on the list; none where it cannot be read, and then nothing is removed."""
        try:
            names = json.loads(self._path.read_bytes())
            return {name for name in names if isinstance(name, str)}
        except FileNotFoundError:
            return set()
        except (ValueError, TypeError, RecursionError):
            log.warning("%s is damaged: what it named stays on the disk.", self._path)
            return set()

    def set(self, names: Iterable[str]) -> None:
        """Write the list anew."""
        replace_file(self._path, json.dumps(sorted(names)).encode())


class WrittenFiles:
    """Files of one kind in a run folder: those on their list are replaced and removed, all others stay.

    The list may come from somebody else: what has no name of this kind is not the run's, and stays too.
    """

    def __init__(self, folder: Path, name_of_list: str, kind: str) -> None:
        """`kind` is the regular expression of the names."""
        self._folder, self._list, self._kind = folder, NameList(folder / name_of_list), re.compile(kind)

    def free(self, names: Iterable[str]) -> Iterator[str]:
        """Of these names, those under which there is nothing of somebody else's."""
        own = self._names()
        return (name for name in names if name in own or not os.path.lexists(self._folder / name))

    def draft(self, name: str) -> Path:
        """Note a file, and say where it is to be written until it is published."""
        self._list.add([name])
        return self._draft_of(name)

    def publish(self, names: Sequence[str]) -> None:
        """Let the drafts of these files take their places; older files on the list go."""
        for old in self._names().difference(names):
            _remove(self._folder / old)
        for name in names:
            self._draft_of(name).replace(self._folder / name)

    def tidy(self) -> None:
        """Remove drafts that were not published, and forget what is not there."""
        names = self._names()
        for name in names:
            _remove(self._draft_of(name))
        present = {name for name in names if is_plain_file(self._folder / name)}
        if present != names:
            self._list.set(present)

    def _names(self) -> set[str]:
        return {name for name in self._list.names() if self._kind.fullmatch(name)}

    def _draft_of(self, name: str) -> Path:
        return self._folder / f".{name}.part"


class WrittenList(NameList):
    """Names of checkpoints and segments, until nothing is left of them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / LIST)
        self._folder, self._segments = folder, folder / SEGMENTS

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
            self.set(names & present)

    def _own_segments(self) -> list[Path]:
        """The files that segments may be; none behind a link, where nothing is removed."""
        return list(self._segments.iterdir()) if is_plain_folder(self._segments) else []

    def _all(self) -> Iterator[Path]:
        yield from self._folder.iterdir()
        if self._segments.is_dir():
            yield from self._segments.iterdir()

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
