"""The one path of updates: those that are asked for and those that are due are the same updates."""

from __future__ import annotations

from pathlib import Path

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


def test_a_running_mean_of_the_weights_follows_every_update_and_is_what_is_evaluated(tmp_path: Path) -> None:
    config = tiny_config(evaluation={"averaging": 0.75})
    with Learner(config, tmp_path) as learner:
        learner.collect_wave(4)
        name, mean = "critic.head.nets.0.layers.0.weight", None
        for _ in range(3):
            before = learner.agent.state_dict()[name].clone() if mean is None else mean
            learner.update()
            mean = 0.75 * before + 0.25 * learner.agent.state_dict()[name]
        assert mean is not None
        torch.testing.assert_close(learner.parts.judged.state_dict()[name], mean)

        # It is evaluated, and the agent that acts is another one.
        judged = learner.evaluate()
        learner.agent.load_state_dict(learner.parts.judged.state_dict())
        assert learner.evaluate() == judged
        learner.update()
        learner.save()
        judged, own = (digest(agent.state_dict()) for agent in (learner.parts.judged, learner.agent))
        assert judged != own

    # A resume goes on with both; what is only evaluated is the mean.
    with Learner(config, tmp_path) as learner:
        learner.load()
        assert [digest(agent.state_dict()) for agent in (learner.parts.judged, learner.agent)] == [
            judged,
            own,
        ]
    with Learner(config, tmp_path, learns=False) as learner:
        learner.load()
        assert digest(learner.agent.state_dict()) == judged


def test_without_averaging_the_agent_itself_is_evaluated() -> None:
    with Learner(tiny_config()) as learner:
        assert learner.parts.judged is learner.agent
