"""ServiceBoard: what the processes of a run share about its servers: turns to send, and what messages cost.

A limit is that of a server, whoever speaks to it: event loops of threads, worker processes and actors take
their turns from the same board, and worker processes note there what their sessions cost. The board is memory
without a name, which the trainer makes and other processes of this machine find by the number of its process.

A turn is a locked byte. So the system itself gives back the turns of a process that is killed. What stands in
the memory may have been written by anything that runs in a worker: it is read as numbers and nothing else.
"""

from __future__ import annotations

import errno
import fcntl
import math
import os
import struct
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b

# The number of rows that are taken, and then the rows: what a row is of, and its numbers.
_TAKEN = struct.Struct("<q")
_ROW = struct.Struct("<Q8d")
_ROWS = 4096
NUMBERS = 8
# struct flock: the kind of lock, from where, the first byte, how many, and no process.
_LOCK = struct.Struct("hhqqi0q")
# The bytes that are locked lie far behind the memory: the first, and then so many for each server.
_FIRST_BYTE, _BYTES = 1 << 60, 1 << 16


@dataclass(frozen=True)
class ServiceBoard:
    """A board of the process `pid`: small to send, and found by who gets it."""

    pid: int
    descriptor: int
    name: str

    def found(self) -> FoundBoard | None:
        """The board for this process, one for all of its threads; None where it is not there, or on another
        machine.
        """
        with _guard:
            board = _found.get((self, os.getpid()))
            if board is None and (board := _find(self)) is not None:
                _found[self, os.getpid()] = board
                if not board.is_own:
                    _kept.append(board)
            return board


def board_of_this_process() -> ServiceBoard | None:
    """The board that this process shares with those that it starts; it lives as long as somebody holds it.

    None where the system has no such memory.
    """
    global _own
    if not sys.platform.startswith("linux"):
        return None
    with _guard:
        own = None if _own is None else _own()
        if own is None or own.pid != os.getpid():
            own = _made()
            _own = weakref.ref(own)
        return own


# A board and a process, since a fork has the memory of its parent but not its descriptors.
_found: weakref.WeakValueDictionary[tuple[ServiceBoard, int], FoundBoard] = weakref.WeakValueDictionary()
# A worker knows its boards for as long as it lives: its counts have one row for all of that time.
_kept: list[FoundBoard] = []
_own: weakref.ref[ServiceBoard] | None = None
_guard = threading.Lock()


def _free_guard() -> None:
    """Another thread may have held it when this process was forked."""
    global _guard
    _guard = threading.Lock()


os.register_at_fork(after_in_child=_free_guard)


def _made() -> ServiceBoard:
    name = f"retrial-services-{os.urandom(16).hex()}"
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, _TAKEN.size + _ROWS * _ROW.size)
    # Nobody can cut it, so that whoever reads it finds all of it.
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    board = ServiceBoard(os.getpid(), descriptor, name)
    weakref.finalize(board, _close, os.getpid(), descriptor)
    return board


def _find(board: ServiceBoard) -> FoundBoard | None:
    """Open it, unless another file has taken its number since."""
    if board.pid == os.getpid():
        return FoundBoard(board, board.descriptor) if _is(board, board.descriptor) else None
    try:
        descriptor = os.open(f"/proc/{board.pid}/fd/{board.descriptor}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    if not _is(board, descriptor):
        os.close(descriptor)
        return None
    found = FoundBoard(board, descriptor)
    weakref.finalize(found, _close, os.getpid(), descriptor)
    return found


def _is(board: ServiceBoard, descriptor: int) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}") == f"/memfd:{board.name} (deleted)"
    except OSError:
        return False


def _close(pid: int, descriptor: int) -> None:
    # In a fork the number may be that of another file.
    if pid == os.getpid():
        os.close(descriptor)


class FoundBoard:
    """A board, open in this process; any thread may call it, and no call waits."""

    def __init__(self, board: ServiceBoard, descriptor: int) -> None:
        self.is_own = board.pid == os.getpid()
        self._board, self._descriptor = board, descriptor
        # The locks of a process do not keep out itself: these are the bytes that it has locked.
        self._held: set[int] = set()
        # The rows of this process, by server; None where there was no row left.
        self._rows_of_counts: dict[str, int | None] = {}
        self._guard = threading.Lock()

    # -- turns -----------------------------------------------------------------------------------------------

    def take_turn(self, server: str, most: int) -> int | None:
        """One of so many turns at this server, to be given back; None: all of them are taken."""
        first = _first_byte(server)
        with self._guard:
            taken = (byte for byte in range(first, first + min(most, _BYTES - 1)) if self._lock(byte))
            return next(taken, None)

    def give_back(self, turn: int) -> None:
        """End a turn."""
        with self._guard:
            self._unlock(turn)

    def reserve(self, server: str, interval_s: float) -> float | None:
        """When the next message to this server may begin, by the monotonic clock, which processes share.

        None: another process asks just now.
        """
        with self._guard, self._locked(_first_byte(server) + _BYTES - 1) as is_alone:
            if not is_alone:
                return None
            key = _key(f"interval of {server}")
            row = next((row for row, other, _ in self._rows() if other == key), None)
            if row is None and (row := self._add_row(key)) is None:
                return time.monotonic()
            (next_start, *_), now = self._read(row), time.monotonic()
            # Whatever stands there, nobody waits for longer than thousands of sessions would.
            start = min(max(now, next_start), now + _ROWS * interval_s) if math.isfinite(next_start) else now
            self._write(row, key, [start + interval_s])
            return start

    # -- what messages cost ----------------------------------------------------------------------------------

    def note(self, server: str, numbers: Sequence[float]) -> None:
        """Write what this process has counted at a server."""
        with self._guard:
            key = _key(f"counts of {server}")
            if server not in self._rows_of_counts:
                self._rows_of_counts[server] = self._add_row(key)
            if (row := self._rows_of_counts[server]) is not None:
                self._write(row, key, numbers)

    def counted(self, server: str) -> list[float]:
        """The sums of what all other processes have counted, also of those that have ended."""
        key, sums = _key(f"counts of {server}"), [0.0] * NUMBERS
        for _, other, numbers in self._rows():
            if other == key and all(math.isfinite(number) and number >= 0 for number in numbers):
                sums = [total + number for total, number in zip(sums, numbers, strict=True)]
        return sums

    # -- rows ------------------------------------------------------------------------------------------------

    def _rows(self) -> Iterator[tuple[int, int, tuple[float, ...]]]:
        """Each row that is taken: its number, its key, its numbers."""
        count = min(max(self._taken(), 0), _ROWS)
        data = os.pread(self._descriptor, count * _ROW.size, _TAKEN.size)
        for row, (key, *numbers) in enumerate(_ROW.iter_unpack(data)):
            yield row, key, tuple(numbers)

    def _taken(self) -> int:
        return int(_TAKEN.unpack(os.pread(self._descriptor, _TAKEN.size, 0))[0])

    def _add_row(self, key: int) -> int | None:
        with self._locked(_FIRST_BYTE - 1, waits=True):
            row = self._taken()
            if not 0 <= row < _ROWS:
                return None
            self._write(row, key, [])
            os.pwrite(self._descriptor, _TAKEN.pack(row + 1), 0)
            return row

    def _read(self, row: int) -> tuple[float, ...]:
        data = os.pread(self._descriptor, _ROW.size, _TAKEN.size + row * _ROW.size)
        return _ROW.unpack(data)[1:]

    def _write(self, row: int, key: int, numbers: Sequence[float]) -> None:
        padded = [*numbers, *[0.0] * (NUMBERS - len(numbers))]
        os.pwrite(self._descriptor, _ROW.pack(key, *padded), _TAKEN.size + row * _ROW.size)

    # -- locks -----------------------------------------------------------------------------------------------

    @contextmanager
    def _locked(self, byte: int, *, waits: bool = False) -> Iterator[bool]:
        """Entered with a byte locked, if it could be; who holds one of these is done in microseconds."""
        while not (is_locked := self._lock(byte)) and waits:
            time.sleep(0.0001)
        try:
            yield is_locked
        finally:
            if is_locked:
                self._unlock(byte)

    def _lock(self, byte: int) -> bool:
        if byte in self._held:
            return False
        try:
            fcntl.fcntl(
                self._descriptor, fcntl.F_OFD_SETLK, _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
            )
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        self._held.add(byte)
        return True

    def _unlock(self, byte: int) -> None:
        self._held.discard(byte)
        fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, _LOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, byte, 1, 0))


def _key(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def _first_byte(server: str) -> int:
    return _FIRST_BYTE + (_key(server) & 0xFFFFFFFF) * _BYTES
