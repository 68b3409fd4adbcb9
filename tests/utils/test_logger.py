"""JSON Lines are the truth."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from utils.logger import Logger, StopRun, read_metrics


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
    with Logger(tmp_path, [copy]) as logger:
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


def test_a_follower_may_end_a_run_when_its_line_is_written(tmp_path: Path) -> None:
    class Enough:
        def log(self, env_steps: int, values: Mapping[str, Any]) -> None:
            raise StopRun

    with Logger(tmp_path, [Enough()]) as logger, pytest.raises(StopRun):
        logger.log(10, {"x": 1})
    assert lines(tmp_path) == [{"env_steps": 10, "x": 1}]


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


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], list[int], str]] = {
    "bytes lost at the end": (lambda text: text[:-10], [0, 1], "it has lost its last 10 bytes and it ends"),
    "all lost": (lambda text: b"", [], "it has lost its last"),
    "no UTF-8 in the middle": (lambda text: text.replace(b"x", b"\xff", 2), [2], "its lines 1, 2 cannot"),
    "no JSON": (lambda text: text.replace(b"}", b"]", 1), [1, 2], "its lines 1 cannot be read (1 in all)"),
    "another JSON": (lambda text: b"3" * 19 + text[19:], [1, 2], "its lines 1 cannot be read"),
    "bytes put in": (lambda text: b"?" * 5 + text, [1], "it ends within a line and its lines 1 cannot"),
    "two lines made one": (lambda text: text.replace(b"\n", b" ", 1), [2], "its lines 1 cannot be read"),
    "endless brackets": (lambda text: b"[" * len(text), [], "it ends within a line"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_file_is_said_and_made_whole_and_written_on(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    damage, whole, sentence = DAMAGE[kind]
    with Logger(tmp_path) as logger:
        for step in range(3):
            logger.log(step, {"x": step})
        offset = logger.offset
    logger.path.write_bytes(damage(logger.path.read_bytes()))
    assert len(read_metrics(logger.path)) <= 3, "a reader takes what is whole"
    with Logger(tmp_path, resume_at=offset) as logger:
        logger.log(9, {})
        assert logger.offset == logger.path.stat().st_size
    assert [line["env_steps"] for line in lines(tmp_path)] == [*whole, 9]
    assert lines(tmp_path) == read_metrics(logger.path)
    assert sentence in caplog.text and len(caplog.records) == 1


def test_where_there_is_no_file_there_are_no_metrics(tmp_path: Path) -> None:
    assert read_metrics(tmp_path / "metrics.jsonl") == []


def test_what_a_link_points_to_is_neither_cut_nor_written(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text('{"env_steps": 1}\n' * 9)
    (tmp_path / "metrics.jsonl").symlink_to(home)
    for resume_at in (None, 17):
        with pytest.raises(OSError):
            Logger(tmp_path, resume_at=resume_at)
    (tmp_path / "metrics.jsonl").unlink()
    os.link(home, tmp_path / "metrics.jsonl")
    with Logger(tmp_path, resume_at=17) as logger:
        logger.log(2, {})
    assert home.read_text() == '{"env_steps": 1}\n' * 9
    assert [line["env_steps"] for line in lines(tmp_path)] == [1, 2]


def test_a_mistake_is_named(tmp_path: Path) -> None:
    with Logger(tmp_path) as logger:
        with pytest.raises(TypeError, match="'loss'"):
            logger.log(1, {"loss": object()})
        with pytest.raises(ValueError, match="env_steps"):
            logger.log(1, {"env_steps": 2})
    assert lines(tmp_path) == []
