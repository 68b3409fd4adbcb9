"""One composer for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from configs.compose import Composer


@pytest.fixture
def composer() -> Iterator[Composer]:
    with Composer() as made:
        yield made
