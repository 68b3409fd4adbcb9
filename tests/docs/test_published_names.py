"""The page of published names: what is typed elsewhere is answered with what is typed here."""

from __future__ import annotations

import re

import pytest

from configs.cli import read
from configs.spellings import FIELD
from tests.docs.pages import PAGES
from utils.options import OptionError

PAGE = PAGES["docs/published_names.md"]
# (typed elsewhere, typed here) of flags and of a published config.
ROWS = re.findall(r"^\| `(--[\w-]+ \S+|env\.\w+: \S+)` \| `?([^`|]+)", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("there", "here"), ROWS)
def test_a_published_spelling_is_understood_or_answered(there: str, here: str) -> None:
    words = there.split() if there.startswith("--") else [there.replace(": ", "=")]
    try:
        read(words)
    except OptionError as answer:
        assert here.split()[0] in str(answer), f"{words}: {answer}"
    else:
        assert words == [here]


def test_every_word_of_the_field_is_on_the_page() -> None:
    assert len(ROWS) > 10
    assert not [word for word in FIELD if f"`{word}`" not in PAGE]
