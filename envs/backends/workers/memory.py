"""Memory that the trainer shares with its workers: without a name, of fixed size, and with few descriptors.

It has no name in /dev/shm or anywhere else. So the kernel frees it with the last process that maps it, and
nothing can leak, whichever process is killed. A mapping keeps no descriptor open (`mmap.mmap` keeps one), so
a stray `write` of an environment to some descriptor cannot reach the rows of other slots.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import tempfile
import weakref
from contextlib import suppress
from typing import Any

# Linux, macOS and the BSDs agree on this number, which Python does not name.
MAP_FIXED = 0x10

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    *(ctypes.c_void_p, ctypes.c_size_t),
    *(ctypes.c_int, ctypes.c_int, ctypes.c_int),
    ctypes.c_long,
)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


def reserve(num_bytes: int) -> int:
    """Return a descriptor of zeroed memory that has no name."""
    sealable = hasattr(os, "memfd_create")
    if sealable:
        descriptor = os.memfd_create("retrial-rows", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        os.ftruncate(descriptor, num_bytes)
        # Reserved now, so that a lack of memory is an error here and not a SIGBUS in the middle of a run.
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, num_bytes)
        if sealable:
            _seal_size(descriptor)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _seal_size(descriptor: int) -> None:
    """Fix the size: whoever cut the memory would end every process that reads it by SIGBUS."""
    with suppress(OSError):  # a kernel without seals
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)


class SharedMemory:
    """A mapping of a descriptor, which may be closed at once; it lives as long as `buffer` is used."""

    def __init__(self, descriptor: int, num_bytes: int) -> None:
        self._num_bytes = num_bytes
        self._address = _map(None, num_bytes, mmap.MAP_SHARED, descriptor)
        self.buffer: Any = (ctypes.c_char * num_bytes).from_address(self._address)
        # Arrays hold the buffer. Not at the exit of Python: some of them may be read after that.
        weakref.finalize(self.buffer, _libc.munmap, self._address, num_bytes).atexit = False

    def separate(self) -> None:
        """Let go of the memory in this process alone: its arrays stay, with what they hold now."""
        content = self.buffer.raw
        # The new mapping takes the place of the old one in one step: no other one can get in between.
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_FIXED
        _map(self._address, self._num_bytes, private, -1)
        self.buffer.raw = content


def _map(address: int | None, num_bytes: int, flags: int, descriptor: int) -> int:
    """Map memory to read and to write; return its address."""
    found = _libc.mmap(address, num_bytes, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, 0)
    if found is None or found == ctypes.c_void_p(-1).value:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return found
