"""A board is shared by the threads and processes of a run: no turn is given twice, and none is lost."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from envs.remote.service_board import NUMBERS, FoundBoard, ServiceBoard, board_of_this_process

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys
from envs.remote.service_board import ServiceBoard
board = ServiceBoard(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]).found()
print(board is not None, flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""


def made() -> tuple[ServiceBoard, FoundBoard]:
    board = board_of_this_process()
    assert board is not None
    found = board.found()
    assert found is not None and found.is_own
    return board, found


class Other:
    """A process that shares a board."""

    def __init__(self, board: ServiceBoard) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(board.pid), str(board.descriptor), board.name],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._answer() == "True"

    def asked(self, expression: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{expression}\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@contextmanager
def another(board: ServiceBoard) -> Iterator[Other]:
    other = Other(board)
    with other.process:
        try:
            yield other
        finally:
            other.process.kill()


def test_a_turn_is_given_once_among_threads_and_processes_and_freed_by_a_death() -> None:
    board, found = made()
    with another(board) as other:
        first = found.take_turn("a", 2)
        assert first is not None
        assert other.asked("board.take_turn('a', 2)") == str(first + 1)
        assert found.take_turn("a", 2) is None and other.asked("board.take_turn('a', 2)") == "None"
        assert found.take_turn("b", 2) is not None, "another server has turns of its own"
        found.give_back(first)
        assert other.asked("board.take_turn('a', 2)") == str(first)
        assert found.take_turn("a", 2) is None
        other.process.kill()
        other.process.wait()
    assert {found.take_turn("a", 2), found.take_turn("a", 2)} == {first, first + 1}


def test_messages_keep_their_interval_among_processes() -> None:
    board, found = made()
    with another(board) as other:
        starts = [found.reserve("c", 100.0), float(other.asked("board.reserve('c', 100.0)"))]
        starts.append(found.reserve("c", 100.0))
        assert [one - starts[0] for one in starts if one and starts[0]] == pytest.approx([0.0, 100.0, 200.0])
        assert other.asked("board.reserve('d', 100.0) < board.reserve('d', 100.0) - 99") == "True"


def test_counts_of_other_processes_are_summed_and_outlive_them() -> None:
    board, found = made()
    with another(board) as one, another(board) as two:
        one.asked("board.note('e', [1.0] * 8)")
        one.asked("board.note('e', [2.0] * 8)")
        two.asked("board.note('e', [0.5] * 8)")
        two.asked("board.note('f', [7.0] * 8)")
        # What runs in a worker can write what it likes.
        two.asked("board.note('e', [float('nan')] * 8)")
        assert found.counted("e") == [2.0] * NUMBERS
        two.asked("board.note('e', [0.5] * 8)")
        assert found.counted("e") == [2.5] * NUMBERS
    assert found.counted("e") == [2.5] * NUMBERS and found.counted("g") == [0.0] * NUMBERS


def test_nonsense_in_the_memory_makes_nobody_wait_or_fail() -> None:
    board, found = made()
    assert found.reserve("h", 1.0)
    os.pwrite(board.descriptor, b"\xff" * 8, 0)
    assert found.counted("h") == [0.0] * NUMBERS and found.reserve("h", 1.0) is not None
    os.pwrite(board.descriptor, (10**9).to_bytes(8, "little"), 0)
    assert found.counted("h") == [0.0] * NUMBERS
    with pytest.raises(OSError):
        os.ftruncate(board.descriptor, 0)


def test_only_the_board_itself_is_found() -> None:
    board, found = made()
    assert pickle.loads(pickle.dumps(board)).found() is found and copy.deepcopy(board).found() is found
    assert ServiceBoard(os.getpid(), 0, board.name).found() is None
    assert ServiceBoard(os.getppid(), board.descriptor, board.name).found() is None
    assert ServiceBoard(2**22 + 1, 3, board.name).found() is None


def test_a_board_is_one_for_a_process_and_ends_with_who_holds_it() -> None:
    board, found = made()
    assert board_of_this_process() is board
    descriptor = board.descriptor
    del board, found
    with pytest.raises(OSError):
        os.fstat(descriptor)


def test_threads_take_no_turn_twice() -> None:
    _, found = made()
    taken: list[int | None] = []

    def take() -> None:
        taken.extend(found.take_turn("i", 100) for _ in range(20))

    threads = [threading.Thread(target=take) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert None not in taken and len(set(taken)) == 100
