"""Several processes make a thing once, one after the other."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path

import pytest

from utils.disk.made_once import made_once


def test_the_first_makes_it_and_the_others_find_it(tmp_path: Path) -> None:
    file, made = tmp_path / "notes.json", iter(range(9))
    assert made_once(file, {"env": "AntDir"}, lambda: next(made)) == (0, False)
    assert made_once(file, {"env": "AntDir"}, lambda: next(made)) == (0, True)
    assert made_once(file, {"env": "Wind"}, lambda: next(made)) == (1, False)


@pytest.mark.parametrize("line", ["{", "[]", "7", '{"key": "a"}', "null", "\x00"])
def test_a_damaged_line_is_passed_over(line: str, tmp_path: Path) -> None:
    file = tmp_path / "notes.json"
    file.write_text(f"{line}\n")
    assert made_once(file, "a", lambda: [1]) == ([1], False)
    assert made_once(file, "a", lambda: [2]) == ([1], True)


def test_one_waits_while_another_makes_it(tmp_path: Path) -> None:
    file, made = tmp_path / "notes.json", threading.Event()
    with file.open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        waiting = threading.Thread(target=made_once, args=(file, "a", made.set))
        waiting.start()
        assert not made.wait(0.3)
    waiting.join()
    assert made.is_set()
