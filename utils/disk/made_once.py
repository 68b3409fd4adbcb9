"""What is made once for several processes: the first one notes it in a file, in which the others find it."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from utils.disk.own_files import open_own


def made_once(file: Path, key: Any, make: Callable[[], Any]) -> tuple[Any, bool]:
    """(the value of a key in the types of JSON, whether it was there already); a new one is noted.

    One process makes something at a time, and the others wait for it. Lines that are damaged are passed over.
    """
    with open_own(file, "a+", encoding="utf-8") as notes:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(notes, fcntl.LOCK_EX)
        notes.seek(0)
        for line in notes:
            with suppress(ValueError, RecursionError):
                note = json.loads(line)
                if isinstance(note, dict) and note.get("key") == key and "value" in note:
                    return note["value"], True
        value = make()
        notes.write(json.dumps({"key": key, "value": value}) + "\n")
        return value, False
