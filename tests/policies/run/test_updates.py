"""The one path of updates: those that are asked for and those that are due are the same updates."""

from __future__ import annotations

import pytest
import torch

from policies.learner import Learner
from policies.run.nan_guard import ExplodedError
from policies.run.updates import add_metrics
from tests.runs import digest, tiny_config
from utils.stopwatch import Stopwatch


def test_updates_that_are_due_are_those_that_are_asked_for() -> None:
    states = []
    for due in (False, True):
        with Learner(tiny_config()) as learner:
            learner.collect_wave(4)
            if due:
                learner.counters.updates_due = 3
                assert learner._updater.make_due(Stopwatch(), lambda: False)
                assert (learner.counters.updates_due, learner.counters.updates_in_record) == (0, 3)
                losses = {name: float(value) / 3 for name, value in learner.progress.loss_sums.items()}
            else:
                losses = learner.update(3)
            assert learner.counters.updates == 3
            states.append((digest(learner.algorithm.state_dict()), losses))
    assert states[0] == states[1]


def test_it_stops_before_an_update_and_leaves_the_others_due() -> None:
    with Learner(tiny_config()) as learner:
        learner.collect_wave(4)
        learner.counters.updates_due = 3
        assert not learner._updater.make_due(Stopwatch(), lambda: learner.counters.updates == 2)
        assert (learner.counters.updates, learner.counters.updates_due) == (2, 1)


def test_the_last_update_is_checked_before_the_stage_ends() -> None:
    with Learner(tiny_config()) as learner:
        learner.collect_wave(4)
        update = learner.algorithm.update
        learner.algorithm.update = lambda batch: update(batch) | {"spoilt": torch.tensor(float("nan"))}  # pyright: ignore[reportAttributeAccessIssue]
        learner.counters.updates_due = 1
        with pytest.raises(ExplodedError, match="spoilt was nan in update 0"):
            learner._updater.make_due(Stopwatch(), lambda: False)


def test_sums_begin_with_the_first_update_that_has_a_metric() -> None:
    sums: dict[str, torch.Tensor] = {}
    add_metrics(sums, {"a": torch.tensor(1.0)})
    add_metrics(sums, {"a": torch.tensor(2.0), "b": torch.tensor(5.0)})
    assert {name: float(value) for name, value in sums.items()} == {"a": 3.0, "b": 5.0}
