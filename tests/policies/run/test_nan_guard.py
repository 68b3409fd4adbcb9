"""The guard: a loss that is no number ends the run by one sentence, and what led to it is kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from buffers.base import Batch, Needs, Sample
from policies.learner import Learner
from policies.run.nan_guard import FILE, ExplodedError, NanGuard
from tests.runs import tiny_config
from tests.trials import KINDS, make_replay, make_trials, play


def batch_of(kind: str = "continuous") -> Batch:
    replay = make_replay(capacity=4, kind=KINDS[kind])
    play(replay, make_trials(0, 4), num_slots=2, kind=KINDS[kind])
    return replay.sample(Needs(on_policy=False, sample=Sample.trials, batch_size=3), np.random.default_rng(0))


def metrics_with(critic_loss: float, q: float = 0.5) -> dict[str, torch.Tensor]:
    return {"critic_loss": torch.tensor(critic_loss), "q": torch.tensor(q)}


@pytest.mark.parametrize(
    ("value", "text"),
    [(float("nan"), "nan"), (float("inf"), "inf"), (-float("inf"), "-inf"), (3e20, "3e+20")],
)
def test_the_first_number_that_is_none_is_named_when_the_next_update_has_been_made(
    tmp_path: Path, value: float, text: str
) -> None:
    guard, batch = NanGuard(tmp_path), batch_of()
    guard.watch(0, batch, metrics_with(1.0))
    guard.watch(1, batch, metrics_with(value, q=float("nan")))
    with pytest.raises(ExplodedError) as caught:
        guard.watch(2, batch, metrics_with(float("nan")))
    assert str(caught.value).startswith(f"critic_loss was {text} in update 1, though its batch is finite")
    assert (
        "learning_rate" in str(caught.value)
        and "\n" not in str(caught.value)
        and str(caught.value).endswith(".")
    )
    guard.check_last()  # one error is enough


def test_the_last_update_is_looked_at_too() -> None:
    guard = NanGuard(None)
    guard.watch(0, batch_of(), metrics_with(1e14))
    guard.check_last()
    guard.watch(1, batch_of(), metrics_with(1.0, q=float("nan")))
    with pytest.raises(ExplodedError, match=r"^q was nan in update 1, though"):
        guard.check_last()


@pytest.mark.parametrize("kind", ["continuous", "discrete-masked"])
def test_the_batch_is_kept_and_blamed_where_it_is_to_blame(tmp_path: Path, kind: str) -> None:
    guard, batch = NanGuard(tmp_path), batch_of(kind)
    reward = batch.reward.clone()
    reward[2, 1] = float("inf")
    guard.watch(7, replace(batch, reward=reward), metrics_with(float("nan")))
    with pytest.raises(
        ExplodedError,
        match=r"because reward of its batch are not finite \(the batch is in .*exploded\.pt\)\.$",
    ):
        guard.check_last()
    kept = torch.load(tmp_path / FILE, weights_only=True)
    assert kept["update"] == 7 and np.isnan(kept["metrics"]["critic_loss"]) and kept["metrics"]["q"] == 0.5
    assert torch.equal(kept["batch"]["reward"], reward) and torch.equal(kept["batch"]["trains"], batch.trains)
    parts = batch.obs if isinstance(batch.obs, dict) else {"": batch.obs}
    for key, part in parts.items():
        assert torch.equal(kept["batch"][f"obs.{key}" if key else "obs"], part)
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_a_batch_that_cannot_be_saved_is_mentioned(tmp_path: Path) -> None:
    guard = NanGuard(tmp_path / "gone")
    guard.watch(0, batch_of(), metrics_with(float("nan")))
    with pytest.raises(ExplodedError, match=r"critic_loss was nan.*could not be saved"):
        guard.check_last()


@pytest.mark.parametrize("last", [False, True])
def test_a_run_ends_before_such_parameters_act_or_are_saved(tmp_path: Path, last: bool) -> None:
    """Whether it is an update in the middle of an iteration or the last before a checkpoint."""
    with Learner(tiny_config(checkpoint_every=10), tmp_path) as learner:
        update = learner.algorithm.update

        def spoilt(batch: Batch) -> dict[str, torch.Tensor]:
            metrics = update(batch)
            due = learner.counters.updates_due
            if learner.counters.iteration == 2 and due == (1 if last else 2):
                with torch.no_grad():
                    for parameter in learner.agent.parameters():
                        parameter.fill_(float("nan"))
                metrics["critic_loss"] = metrics["critic_loss"] * float("nan")
            return metrics

        learner.algorithm.update = spoilt  # pyright: ignore[reportAttributeAccessIssue]
        with pytest.raises(ExplodedError, match="critic_loss was nan"):
            learner.train()
        assert learner.counters.iteration == 2
    assert (tmp_path / FILE).exists()
    with Learner(tiny_config(checkpoint_every=10), tmp_path) as learner:
        learner.load()
        assert learner.counters.iteration == 1
        assert all(parameter.isfinite().all() for parameter in learner.agent.parameters())
