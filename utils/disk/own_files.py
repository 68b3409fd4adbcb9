"""The files of a run folder: a run opens its own, and never what a link there points to.

A run folder may come from somebody else. A link in it could make a run write over a file of its user, so a
folder with links is refused before anything in it is opened. Links above the folder are fine.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from utils.options import OptionError

# Entries that belong to other programs: this project never opens, follows or removes what is in them.
FOREIGN = ("wandb", ".submitit")
# Folders of a run folder in which the project and Hydra write.
OWN_FOLDERS = (".hydra", "checkpoints")
# The ends of the names of files that they write in the run folder itself.
FILE_ENDS = (".json", ".jsonl", ".yaml", ".png", ".log", ".lock")
# A file of facts is smaller by far: a larger one was not written by a run.
MOST_JSON_BYTES = 1_000_000
# The one entry that `allow_links` lets be a link: the replay may need a larger disk.
MAY_BE_ELSEWHERE = os.path.join("checkpoints", "segments")


def check_run_folder(folder: Path, *, allow_links: bool = False) -> None:
    """Refuse a run folder in which an entry is a link, neither a file nor a folder, or one for the other."""
    for path in _entries(folder):
        name = os.path.relpath(path, folder)
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:  # a run that goes on meanwhile removes old checkpoints
            continue
        if stat.S_ISLNK(mode) and name == MAY_BE_ELSEWHERE:
            if allow_links:
                continue
            raise OptionError(
                f"{path} is a link, and a run opens nothing outside its folder: "
                "allow_links=true lets the segments of the replay be elsewhere."
            )
        if stat.S_ISLNK(mode):
            raise OptionError(
                f"{path} is a link, and a run opens nothing outside its folder: "
                "put there what it points to, or remove it."
            )
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise OptionError(
                f"{path} is neither a file nor a folder: remove it, or take another run folder."
            )
        # The folders of checkpoints have names of their own, and whatever is wrong in them is damage.
        if stat.S_ISDIR(mode) and name.endswith(FILE_ENDS) and os.sep not in name:
            raise OptionError(
                f"{path} is a folder where a run has a file: remove it, or give it another name."
            )
        if stat.S_ISREG(mode) and name in OWN_FOLDERS:
            raise OptionError(
                f"{path} is a file where a run has a folder: remove it, or give it another name."
            )


def check_can_be_made(folder: Path) -> None:
    """Refuse a folder that could not be made or written into, before anybody tries."""
    for place in (folder, *folder.parents):
        try:
            is_folder = stat.S_ISDIR(os.stat(place).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise OptionError(f"{folder} cannot be made: {error.strerror}.") from error
        if not is_folder:
            raise OptionError(f"{folder} cannot be made: {place} is no folder.")
        if not os.access(place, os.W_OK | os.X_OK):
            raise OptionError(f"{folder} cannot be made: {place} may not be written into.")
        return


def _entries(folder: Path) -> Iterator[str]:
    """The entries of a run folder itself, and all that is in the folders of the project's own."""
    with suppress(FileNotFoundError, NotADirectoryError):
        yield from (os.path.join(folder, name) for name in os.listdir(folder) if name not in FOREIGN)
    for own in OWN_FOLDERS:
        # os.walk follows no link; the folder that it starts from was looked at above.
        for parent, folders, files in os.walk(folder / own):
            yield from (os.path.join(parent, name) for name in [*folders, *files])


def open_own(path: Path, mode: str, **how: Any) -> Any:
    """Open a file of the run to write; a link, and what it points to, stays as it is: that is an OSError."""
    # Another name of the same file may be a user's copy of the run folder, which was made without copying.
    part_from_other_names(path)
    return open(path, mode, opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o666), **how)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file to be written anew: a crash leaves the old one or the new one, never half of one."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.unlink(missing_ok=True)
    try:
        with open(partial, "xb") as file:  # x makes a new file, and follows no link
            yield file
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def replace_file(path: Path, content: bytes) -> None:
    """Write a file anew from bytes that are there already."""
    with replacing(path) as file:
        file.write(content)


def read_object(path: Path, most_bytes: int = MOST_JSON_BYTES) -> dict[str, Any]:
    """The JSON object in a file of a run folder; empty where the file is missing, damaged or too large."""
    if not is_plain_file(path) or path.stat().st_size > most_bytes:
        return {}
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def part_from_other_names(path: Path) -> None:
    """Where a file has other names (hard links), let this name stand for a copy of it."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
        replace_file(path, path.read_bytes())


def is_plain_file(path: Path) -> bool:
    """Whether there is a regular file, and not a link to one."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def is_plain_folder(path: Path) -> bool:
    """Whether there is a folder, and not a link to one."""
    return path.is_dir() and not path.is_symlink()
