"""export= is checked before anything is made, and writes one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs import cli
from configs.exporting import run_export
from policies.learner import Learner
from tests.runs import tiny_config
from utils.options import OptionError


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "run"
    with Learner(tiny_config(), folder) as learner:
        learner.train()
    return folder


def run_with(act: Any, config: Any, family: Any, run_dir: Path, /, **how: Any) -> float:
    with Learner(config, run_dir, family=family, **how) as learner:
        return act(learner)


def test_the_trials_of_a_run_are_one_file(run_dir: Path, tmp_path: Path) -> None:
    before = sorted(path.name for path in run_dir.iterdir())
    for trials, count in ((None, None), (3, 3)):
        file = tmp_path / "deep" / f"{trials}.npz"
        more = [] if trials is None else [f"export.trials={trials}"]
        command = cli.read([f"export={run_dir}", f"export.to={file}", *more]).export
        assert command is not None
        text, code = run_export(command, run_with)
        with np.load(file) as arrays:
            assert text == f"{len(arrays['number'])} trials in {file}" and code == 0
            assert count in (None, len(arrays["number"]))
    assert sorted(path.name for path in run_dir.iterdir()) == before


def test_a_mistake_is_a_sentence_and_leaves_nothing(run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "there.npz").touch()
    to = f"export.to={tmp_path / 'new.npz'}"
    mistakes = {
        (f"export={run_dir}",): "needs a file of numpy arrays: export.to=trials.npz",
        (f"export={run_dir}", f"export.to={tmp_path / 'x.h5'}"): "needs a file of numpy arrays",
        (f"export={run_dir}", f"export.to={tmp_path / 'there.npz'}"): "is there already",
        (f"export={run_dir}", to, "export.trails=3"): "export has no option 'trails'. Did you mean 'trials'",
        (f"export={run_dir}", to, "export.trials=0"): "must be at least 1",
        (f"export={run_dir}", to, "algorithm.discount=0.5"): "cannot change with resume=",
        (f"export={tmp_path / 'none'}", to): "is not a run folder: it does not exist",
        (to,): "needs the folder of a run",
        (f"export={run_dir}", to, "-m"): "leave out -m",
    }
    for words, sentence in mistakes.items():
        with pytest.raises(OptionError, match=sentence):
            cli.read(list(words))
    assert [path.name for path in tmp_path.iterdir()] == ["there.npz"]
