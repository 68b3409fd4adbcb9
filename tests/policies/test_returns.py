"""The target rule against an example worked out by hand: a fall, a time limit and k = 2."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from buffers.base import Batch, Needs, Sample
from policies.returns import advantages, successor
from tests.trials import make_replay, make_trials, play

F, T = False, True
DISCOUNT = 0.5


def column(**flags: list[bool]) -> Batch:
    """One column of rows 0..; what is not given is False, and the trial begins at row 0."""
    rows = len(next(iter(flags.values())))
    given = {name: torch.tensor(values)[:, None] for name, values in flags.items()}
    none = torch.zeros(rows, 1, dtype=torch.bool)
    terminated, truncated, valid = (
        given.get("terminated", none),
        given.get("truncated", none),
        given.get("valid", ~none),
    )
    return Batch(
        obs=torch.arange(rows).float()[:, None, None],
        reward=torch.arange(rows).float()[:, None] * 10,
        valid=valid,
        prev_action=torch.zeros(rows, 1, 1),
        action=torch.zeros(rows, 1, 1),
        trains=valid & ~(terminated | truncated),
        terminated=terminated,
        truncated=truncated,
        episode_start=given.get("episode_start", none),
        trial_start=given.get("trial_start", none),
        trial_end=given.get("trial_end", none),
    )


def targets(
    batch: Batch, values: list[float], *, whole_trial: bool, timeout_bootstrap: bool = True
) -> dict[int, float]:
    """Row that trains -> its target, as the docstring of successor() says."""
    index, bootstraps = successor(batch, whole_trial=whole_trial, timeout_bootstrap=timeout_bootstrap)
    rows = batch.trains[:, 0].nonzero().flatten().tolist()
    return {
        t: batch.reward[t + 1, 0].item() + DISCOUNT * bootstraps[t, 0].item() * values[int(index[t, 0])]
        for t in rows
    }


#                                    0  1  2  3  4  5  6
# episode 1: rows 0-2, ends in a fall at row 2; episode 2: rows 3-6, ends at its time limit at row 6
FALL_THEN_TIME_LIMIT = column(
    terminated=[F, F, T, F, F, F, F],
    truncated=[F, F, F, F, F, F, T],
    trial_end=[F, F, F, F, F, F, T],
    episode_start=[T, F, F, T, F, F, F],
    trial_start=[T, F, F, F, F, F, F],
)
#                                    0  1  2  3  4  5
# episode 1: rows 0-2, ends at its time limit at row 2; episode 2: rows 3-5, ends in a fall at row 5
TIME_LIMIT_THEN_FALL = column(
    terminated=[F, F, F, F, F, T],
    truncated=[F, F, T, F, F, F],
    trial_end=[F, F, F, F, F, T],
    episode_start=[T, F, F, T, F, F],
    trial_start=[T, F, F, F, F, F],
)
VALUES = [100.0, 101.0, 102.0, 103.0, 104.0, 105.0, 106.0]


@pytest.mark.parametrize(
    ("batch", "whole_trial", "timeout_bootstrap", "expected"),
    [
        # the fall is passed over to V[3], the start of episode 2; at the trial's time limit the ended row
        # itself has a value
        (
            FALL_THEN_TIME_LIMIT,
            True,
            True,
            {0: 10 + 50.5, 1: 20 + 51.5, 3: 40 + 52, 4: 50 + 52.5, 5: 60 + 53},
        ),
        (FALL_THEN_TIME_LIMIT, True, False, {0: 10 + 50.5, 1: 20 + 51.5, 3: 40 + 52, 4: 50 + 52.5, 5: 60}),
        # the return stops at the end of the episode: nothing after a fall
        (FALL_THEN_TIME_LIMIT, False, True, {0: 10 + 50.5, 1: 20, 3: 40 + 52, 4: 50 + 52.5, 5: 60 + 53}),
        (FALL_THEN_TIME_LIMIT, False, False, {0: 10 + 50.5, 1: 20, 3: 40 + 52, 4: 50 + 52.5, 5: 60}),
        (TIME_LIMIT_THEN_FALL, True, True, {0: 10 + 50.5, 1: 20 + 51.5, 3: 40 + 52, 4: 50}),
        (TIME_LIMIT_THEN_FALL, True, False, {0: 10 + 50.5, 1: 20 + 51.5, 3: 40 + 52, 4: 50}),
        (TIME_LIMIT_THEN_FALL, False, True, {0: 10 + 50.5, 1: 20 + 51, 3: 40 + 52, 4: 50}),
        (TIME_LIMIT_THEN_FALL, False, False, {0: 10 + 50.5, 1: 20, 3: 40 + 52, 4: 50}),
    ],
)
def test_targets_equal_those_worked_out_by_hand(
    batch: Batch, whole_trial: bool, timeout_bootstrap: bool, expected: dict[int, float]
) -> None:
    assert targets(batch, VALUES, whole_trial=whole_trial, timeout_bootstrap=timeout_bootstrap) == expected


@pytest.mark.parametrize("whole_trial", [True, False])
def test_where_an_end_is_both_termination_wins(whole_trial: bool) -> None:
    batch = column(terminated=[F, T], truncated=[F, T], trial_end=[F, T])
    assert targets(batch, VALUES, whole_trial=whole_trial) == {0: 10.0}


@pytest.mark.parametrize("whole_trial", [True, False])
def test_a_constant_reward_has_a_constant_value_under_time_limits(whole_trial: bool) -> None:
    """Reward 1 and V = 1 / (1 - discount): every target is V again, also across a boundary that the return
    passes.
    """
    batch = column(
        truncated=[F, F, T, F, F, T],
        trial_end=[F, F, F, F, F, T],
        episode_start=[T, F, F, T, F, F],
        trial_start=[T, F, F, F, F, F],
    )
    batch.reward[:] = 1.0
    value = 1 / (1 - DISCOUNT)
    assert set(targets(batch, [value] * 6, whole_trial=whole_trial).values()) == {value}
    stopped = targets(batch, [value] * 6, whole_trial=whole_trial, timeout_bootstrap=False)
    assert stopped[4] == 1.0, "without the bootstrap the time limit is felt"


def test_the_index_stays_within_the_batch_and_padding_is_never_asked_for() -> None:
    batch = column(valid=[T, T, T, F, F], truncated=[F, F, T, F, F], trial_end=[F, F, T, F, F])
    index, bootstraps = successor(batch, whole_trial=True)
    assert index.max() <= 4
    assert index[:2, 0].tolist() == [1, 2]
    assert bootstraps.shape == (5, 1)


@pytest.mark.parametrize(
    ("batch", "whole_trial", "timeout_bootstrap", "expected"),
    [
        # with discount 0.5 and gae_lambda 0.5, A[t] = target[t] - V[t] + A[the row that trains next] / 4:
        # from row 1 on to row 3, over the ended row 2
        (FALL_THEN_TIME_LIMIT, True, True, [-47.5546875, -32.21875, 0, -10.875, 0.5, 8, 0]),
        (FALL_THEN_TIME_LIMIT, True, False, [-47.76171875, -33.046875, 0, -14.1875, -12.75, -45, 0]),
        # and nothing after an end where the return stops, whether its value counts or not
        (FALL_THEN_TIME_LIMIT, False, True, [-59.75, -81, 0, -10.875, 0.5, 8, 0]),
        (TIME_LIMIT_THEN_FALL, True, True, [-48.40625, -35.625, 0, -24.5, -54, 0]),
        (TIME_LIMIT_THEN_FALL, False, True, [-47, -30, 0, -24.5, -54, 0]),
        (TIME_LIMIT_THEN_FALL, False, False, [-59.75, -81, 0, -24.5, -54, 0]),
    ],
)
def test_advantages_equal_those_worked_out_by_hand(
    batch: Batch, whole_trial: bool, timeout_bootstrap: bool, expected: list[float]
) -> None:
    values = torch.tensor(VALUES[: len(expected)])[:, None]
    found = advantages(
        batch,
        values,
        discount=DISCOUNT,
        gae_lambda=0.5,
        whole_trial=whole_trial,
        timeout_bootstrap=timeout_bootstrap,
    )
    assert found[:, 0].tolist() == expected


def test_advantages_of_trials_in_one_column_are_those_of_each_alone() -> None:
    values = torch.tensor(VALUES)[:, None]
    both = _one_after_the_other(FALL_THEN_TIME_LIMIT, TIME_LIMIT_THEN_FALL)
    settings = {"discount": 0.9, "gae_lambda": 0.7, "whole_trial": True}
    alone = [
        advantages(one, values[: one.shape[0]], **settings)
        for one in (FALL_THEN_TIME_LIMIT, TIME_LIMIT_THEN_FALL)
    ]
    assert torch.equal(advantages(both, torch.cat([values, values[:6]]), **settings), torch.cat(alone))


def _one_after_the_other(first: Batch, second: Batch) -> Batch:
    names = (
        "terminated",
        "truncated",
        "episode_start",
        "trial_start",
        "trial_end",
        "reward",
        "valid",
        "trains",
        "prev_action",
        "action",
        "obs",
    )
    return replace(
        first, **{name: torch.cat([getattr(first, name), getattr(second, name)]) for name in names}
    )


@pytest.mark.parametrize("gae_lambda", [0.0, 0.6, 1.0])
def test_a_trace_of_0_is_the_target_and_of_1_the_sum_of_all_rewards(gae_lambda: float) -> None:
    values = torch.tensor(VALUES)[:, None]
    found = advantages(
        FALL_THEN_TIME_LIMIT, values, discount=DISCOUNT, gae_lambda=gae_lambda, whole_trial=True
    )
    one_step = targets(FALL_THEN_TIME_LIMIT, VALUES, whole_trial=True)
    to_the_end = 10 + 0.5 * (20 + 0.5 * (40 + 0.5 * (50 + 0.5 * (60 + 0.5 * 106))))
    assert (found[0, 0].item() + 100 == one_step[0]) == (gae_lambda == 0)
    assert (found[0, 0].item() + 100 == pytest.approx(to_the_end)) == (gae_lambda == 1)


@pytest.mark.peers
@pytest.mark.parametrize("ends", ["terminated", "truncated"])
def test_advantages_are_those_of_torchrl(ends: str) -> None:
    """A single episode, as it knows no trials: its rows are our transitions."""
    functional = pytest.importorskip("torchrl.objectives.value.functional")
    rows, generator = 12, torch.Generator().manual_seed(0)
    last = [False] * (rows - 1) + [True]
    batch = column(trial_end=last, episode_start=[True] + [False] * (rows - 1), **{ends: last})
    batch.reward[1:] = torch.randn(rows - 1, 1, generator=generator)
    values, flags = torch.randn(rows, 1, generator=generator), torch.tensor(last)[1:, None]
    terminated = flags if ends == "terminated" else torch.zeros_like(flags)
    theirs, _ = functional.generalized_advantage_estimate(
        0.97, 0.9, values[:-1], values[1:], batch.reward[1:], flags, terminated
    )
    ours = advantages(batch, values, discount=0.97, gae_lambda=0.9, whole_trial=True)
    torch.testing.assert_close(ours[:-1], theirs)


@pytest.mark.peers
@pytest.mark.parametrize("timeout_bootstrap", [True, False])
def test_advantages_of_episodes_one_after_another_are_those_of_torchrl(timeout_bootstrap: bool) -> None:
    """Where the return stops at every end: falls and time limits of two episodes in each of several trials,
    and padding beside the longest.
    """
    functional = pytest.importorskip("torchrl.objectives.value.functional")
    replay = make_replay(capacity=12)
    play(replay, make_trials(3, 12, fall=0.12, scale=1e-2), num_slots=3)
    batch = replay.sample(
        Needs(on_policy=False, sample=Sample.trials, batch_size=40), np.random.default_rng(0)
    )
    values = torch.randn(batch.shape, generator=torch.Generator().manual_seed(0))
    ours = advantages(
        batch, values, discount=0.97, gae_lambda=0.9, whole_trial=False, timeout_bootstrap=timeout_bootstrap
    )
    ends = set()
    for number in range(batch.shape[1]):
        rows = batch.trains[:, number].nonzero().flatten()
        done, fell = (flags[rows + 1, number, None] for flags in (batch.ended, batch.terminated))
        value, after, reward = (
            of[at, number, None] for of, at in ((values, rows), (values, rows + 1), (batch.reward, rows + 1))
        )
        worthless = fell if timeout_bootstrap else done
        theirs, _ = functional.generalized_advantage_estimate(
            0.97, 0.9, value, after, reward, done, worthless
        )
        torch.testing.assert_close(ours[rows, number], theirs[:, 0])
        ends.add((int(done.sum()), int(fell.sum())))
    assert ends == {(2, 0), (2, 1), (2, 2)}
