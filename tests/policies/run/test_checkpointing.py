"""RunCheckpoints: the replay is written once, in pieces, and what the ring has overwritten is let go."""

from __future__ import annotations

import errno
import itertools
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from policies.learner import Learner
from policies.run.checkpointing import RunCheckpoints, RunFacts
from policies.run.progress import Counters
from tests.runs import best_agent, digest, metrics_of, state_of, tiny_config
from utils.checkpoint import CheckpointError
from utils.options import OptionError


def segments_in(folder: Path) -> dict[str, int]:
    """The replay's files with the time of their last change."""
    return {path.name: path.stat().st_mtime_ns for path in folder.rglob("*trials-*") if path.is_file()}


def test_the_replay_is_written_incrementally(tmp_path: Path) -> None:
    """The ancestor pickled its whole replay at every log interval."""
    with Learner(tiny_config(), tmp_path) as learner:
        learner.collect_rollouts_parallel(4)
        learner.save()
        first = segments_in(tmp_path)
        learner.collect_rollouts_parallel(4)
        learner.save()
        second = segments_in(tmp_path)
    assert len(first) == 1 and len(second) == 2
    assert all(second[name] == changed for name, changed in first.items()), (
        "what was written is not written again"
    )


def test_nothing_is_written_when_nothing_has_happened(tmp_path: Path) -> None:
    with Learner(tiny_config(), tmp_path) as learner:
        learner.collect_rollouts_parallel(4)
        learner.save()
        before = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
        learner.save()
        assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == before


def test_overwritten_trials_are_let_go_and_the_rest_restored(tmp_path: Path) -> None:
    small = {"buffer_size": 14 * 9}
    with Learner(tiny_config(train=small), tmp_path) as learner:
        for _ in range(5):
            learner.collect_rollouts_parallel(4)
            learner.save()
        expected = state_of(learner)
    assert learner.buffer.capacity == 14 * 9 and learner.buffer.num_added == 20
    with Learner(tiny_config(train=small), tmp_path) as again:
        again.load()
        assert state_of(again) == expected
    newest = [name for name in segments_in(tmp_path) if "000000000" in name]
    assert not newest, "trials 0..3 are nowhere needed"


def test_an_empty_folder_has_no_snapshot(tmp_path: Path) -> None:
    with Learner(tiny_config()) as learner:
        checkpoints = RunCheckpoints(tmp_path, learner.parts, learner.progress, learner._sampling)
        assert checkpoints.load() is None


def test_a_full_disk_is_a_warning_twice_and_then_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Learner(tiny_config(), tmp_path) as learner:
        learner.collect_rollouts_parallel(2)
        learner.save()
        expected = state_of(learner)
        learner.collect_rollouts_parallel(2)
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", _no_space)
            learner.save()
            learner.save()
            assert len(caplog.records) == 2 and "those before it are intact" in caplog.text
            with pytest.raises(CheckpointError):
                learner.save()
    with Learner(tiny_config(), tmp_path) as again:
        again.load()
        assert state_of(again) == expected


def test_one_that_does_not_learn_loads_the_agent_alone(tmp_path: Path) -> None:
    """On any device, and without the replay, which may be larger than this machine."""
    with Learner(tiny_config(), tmp_path) as learner:
        learner.collect_rollouts_parallel(4)
        learner.update(2)
        with patch.object(RunCheckpoints, "_device", "cuda"):
            learner.save()
        agent = digest(learner.agent.state_dict())
    for segment in segments_in(tmp_path):
        next(tmp_path.rglob(segment)).unlink()
    with Learner(tiny_config(), tmp_path, learns=False) as learner:
        learner.load()
        assert digest(learner.agent.state_dict()) == agent and learner.counters.updates == 2
        assert learner.buffer.capacity == learner.buffer.rows_per_trial
        for write in (learner.train, learner.save):
            with pytest.raises(RuntimeError, match="made to evaluate"):
                write()


def test_what_was_drawn_on_another_device_is_not_gone_on_with(tmp_path: Path) -> None:
    with Learner(tiny_config(), tmp_path) as learner:
        learner.collect_rollouts_parallel(4)
        with patch.object(RunCheckpoints, "_device", "cuda"):
            learner.save()
    with (
        Learner(tiny_config(), tmp_path) as learner,
        pytest.raises(CheckpointError, match=r"This run was on cuda, .* go on where there is cuda"),
    ):
        learner.load()


def test_after_a_save_that_failed_the_ring_may_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not written is no segment yet: a part of it may be overwritten before the next try."""
    small = {"buffer_size": 14 * 9}
    with Learner(tiny_config(train=small), tmp_path) as learner:
        learner.collect_rollouts_parallel(4)
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", _no_space)
            learner.save()
        learner.collect_rollouts_parallel(7)
        learner.save()
        expected = state_of(learner)
    with Learner(tiny_config(train=small), tmp_path) as again:
        again.load()
        assert state_of(again) == expected


def test_that_the_last_save_failed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        Learner(tiny_config(train={"n_env_steps_total": 60}, checkpoint_every=10**6), tmp_path) as learner,
        monkeypatch.context() as patched,
    ):
        patched.setattr(os, "fsync", _no_space)
        with pytest.raises(CheckpointError, match="No space left"):
            learner.train()


def test_a_run_is_not_overwritten_by_a_new_one(tmp_path: Path) -> None:
    short = {"n_env_steps_total": 60}
    with Learner(tiny_config(train=short), tmp_path) as learner:
        learner.train()
    before = metrics_of(tmp_path)
    with Learner(tiny_config(train=short, seed=1), tmp_path) as learner:
        learner.collect_rollouts_parallel(1)
        for write in (learner.train, learner.save, learner.save):
            with pytest.raises(OptionError, match="holds a run"):
                write()
    assert metrics_of(tmp_path) == before != []


def _no_space(descriptor: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def damaged_run(folder: Path) -> int:
    """A run with two checkpoints that share a segment, one byte of which has changed; all its trials."""
    with Learner(tiny_config(), folder) as learner:
        for _ in range(2):
            learner.collect_rollouts_parallel(4)
            learner.save()
    shared = min((folder / "checkpoints" / "segments").iterdir())
    content = bytearray(shared.read_bytes())
    content[-1] ^= 1
    shared.write_bytes(content)
    return learner.buffer.num_trials


def test_one_byte_of_old_trials_is_a_sentence_and_by_an_option_they_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trials = damaged_run(tmp_path)
    with (
        Learner(tiny_config(), tmp_path) as learner,
        pytest.raises(CheckpointError, match=r"stored trials 0 to 3 are .*resume_without_damaged=true\.$"),
    ):
        learner.load()
    with Learner(tiny_config(resume_without_damaged=True), tmp_path) as learner:
        learner.load()
        assert "The stored trials 0 to 3 are damaged and left out" in caplog.text
        assert learner.buffer.num_trials == trials - 4 and learner.counters.trials == 8
        learner.collect_rollouts_parallel(4)
        learner.update(1)
        learner.save()
        expected = state_of(learner)
    # From then on it is a run like any other.
    with Learner(tiny_config(), tmp_path) as again:
        again.load()
        assert state_of(again) == expected


@pytest.mark.parametrize(
    "name", ["checkpoints/segments", ".lock", "metrics.jsonl", "tasks.json", "evaluation.json"]
)
def test_no_run_touches_what_a_link_in_its_folder_points_to(tmp_path: Path, name: str) -> None:
    """The five that destroyed files before a run folder was looked at."""
    folder, home = tmp_path / "run", tmp_path / "home"
    with Learner(tiny_config(), folder) as learner:
        learner.collect_rollouts_parallel(4)
        learner.save()
    home.mkdir()
    for mine in ("thesis.tex", ".bashrc"):
        (home / mine).write_text("years of work")
    target = home
    if "segments" in name:
        for path in (folder / name).iterdir():
            path.rename(home / path.name)
        (folder / name).rmdir()
    else:
        target = home / "thesis.tex"
        (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(target)
    for learns in (True, False):
        with pytest.raises(OptionError, match="is a link"):
            Learner(tiny_config(), folder, learns=learns)
    if "segments" in name:
        with Learner(tiny_config(allow_links=True), folder) as learner:
            learner.load()
            for _ in range(4):
                learner.collect_rollouts_parallel(4)
                learner.save()
    assert {(home / mine).read_text() for mine in ("thesis.tex", ".bashrc")} == {"years of work"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"metrics_offset": "12"},
        {"spent": 3},
        {"counters": {"env_steps": "many"}},
        {"counters": {"bygone": 1}},
        {"counters": None},
        {"segments": [[1]]},
        {"num_added": None},
        {"sampling": {"state": 1}},
    ],
)
def test_facts_that_nobody_could_go_on_with_are_noticed(wrong: dict[str, Any]) -> None:
    good = {
        "counters": asdict(Counters()),
        "segments": [[0, 4]],
        "num_added": 4,
        "sampling": np.random.default_rng().bit_generator.state,
    }
    assert RunFacts.of(good).segments == [(0, 4)]
    with pytest.raises((ValueError, KeyError, TypeError)):
        RunFacts.of(good | wrong)


def test_a_checkpoint_that_does_not_fit_is_a_sentence(tmp_path: Path) -> None:
    with Learner(tiny_config(), tmp_path) as learner:
        learner.collect_rollouts_parallel(4)
        learner.save()
    for learns in (True, False):
        with (
            Learner(tiny_config(agent={"hidden": [8]}), tmp_path, learns=learns) as learner,
            pytest.raises(CheckpointError, match="does not fit the options of this run") as caught,
        ):
            learner.load()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("evaluation", [1, 2, 3])
def test_the_best_agent_is_the_same_after_a_kill_between_it_and_the_checkpoint(
    evaluation: int, tmp_path: Path
) -> None:
    """The best agent is kept before its checkpoint, so a kill leaves one of a future that is played again."""
    options: dict[str, Any] = {"checkpoint_every": 60, "evaluation": {"every": 50}}
    with Learner(tiny_config(**options), tmp_path / "whole") as whole:
        whole.train()

    class Killed(BaseException):
        pass

    with Learner(tiny_config(**options), tmp_path / "cut") as cut:
        keep_best, calls = cut.keep_best, itertools.count(1)

        def killing(metrics: dict[str, Any]) -> None:
            keep_best(metrics)
            if next(calls) == evaluation:
                raise Killed

        cut.keep_best = killing  # pyright: ignore[reportAttributeAccessIssue]
        with pytest.raises(Killed):
            cut.train()
    with Learner(tiny_config(**options), tmp_path / "cut") as resumed:
        if evaluation > 1:  # the first one comes before any checkpoint: the run begins again
            resumed.load()
        resumed.train()
    assert best_agent(tmp_path / "cut") == best_agent(tmp_path / "whole")
