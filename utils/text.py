"""Text that others wrote, made fit to be shown: errors of environments, of services, of packages."""

from __future__ import annotations

import re

# What moves a cursor, sets a title, reorders or hides letters, or is half a letter; not line ends and tabs.
_TO_BE_ESCAPED = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, such as the escape that starts a sequence
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # they change the order in which letters are shown
    "\u2028\u2029"  # they end a line for some readers and not for others
    "\ud800-\udfff"  # halves of letters, which cannot be written to a file
    "]"
)


def harmless(text: str) -> str:
    r"""Return the text with everything that would act on a terminal or a log spelled out, such as `\x1b`."""
    return _TO_BE_ESCAPED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
