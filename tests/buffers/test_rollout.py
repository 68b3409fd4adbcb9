"""RolloutBuffer: every trial of a wave once, without a row too many, and nothing of the wave before."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from buffers.base import Needs, Sample
from buffers.rollout import RolloutBuffer
from tests.trials import KINDS, Trial, make_replay, make_trials, play

NEEDS = Needs(on_policy=True, sample=Sample.trials, batch_size=0)
FLAGS = ("terminated", "truncated", "episode_start", "trial_start", "trial_end")


def made(capacity: int = 20) -> RolloutBuffer:
    replay = make_replay(capacity, storage=RolloutBuffer)
    assert isinstance(replay, RolloutBuffer)
    return replay


def check(rollout: RolloutBuffer, trials: list[Trial]) -> None:
    """Each trial stands somewhere in the batch, whole, and nothing else does."""
    batch = rollout.sample(NEEDS, np.random.default_rng(0))
    assert isinstance(batch.obs, torch.Tensor)
    assert batch.shape[0] == max(len(trial) for trial in trials)
    found = {}
    for t, column in batch.trial_start.nonzero().tolist():
        trial = next(trial for trial in trials if trial.obs[0, 0] == batch.obs[t, column, 0])
        for name in ("obs", "action", "reward", "prev_action", *FLAGS):
            np.testing.assert_array_equal(
                getattr(batch, name)[t : t + len(trial), column].numpy(), getattr(trial, name), err_msg=name
            )
        np.testing.assert_array_equal(batch.trains[t : t + len(trial), column].numpy(), ~trial.ended)
        found[int(trial.obs[0, 0])] = len(trial)
    assert len(found) == len(trials) and int(batch.valid.sum()) == sum(found.values())
    for values in (batch.obs, batch.action, batch.prev_action, batch.reward[..., None]):
        assert not values[~batch.valid].any()


@pytest.mark.parametrize("seed", range(5))
def test_every_trial_of_a_wave_is_there_once_and_the_wave_before_is_not(seed: int) -> None:
    rollout = made()
    for first, count in ((0, 7), (7, 12), (19, 1), (20, 20)):
        trials = make_trials(seed, count, first=first, fall=0.3)
        play(rollout, trials, num_slots=4)
        assert (rollout.num_trials, rollout.num_added, rollout.oldest) == (count, first + count, first)
        check(rollout, trials)


def test_a_trial_that_was_given_up_is_in_no_column() -> None:
    rollout, trials = made(), make_trials(0, 4)
    play(rollout, trials, num_slots=2)
    lengths = [len(trial) for trial in trials]
    rollout.reserve(4)
    rollout.commit(np.array([lengths[0], 0, lengths[2], lengths[3]]))  # the rows that are there already
    assert (
        rollout.num_trials == 3
        and int(rollout.sample(NEEDS, np.random.default_rng(0)).valid.sum()) == sum(lengths) - lengths[1]
    )


def test_a_wave_that_begins_forgets_the_one_before() -> None:
    rollout = made()
    play(rollout, make_trials(0, 4), num_slots=2)
    rollout.reserve(3)
    rollout.discard()
    assert rollout.num_trials == 0 == rollout.num_transitions
    with pytest.raises(RuntimeError, match="no such trials"):
        rollout.sample(NEEDS, np.random.default_rng(0))


@pytest.mark.parametrize("waves", [1, 3])
def test_what_is_exported_comes_back_with_its_number(waves: int) -> None:
    rollout, again = made(), made()
    for wave in range(waves):
        play(rollout, make_trials(wave, 9, first=9 * wave), num_slots=4)
    again.restore([rollout.export(rollout.oldest, rollout.num_added)], rollout.num_added)
    assert (
        (again.oldest, again.num_added) == (rollout.oldest, rollout.num_added) == (9 * (waves - 1), 9 * waves)
    )
    first, second = (one.sample(NEEDS, np.random.default_rng(0)) for one in (rollout, again))
    assert isinstance(first.obs, torch.Tensor) and isinstance(second.obs, torch.Tensor)
    assert torch.equal(first.obs, second.obs) and torch.equal(first.trains, second.trains)
    empty = made()
    empty.restore([], 27)
    assert (empty.oldest, empty.num_added) == (27, 27)


def test_pictures_masks_and_choices_are_packed_too() -> None:
    kind, trials = KINDS["discrete-masked"], make_trials(0, 6, fall=0.4)
    rollout = make_replay(6, kind=kind, storage=RolloutBuffer)
    play(rollout, trials, num_slots=3, kind=kind)
    batch = rollout.whole(0, 6)
    assert isinstance(batch.obs, dict) and batch.action.dtype == torch.int64
    for t, column in batch.trial_start.nonzero().tolist():
        trial = next(trial for trial in trials if trial.obs[0, 0] == batch.obs["where"][t, column, 0])
        for row, numbers in enumerate(trial.obs):
            seen = kind.look(numbers)
            assert isinstance(seen, dict)
            assert all(np.array_equal(batch.obs[key][t + row, column], part) for key, part in seen.items())
