"""Snapshots: the replay is written once, in pieces, and what the ring has overwritten is let go."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from policies.learner import Learner
from policies.snapshots import Snapshots
from tests.runs import state_of, tiny_config
from utils.checkpoint import CheckpointError


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
    assert all(second[name] == changed for name, changed in first.items()), "what was written is not written again"


def test_nothing_is_written_when_nothing_has_happened(tmp_path: Path) -> None:
    with Learner(tiny_config(), tmp_path) as learner:
        learner.collect_rollouts_parallel(4)
        learner.save()
        before = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
        learner.save()
        assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == before


def test_overwritten_trials_are_let_go_and_the_rest_restored(tmp_path: Path) -> None:
    small = {"buffer_size": 12 * 9}
    with Learner(tiny_config(train=small), tmp_path) as learner:
        for _ in range(5):
            learner.collect_rollouts_parallel(4)
            learner.save()
        expected = state_of(learner)
    assert learner.replay.capacity == 9 and learner.replay.num_added == 20
    with Learner(tiny_config(train=small), tmp_path) as again:
        again.load()
        assert state_of(again) == expected
    newest = [name for name in segments_in(tmp_path) if "000000000" in name]
    assert not newest, "trials 0..3 are nowhere needed"


def test_an_empty_folder_has_no_snapshot(tmp_path: Path) -> None:
    with Learner(tiny_config()) as learner:
        sampling = learner._sampling
        assert Snapshots(tmp_path, algorithm=learner.algorithm, replay=learner.replay, sampling=sampling).load() is None


def test_a_full_disk_is_a_warning_twice_and_then_the_end(tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    with Learner(tiny_config(), tmp_path) as learner:
        learner.collect_rollouts_parallel(2)
        learner.save()
        expected = state_of(learner)
        learner.collect_rollouts_parallel(2)
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", _no_space)
            learner.save()
            learner.save()
            assert len(caplog.records) == 2 and "last good checkpoint" in caplog.text
            with pytest.raises(CheckpointError):
                learner.save()
    with Learner(tiny_config(), tmp_path) as again:
        again.load()
        assert state_of(again) == expected


def _no_space(descriptor: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
