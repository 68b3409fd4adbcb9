"""What is generated on the pages is what the code gives now: options, environments, pictures."""

from __future__ import annotations

import pytest

from benchmarks.pages.drawings import DRAWINGS, FOLDER
from benchmarks.pages.generated import GENERATED, ROOT, page


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_page_is_current(name: str) -> None:
    """If this fails: python -m benchmarks.pages."""
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == page(name)


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_picture_is_current(name: str) -> None:
    """If this fails: python -m benchmarks.pages."""
    assert (FOLDER / f"{name}.svg").read_text(encoding="utf-8") == DRAWINGS[name]().text()


def test_no_picture_is_left_over() -> None:
    assert {file.stem for file in FOLDER.glob("*.svg")} == set(DRAWINGS)
