"""TensorBoard's files read back with TensorBoard: every number at its step, once, also after a resume."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from utils.options import OptionError
from utils.services.tensorboard_run import FOLDER, TensorboardRun, check_tensorboard


def test_where_it_is_missing_the_line_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(OptionError, match=r"pip install -c requirements.txt '.\[tensorboard\]'"):
        check_tensorboard()


@pytest.mark.peers
def test_what_was_logged_is_read_back(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    picture = tmp_path / "adaptation.png"
    Image.fromarray(np.full((4, 5, 3), 200, np.uint8)).save(picture)

    run = TensorboardRun(tmp_path, {"seed": 3})
    for step in (0, 100, 200):
        run.log(step, {"loss": step / 10, "eval/far/returns": [[1.0], [3.0]], "note": "text", "none": None})
    run.close()
    # A run that goes on from its checkpoint at 100 writes what came after it again.
    run = TensorboardRun(tmp_path, {"seed": 3}, resumed_at=100)
    for step in (200, 300):
        run.log(step, {"loss": step / 5})
    run.summary({"best/trial_return": 7.5})
    run.media(300, [picture])
    run.close()
    run.close()
    run.log(400, {"loss": 9.0})

    found = accumulator.EventAccumulator(str(tmp_path / FOLDER))
    found.Reload()
    assert [(event.step, event.value) for event in found.Scalars("loss")] == [
        (0, 0),
        (100, 10),
        (200, 40),
        (300, 60),
    ]
    assert [event.value for event in found.Scalars("eval/far/return_std_episode_1")] == [1.0, 1.0]
    assert found.Tags()["images"] == ["adaptation"]
    assert "summary/text_summary" in found.Tags()["tensors"]
