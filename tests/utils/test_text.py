"""Text of others acts on no terminal and no log."""

from __future__ import annotations

import pytest

from utils.text import harmless


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b]0;x\x07", r"\x1b[2J\x1b]0;x\x07"),
        ("\x1b]52;c;aGk=\x1b\\", r"\x1b]52;c;aGk=\x1b" + "\\"),
        ("\x9b2J", r"\x9b2J"),
        ("100 %\rdone", r"100 %\rdone"),
        ("a\u202eb\u2028c", r"a\u202eb\u2028c"),
        ("half \ud800", r"half \ud800"),
        ("a line\n\tand another: ü, 日本, 🙂", "a line\n\tand another: ü, 日本, 🙂"),
        (r"already \x1b", r"already \x1b"),
    ],
)
def test_what_would_act_is_spelled_out_and_the_rest_stays(text: str, shown: str) -> None:
    assert harmless(text) == shown
    assert harmless(shown) == shown
    shown.encode()
