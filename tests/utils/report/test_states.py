"""The picture of a memory: it is a picture, and changes are those of the state."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from utils.report.states import changes, draw_states


def test_a_picture_is_drawn_and_nothing_else_is_left(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    draw_states(tmp_path / "state.png", rng.normal(size=(14, 16)), starts=[0, 7], title="GRU")
    with Image.open(tmp_path / "state.png") as picture:
        assert picture.size == (1050, 690)
        assert len(np.unique(np.asarray(picture.convert("RGB")).reshape(-1, 3), axis=0)) > 100
    assert [file.name for file in tmp_path.iterdir()] == ["state.png"]
    draw_states(tmp_path / "zeros.png", np.zeros((3, 2)))


def test_changes_are_distances_and_the_first_is_from_zero() -> None:
    np.testing.assert_allclose(changes(np.array([[3.0, 4.0], [3.0, 4.0], [0.0, 0.0]])), [5.0, 0.0, 5.0])


def test_states_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must be \[rows, numbers\], and these are \[3\]"):
        draw_states(Path("nowhere.png"), np.zeros(3))
