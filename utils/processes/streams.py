"""The three standard streams, which a program may be started without, or share with others."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO


def fill_standard_streams() -> None:
    """Open what is closed of descriptors 0, 1 and 2 as nothing, for this process and those that it starts.

    Otherwise the next pipe or file would get such a number, and whatever redirects a standard stream, as the
    start of a worker does, would close it.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # The system gives the lowest free number, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def show_any_letter() -> None:
    """Let a console that cannot show a letter show its code: the name of a folder must not end a run."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a closed one is None
            stream.reconfigure(errors="backslashreplace")


def write_text_out(text: str) -> None:
    """Write a text and its end of line to standard output, also where nobody reads it to its end."""
    output = sys.stdout
    if not isinstance(output, io.TextIOBase):  # a closed one is None
        return
    try:
        output.write(text + "\n")
        output.flush()
    except BrokenPipeError:  # `| head` has read enough: the interpreter must not try again when it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Prefixed(io.TextIOBase):
    """Lines that begin with a prefix, each written whole, so that those of other processes stay apart."""

    def __init__(self, stream: TextIO, prefix: str) -> None:
        self._stream, self._prefix, self._begun = stream, prefix, ""

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        if lines:
            self._stream.write("".join(f"{self._prefix}{line}\n" for line in lines))
            self._stream.flush()
        return len(text)

    def finish(self) -> None:
        """Write what is left, a line without an end."""
        if self._begun:
            self.write("\n")

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()


@contextmanager
def lines_begin_with(prefix: str) -> Iterator[None]:
    """Let every line of standard output and error begin with this, those of logging too."""
    before = {"stdout": sys.stdout, "stderr": sys.stderr}
    streams = {name: _Prefixed(stream, prefix) for name, stream in before.items() if stream is not None}
    handlers: list[tuple[logging.StreamHandler[TextIO], TextIO]] = []
    for handler in logging.getLogger().handlers:
        for name, stream in streams.items():
            if isinstance(handler, logging.StreamHandler) and handler.stream is before[name]:
                handlers.append((handler, handler.stream))
                handler.setStream(stream)
    try:
        for name, stream in streams.items():
            setattr(sys, name, stream)
        yield
    finally:
        for name, stream in streams.items():
            stream.finish()
            setattr(sys, name, before[name])
        for handler, stream in handlers:
            handler.setStream(stream)
