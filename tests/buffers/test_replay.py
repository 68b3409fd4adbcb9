"""Replay: with rows that count, what comes out is consecutive, aligned and was put in."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from dataclasses import fields
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from buffers.base import Batch, Needs, Sample
from buffers.replay import Replay
from envs.base import ActionSpace, EnvSpec, ObsSpace
from envs.layout import Layout
from tests.trials import KINDS, Trial, make_replay, make_rows, make_trials, play

FLAGS = ("terminated", "truncated", "episode_start", "trial_start", "trial_end")


def needs(sample: Sample, *, batch_size: int = 32, window: int = 0, state_every: int = 0) -> Needs:
    return Needs(
        on_policy=False, sample=sample, batch_size=batch_size, window=window, state_every=state_every
    )


ALL_NEEDS = [
    needs(Sample.trials),
    needs(Sample.transitions),
    needs(Sample.windows, window=1),
    needs(Sample.windows, window=3),
    needs(Sample.windows, window=50),
    needs(Sample.windows, window=1, state_every=1),
    needs(Sample.windows, window=4, state_every=2),
    needs(Sample.windows, window=3, state_every=3),
    needs(Sample.windows, window=50, state_every=25),
]
every_need = pytest.mark.parametrize(
    "asked", ALL_NEEDS, ids=lambda asked: f"{asked.sample.name}-{asked.window}-{asked.state_every}"
)


def check_column(batch: Batch, column: int, trials: list[Trial], *, window: int) -> None:
    """One column against the trial that it says it is from."""
    assert isinstance(batch.obs, torch.Tensor)
    valid = batch.valid[:, column].numpy()
    count = int(valid.sum())
    assert valid[:count].all(), "padding stands at the end only"
    trial, start = trials[int(batch.obs[0, column, 0])], int(batch.obs[0, column, 1])
    span = slice(start, start + count)
    if batch.state is not None:
        assert batch.state["rows"][column] == start, "the state is that of the first row"
        assert batch.state["where"][column].tolist() == (
            [batch.obs[0, column, 0], start] if start else [0, 0]
        )
    for name in ("obs", "action", "reward", "prev_action", *FLAGS):
        values = getattr(batch, name)[:, column].numpy()
        np.testing.assert_array_equal(values[:count], getattr(trial, name)[span], err_msg=name)
        assert not values[count:].any(), f"{name} is not zero in the padding"
    trains = batch.trains[:, column].numpy()
    assert not (trains & ~valid).any()
    last = int(np.flatnonzero(trains)[-1]) if trains.any() else 0
    np.testing.assert_array_equal(trains[: last + 1], ~trial.ended[start : start + last + 1])
    assert last < window
    if not trial.ended[start + last + 1] or trial.trial_end[start + last + 1]:
        assert count >= last + 2, "the row after a training row is there"
    else:
        assert count >= last + 3, "and where that ended an episode, the start of the next"


@every_need
@pytest.mark.parametrize("seed", range(6))
def test_what_comes_out_is_consecutive_aligned_and_was_put_in(asked: Needs, seed: int) -> None:
    rng = np.random.default_rng(seed)
    k, horizon, num_slots = int(rng.integers(1, 4)), int(rng.integers(1, 7)), int(rng.integers(1, 6))
    trials = make_trials(seed, 23, k=k, horizon=horizon, fall=rng.choice([0.0, 0.3]))
    replay = make_replay(capacity=8, k=k, horizon=horizon, state_every=asked.state_every)
    for first, stop in ((0, 5), (5, 6), (6, 14), (14, 17), (17, 23)):
        play(replay, trials[first:stop], num_slots=num_slots)
        batch = replay.sample(asked, rng)
        assert (batch.state is not None) == (asked.state_every > 0)
        assert isinstance(batch.obs, torch.Tensor)
        numbers = batch.obs[0, :, 0].int().tolist()
        assert set(numbers) <= set(range(stop - replay.num_trials, stop))
        assert replay.num_trials == those_that_fit(trials[:stop], replay.capacity)
        for column in range(asked.batch_size):
            window = {Sample.trials: 10**6, Sample.transitions: 1, Sample.windows: asked.window}[asked.sample]
            check_column(batch, column, trials, window=window)
    assert replay.num_added == 23
    assert replay.num_transitions == sum(int((~trial.ended).sum()) for trial in trials[replay.oldest :])


def those_that_fit(trials: list[Trial], rows: int) -> int:
    """How many of the newest trials have room in so many rows."""
    count = 0
    while count < len(trials) and len(trials[-1 - count]) <= rows:
        rows -= len(trials[-1 - count])
        count += 1
    return count


def test_of_short_trials_there_is_room_for_more() -> None:
    """Room for 4 trials of 12 rows is room for 48 rows."""
    replay, trials = make_replay(capacity=4), make_trials(3, 40, fall=0.8)
    for first in range(0, 40, 4):
        play(replay, trials[first : first + 4], num_slots=2)
    assert 8 < replay.num_trials == those_that_fit(trials, 48)
    assert sum(len(trial) for trial in trials[replay.oldest :]) <= 48


def test_the_masks_are_those_of_the_table() -> None:
    replay = make_replay(capacity=1, k=2, horizon=2)
    play(replay, make_trials(0, 1, k=2, horizon=2, fall=0.0), num_slots=1)
    batch = replay.sample(needs(Sample.trials, batch_size=1), np.random.default_rng(0))
    table = {
        "episode_start": [1, 0, 0, 1, 0, 0],
        "trial_start": [1, 0, 0, 0, 0, 0],
        "ended": [0, 0, 1, 0, 0, 1],
        "trial_end": [0, 0, 0, 0, 0, 1],
        "trains": [1, 1, 0, 1, 1, 0],
        "valid": [1, 1, 1, 1, 1, 1],
    }
    for name, expected in table.items():
        assert getattr(batch, name)[:, 0].int().tolist() == expected, name


def test_a_batch_is_trimmed_to_its_longest_trial() -> None:
    replay, trials = make_replay(capacity=4, horizon=20), make_trials(3, 4, horizon=20, fall=0.4)
    play(replay, trials, num_slots=2)
    batch = replay.sample(needs(Sample.trials), np.random.default_rng(0))
    assert batch.shape[0] == max(len(trial) for trial in trials) < replay.rows_per_trial


@pytest.mark.parametrize(
    "asked",
    [
        needs(Sample.transitions, batch_size=512),
        needs(Sample.windows, batch_size=512, window=3),
        needs(Sample.windows, batch_size=512, window=4, state_every=2),
        needs(Sample.windows, batch_size=512, window=3, state_every=3),
    ],
    ids=lambda asked: f"{asked.sample.name}-{asked.state_every}",
)
def test_every_row_that_trains_is_equally_likely_the_first_and_last_included(asked: Needs) -> None:
    trials = make_trials(1, 5, k=2, horizon=4, fall=0.15)
    replay = make_replay(capacity=5, k=2, horizon=4, state_every=asked.state_every)
    play(replay, trials, num_slots=3)
    rng, counts = np.random.default_rng(0), Counter[tuple[int, int]]()
    for _ in range(40):
        batch = replay.sample(asked, rng)
        assert isinstance(batch.obs, torch.Tensor)
        counts.update(tuple(row) for row in batch.obs[batch.trains][:, :2].int().tolist())
    expected = {(number, row) for number, trial in enumerate(trials) for row in np.flatnonzero(~trial.ended)}
    assert set(counts) == expected
    mean = sum(counts.values()) / len(expected)
    assert all(abs(count - mean) < 6 * mean**0.5 for count in counts.values()), counts


def test_every_column_of_transitions_trains_in_one_row() -> None:
    replay = make_replay(capacity=5, horizon=1)
    play(replay, make_trials(1, 5, horizon=1), num_slots=2)
    batch = replay.sample(needs(Sample.transitions), np.random.default_rng(0))
    assert batch.shape == (3, 32)
    assert batch.trains.sum(0).tolist() == [1] * 32
    assert batch.trains[0].all()


def test_rows_are_copied_when_they_are_written() -> None:
    replay, rows = make_replay(capacity=1, k=1, horizon=1), make_rows(1)
    replay.reserve(1)
    one, actions = np.zeros(1, np.int64), np.zeros((1, 2), np.float32)
    assert isinstance(rows.obs, np.ndarray)
    for t in range(2):
        rows.obs[:], rows.truncated[:], rows.trial_end[:] = t, t == 1, t == 1
        replay.write(one, one + t, rows, one, actions)
    rows.obs[:] = 99
    replay.commit(np.array([2]))
    batch = replay.sample(needs(Sample.trials, batch_size=1), np.random.default_rng(0))
    assert isinstance(batch.obs, torch.Tensor)
    assert batch.obs[:, 0, 0].tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("obs_space", "action_space", "row"),
    [
        (
            spaces.Box(-np.inf, np.inf, (28,), np.float32),
            spaces.Box(-1, 1, (8,), np.float32),
            28 * 4 + 8 * 4 + 4 + 1,
        ),
        (KINDS["discrete-masked"].obs_space, spaces.Discrete(4), 5 * 5 * 3 + 4 * 4 + 4 + 8 + 4 + 1),
    ],
    ids=["vector", "pictures"],
)
def test_each_observation_is_kept_once(obs_space: ObsSpace, action_space: ActionSpace, row: int) -> None:
    horizon, k, capacity = 200, 2, 300
    arguments: dict[str, Any] = {
        "obs_space": obs_space,
        "action_space": action_space,
        "capacity_rows": capacity * k * (horizon + 1),
        "wave_trials": 0,
        "rows_per_trial": k * (horizon + 1),
    }
    tracemalloc.start()
    replay = Replay(**arguments)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    per_transition = held / (capacity * k * horizon)
    assert row < per_transition < row * (horizon + 1) / horizon + 0.5
    assert Replay.bytes_needed(**arguments) == pytest.approx(held, rel=1e-3)
    assert replay.num_trials == 0


def same(a: Batch, b: Batch) -> bool:
    values = [
        (getattr(a, item.name), getattr(b, item.name))
        for item in fields(Batch)
        if item.name not in ("state", "critic_state", "extras")
    ]
    values += [((a.state or {})[name], leaf) for name, leaf in (b.state or {}).items()]
    return (a.state is None) == (b.state is None) and all(
        x.shape == y.shape and torch.equal(x, y) for x, y in values
    )


@pytest.mark.parametrize("burn_in", [1, 3, 50])
def test_burn_in_reads_rows_before_the_window_and_trains_on_the_same_rows(burn_in: int) -> None:
    """The same draw with and without: the rows that train are the same ones, and those before them go back to
    the trial's start at most.
    """
    replay = make_replay(capacity=8)
    play(replay, make_trials(5, 8), num_slots=3)
    plain, longer = (
        replay.sample(
            Needs(on_policy=False, sample=Sample.windows, batch_size=200, window=3, burn_in=rows),
            np.random.default_rng(0),
        )
        for rows in (0, burn_in)
    )
    assert isinstance(plain.obs, torch.Tensor) and isinstance(longer.obs, torch.Tensor)
    for column in range(200):
        first, first_longer = int(plain.obs[0, column, 1]), int(longer.obs[0, column, 1])
        assert first_longer == max(first - burn_in, 0)
        rows = longer.obs[longer.valid[:, column], column, 1]
        assert torch.equal(rows, first_longer + torch.arange(len(rows)))
        for one in (plain, longer):
            assert set(one.obs[:, column, 0][one.valid[:, column]].tolist()) == {  # pyright: ignore[reportCallIssue, reportArgumentType]
                plain.obs[0, column, 0].item()
            }
        assert torch.equal(
            longer.obs[longer.trains[:, column], column], plain.obs[plain.trains[:, column], column]
        )
    before = (longer.obs[..., 1] < plain.obs[:1, :, 1]) & longer.valid
    assert before.any() and not longer.trains[before].any()


@pytest.mark.parametrize("burn_in", [2, 4])
def test_a_stored_state_is_that_before_the_burn_in(burn_in: int) -> None:
    trials = make_trials(5, 8)
    large, small = make_replay(capacity=8, state_every=2), make_replay(capacity=3, state_every=2)
    play(large, trials, num_slots=3)
    small.restore([large.export(0, 8)])
    asked = Needs(
        on_policy=False, sample=Sample.windows, batch_size=100, window=2, burn_in=burn_in, state_every=2
    )
    for replay, numbers in ((large, set(range(8))), (small, {5, 6, 7})):
        batch = replay.sample(asked, np.random.default_rng(0))
        assert isinstance(batch.obs, torch.Tensor) and batch.state is not None
        begins = batch.obs[0, :, 1]
        assert set(batch.obs[0, :, 0].int().tolist()) == numbers and set(begins.int().tolist()) > {0, 2}
        assert torch.equal(batch.state["where"], batch.obs[0, :, :2] * (begins > 0)[:, None])
        first_training = torch.stack(
            [batch.obs[batch.trains[:, column], column, 1].min() for column in range(100)]
        )
        assert (first_training - begins <= burn_in + 1).all(), (
            "one more where the window begins with the last row of an episode"
        )


def test_while_a_wave_is_written_and_once_it_is_discarded_what_was_stored_is_sampled() -> None:
    replay, undisturbed = make_replay(capacity=4), make_replay(capacity=4)
    for one in (replay, undisturbed):
        trials = make_trials(0, 8)
        play(one, trials[:4], num_slots=2)
        play(one, trials[4:], num_slots=2)
    rows = make_rows(2)
    assert isinstance(rows.obs, np.ndarray)
    rows.obs[:] = np.nan
    replay.reserve(4)
    slots, actions = np.arange(2), np.full((2, 2), np.nan, np.float32)
    for time in range(12):
        for trials in ([0, 1], [2, 3]):
            replay.write(np.array(trials), np.full(2, time), rows, slots, actions)
    for discarded in (False, True):
        if discarded:
            replay.discard()
        assert replay.num_transitions == undisturbed.num_transitions
        for asked in [asked for asked in ALL_NEEDS if not asked.state_every]:
            found = [one.sample(asked, np.random.default_rng(2)) for one in (replay, undisturbed)]
            assert same(*found)


def test_a_wave_that_does_not_fit_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"A wave of 4 trials of up to 12 rows does not fit .* room for 36 rows"
    ):
        make_replay(capacity=3).reserve(4)


def test_wrong_lengths_are_refused() -> None:
    replay = make_replay(capacity=3)
    replay.reserve(2)
    with pytest.raises(ValueError, match="At most 2 trials of at most 12 rows"):
        replay.commit(np.array([3, 13]))


def test_an_empty_replay_says_so() -> None:
    with pytest.raises(RuntimeError, match="empty"):
        make_replay(capacity=3).sample(needs(Sample.trials), np.random.default_rng(0))


def test_dict_observations_and_discrete_actions_keep_their_types() -> None:
    obs_space = spaces.Dict(
        {"obs": spaces.Box(0, 255, (2, 3), np.uint8), "action_mask": spaces.MultiBinary(4)}
    )
    action_space = spaces.Discrete(4)
    replay = Replay(
        obs_space=obs_space, action_space=action_space, capacity_rows=4, wave_trials=2, rows_per_trial=2
    )
    rows = Layout(EnvSpec("made up", obs_space, action_space, task_dim=1)).allocate(2)
    assert isinstance(rows.obs, dict)
    slots, replayed = np.arange(2), np.array([3, 1])
    replay.reserve(2)
    for t in range(2):
        rows.obs["obs"][:], rows.obs["action_mask"][:] = 200 + t, [1, 0, t, 1]
        rows.truncated[:] = rows.trial_end[:] = t == 1
        replay.write(slots, slots * 0 + t, rows, slots, replayed)
    replay.commit(np.array([2, 2]))
    batch = replay.sample(needs(Sample.trials, batch_size=8), np.random.default_rng(0))
    assert isinstance(batch.obs, dict)
    assert (batch.obs["obs"].dtype, batch.obs["obs"].shape, batch.obs["obs"][1, 0, 0, 0].item()) == (
        torch.uint8,
        (2, 8, 2, 3),
        201,
    )
    assert batch.obs["action_mask"][1, 0].tolist() == [1, 0, 1, 1]
    assert (batch.action.dtype, set(batch.action[0].tolist())) == (torch.int64, {1, 3})
    assert torch.equal(batch.prev_action[1], batch.action[0])


class Saying(Replay):
    """Says of every row the first number of its observation, as an extra."""

    def write(
        self, trials: Any, times: Any, rows: Any, slots: Any, actions: Any, extras: Any = MappingProxyType({})
    ) -> None:
        super().write(trials, times, rows, slots, actions, {"log_prob": rows.obs[:, 0]})


@every_need
def test_extras_of_a_row_come_out_with_it(asked: Needs) -> None:
    replay = make_replay(capacity=7, storage=Saying, extras=("log_prob",), state_every=asked.state_every)
    play(replay, make_trials(1, 7), num_slots=3)
    other = make_replay(capacity=7, storage=Saying, extras=("log_prob",), state_every=asked.state_every)
    other.restore([replay.export(0, 4), replay.export(4, 7)])
    for one in (replay, other):
        batch = one.sample(asked, np.random.default_rng(0))
        assert isinstance(batch.obs, torch.Tensor) and batch.extras["log_prob"].abs().max() > 0
        assert torch.equal(batch.extras["log_prob"], batch.obs[..., 0])


def test_an_extra_that_is_not_given_is_zero_and_one_that_is_not_wanted_is_not_stored() -> None:
    silent, deaf = make_replay(capacity=7, extras=("log_prob",)), make_replay(capacity=7, storage=Saying)
    for replay in (silent, deaf):
        play(replay, make_trials(1, 7), num_slots=3)
    asked = needs(Sample.trials, batch_size=5)
    assert not silent.sample(asked, np.random.default_rng(0)).extras["log_prob"].any()
    assert not deaf.sample(asked, np.random.default_rng(0)).extras
