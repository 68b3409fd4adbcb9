"""Every target keeps its promise in the cases of one seed, and finds three defects put in by hand.

A number of cases ends each test, never a time. `python -m tests.fuzz` plays others, for as long as one likes.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override

import configs.cli
import configs.compose
import configs.runs
import envs.backends.serial
import envs.interop.gymnasium_shard
import envs.interop.spaces
import utils.disk.own_files
import utils.logger
from tests.fuzz.engine import Target, check_sentence, findings
from tests.fuzz.targets import TARGETS
from utils.disk.manifest import FileRecord, Manifest, SegmentFiles

SEED = 14


@pytest.fixture(scope="module", params=sorted(TARGETS))
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """One target after the other, each made once."""
    with closing(TARGETS[request.param](tmp_path_factory.mktemp(request.param))) as made:
        yield made


@pytest.fixture(autouse=True)
def quiet_log() -> Iterator[None]:
    """Warnings about what is damaged are meant, and there are thousands."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(before)


def test_there_is_a_sentence_or_the_right_data(target: Target) -> None:
    for finding in findings(target, SEED, range(target.num_cases)):
        pytest.fail(finding.text)


# -- defects put in by hand: (module or class, name, what it becomes) ----------------------------------------

Defect = tuple[Any, str, Any]


def _ignored(composed: Any, override: Override) -> None:
    """Options of the environment are not assigned."""
    if not override.key_or_group.startswith("env."):
        _assign(composed, override)


def _unchecked(composer: Any, words: list[str]) -> list[Override]:
    """Hydra's errors leave the parser, and a name may be given twice."""
    parser = OverridesParser.create(config_loader=GlobalHydra.instance().config_loader())
    return [parser.parse_override(word) for word in words]


def _made(composed: Any) -> Path:
    Path("outputs").mkdir(exist_ok=True)
    return Path("outputs")


def _other_way_round(files: SegmentFiles, name: str) -> Any:
    arrays = _segment(files, name)
    return {one: arrays[one][::-1] for one in arrays} | {"first": arrays["first"]}


def _cut(path: Path, offset: int) -> None:
    with open(path, "ab") as file:
        file.truncate(offset)


_assign, _segment, _rewind = configs.compose.assign, SegmentFiles.__getitem__, utils.logger._rewind
SHARD, SPACES, SERIAL = envs.interop.gymnasium_shard, envs.interop.spaces, envs.backends.serial

DEFECTS: dict[str, dict[str, Defect]] = {
    "command_lines": {
        "Hydra's errors are not caught": (configs.compose, "ERRORS", ()),
        "options are ignored": (configs.compose, "assign", _ignored),
        "words are not checked": (configs.compose.Composer, "parse", _unchecked),
        "a folder is made to look": (configs.cli, "run_folder_of", _made),
    },
    "environments": {
        "a flag is whatever is true": (SHARD, "_flag", lambda slot, name, value: bool(value)),
        "shapes are made to fit": (SPACES, "plain_array", lambda value, shape: np.resize(value, shape)),
        "errors end the run": (SERIAL, "RUN_ENDINGS", (BaseException,)),
    },
    "metrics": {
        "damaged lines are read": (utils.logger, "_line_of", json.loads),
        "one byte too early": (
            utils.logger,
            "_rewind",
            lambda path, offset: _rewind(path, max(offset - 1, 0)),
        ),
        "damaged lines stay": (utils.logger, "_rewind", _cut),
    },
    "run_folders": {
        "links are followed": (utils.disk.own_files, "_entries", lambda _: []),
        "edited options are taken": (configs.runs, "check_unchanged", lambda *_: None),
        "files are not hashed": (FileRecord, "verify", lambda *_: None),
    },
    "segments": {
        "files are not hashed": (FileRecord, "verify", lambda *_: None),
        "rows are read from the end": (SegmentFiles, "__getitem__", _other_way_round),
        "nothing is lost": (Manifest, "lost_segments", lambda *_: ()),
    },
}


def test_of_each_target_three_defects_are_known() -> None:
    assert DEFECTS.keys() == TARGETS.keys()
    assert all(len(defects) >= 3 for defects in DEFECTS.values())


def test_defects_put_in_by_hand_are_found(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    for title, defect in DEFECTS[target.name].items():
        with monkeypatch.context() as product:
            product.setattr(*defect)
            finding = next(findings(target, SEED, range(target.num_cases)), None)
        assert finding is not None, title
        # It is the defect that was found: without it the same case keeps the promise.
        target.play(finding.mutations)


# -- the engine ----------------------------------------------------------------------------------------------


class Numbers(Target):
    """Fails where two certain mutations meet."""

    name = "numbers"
    num_cases = 100
    kinds = ("a", "b", "c", "d", "e")
    most = 8

    def play(self, mutations: Any) -> None:
        if {"b", "d"} <= {one.kind for one in mutations}:
            raise KeyError("b and d")


def test_a_finding_is_cut_down_to_what_it_takes_and_can_be_played_again(tmp_path: Path) -> None:
    target = Numbers(tmp_path)
    found = list(findings(target, 3, range(100)))
    assert found and all(sorted(one.kind for one in finding.mutations) == ["b", "d"] for finding in found)
    again = next(findings(target, 3, [found[-1].number]))
    assert again.mutations == found[-1].mutations
    assert f"python -m tests.fuzz numbers --seed 3 --case {again.number}\n" in again.text
    assert target.case(3, 5) == target.case(3, 5) != target.case(4, 5)


@pytest.mark.parametrize(
    "text", ["", "x" * 30_000, "\x1b[2J", "Traceback (most recent call last):\n  ..."], ids=range(4)
)
def test_what_is_no_sentence_is_a_finding(text: str) -> None:
    with pytest.raises(Exception, match="ValueError"):
        check_sentence(ValueError(text))
    check_sentence(ValueError("It is full."))
