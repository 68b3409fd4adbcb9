"""JSON Lines are the truth."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from utils.logger import Logger


def lines(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line, parse_constant=pytest.fail)
        for line in (folder / "metrics.jsonl").read_text().splitlines()
    ]


class Copy:
    def __init__(self) -> None:
        self.got: list[tuple[int, dict[str, Any]]] = []

    def log(self, env_steps: int, values: Mapping[str, Any], /) -> None:
        self.got.append((env_steps, dict(values)))


def test_every_kind_of_number_is_written_as_plain_json_and_copied(tmp_path: Path) -> None:
    copy = Copy()
    with Logger(tmp_path, copy) as logger:
        values = {
            "float": 0.1,
            "int": 3,
            "bool": True,
            "text": "größe",
            "none": None,
            "numpy": np.float32(0.5),
            "numpy_int": np.int64(7),
            "array": np.arange(3),
            "tensor": torch.tensor(1.5, requires_grad=True),
            "tensors": torch.tensor([[1.0, 2.0]]),
            "list": [1.0, np.float64(2.0), None],
            "nested": {"a": (1, 2)},
        }
        logger.log(np.int64(10), values)  # pyright: ignore[reportArgumentType]
        plain = {
            **values,
            "numpy": 0.5,
            "numpy_int": 7,
            "array": [0, 1, 2],
            "tensor": 1.5,
            "tensors": [[1.0, 2.0]],
            "nested": {"a": [1, 2]},
        }
        assert lines(tmp_path) == [{"env_steps": 10, **plain}]  # there before close
        assert copy.got == [(10, plain)]


def test_not_finite_becomes_null_and_is_counted(tmp_path: Path) -> None:
    logger = Logger(tmp_path)
    logger.log(1, {"a": math.nan, "b": [1.0, -math.inf], "c": torch.tensor(math.inf), "d": 2.0})
    logger.close()
    assert lines(tmp_path) == [{"env_steps": 1, "a": None, "b": [1.0, None], "c": None, "d": 2.0}]
    assert logger.num_not_finite == 3


def test_a_resume_forgets_the_lines_after_the_checkpoint(tmp_path: Path) -> None:
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    for step in range(6):
        with Logger(straight) as logger:  # opened again without a resume: nothing is lost
            logger.log(step, {"x": step})
    logger = Logger(broken)
    for step in range(3):
        logger.log(step, {"x": step})
    offset = logger.offset
    for step in range(3, 5):
        logger.log(step, {"x": -step})
    logger.close()
    with open(logger.path, "ab") as file:
        file.write(b'{"env_steps": 5, "x"')  # killed in the middle of a line
    with Logger(broken, resume_at=offset) as logger:
        assert logger.offset == offset
        for step in range(3, 6):
            logger.log(step, {"x": step})
        assert logger.offset == logger.path.stat().st_size
    assert (broken / "metrics.jsonl").read_bytes() == (straight / "metrics.jsonl").read_bytes()


def test_lost_lines_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), Logger(tmp_path, resume_at=100) as logger:
        logger.log(1, {})
    assert "lost its last 100 bytes" in caplog.text
    assert lines(tmp_path) == [{"env_steps": 1}]


def test_a_mistake_is_named(tmp_path: Path) -> None:
    with Logger(tmp_path) as logger:
        with pytest.raises(TypeError, match="'loss'"):
            logger.log(1, {"loss": object()})
        with pytest.raises(ValueError, match="env_steps"):
            logger.log(1, {"env_steps": 2})
    assert lines(tmp_path) == []
