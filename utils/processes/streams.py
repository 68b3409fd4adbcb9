"""The three standard streams, which a program may be started without."""

from __future__ import annotations

import io
import os
import sys


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
