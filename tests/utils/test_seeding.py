"""Streams depend on their keys and on nothing else."""

from __future__ import annotations

import numpy as np

from utils.seeding import Phase, Purpose, episode_seeds, follows, generator, trial_seed, uniforms

# What a seed gives is part of every published result: a change here is a change of all of them.
TRIAL_SEED = 2536635839775130773
EPISODE_SEEDS = [13830413928045401970, 527077646590785223]
UNIFORMS = [0.4167470637848455, 0.5363275499442233, 0.7833177685093605]


def test_a_key_always_gives_the_same_stream_and_another_key_another() -> None:
    keys = [
        (root, phase, purpose, number)
        for root in (0, 1)
        for phase in Phase
        for purpose in Purpose
        for number in range(20)
    ]
    draws = {key: generator(*key).random(4).tobytes() for key in keys}
    assert len(set(draws.values())) == len(keys)
    assert all(generator(*key).random(4).tobytes() == draw for key, draw in draws.items())


def test_runs_with_neighbouring_seeds_share_no_trial() -> None:
    seeds = [{trial_seed(root, Phase.TRAIN, number) for number in range(500)} for root in range(3)]
    assert [len(one) for one in seeds] == [500] * 3
    assert not seeds[0] & seeds[1] and not seeds[1] & seeds[2] and not seeds[0] & seeds[2]
    assert all(0 <= seed < 2**64 for seed in seeds[0])


def test_the_streams_of_this_version_are_those_of_the_last() -> None:
    assert trial_seed(0, Phase.TRAIN, 0) == TRIAL_SEED
    assert episode_seeds(np.array([1, 2**64 - 1], np.uint64), np.array([0, 3])).tolist() == EPISODE_SEEDS
    assert uniforms(np.array([5], np.uint64), 3)[0].tolist() == UNIFORMS


def test_an_episode_has_the_seed_of_its_trial_and_number_in_any_company() -> None:
    trials = np.arange(200, dtype=np.uint64)
    all_seeds = np.stack([episode_seeds(trials, np.full(200, episode)) for episode in range(5)])
    assert len(np.unique(all_seeds)) == 1000
    alone = episode_seeds(trials[7:8], np.array([3]))
    assert alone[0] == all_seeds[3, 7]
    mixed = episode_seeds(trials[[7, 9, 7]], np.array([3, 0, 1]))
    assert mixed.tolist() == [all_seeds[3, 7], all_seeds[0, 9], all_seeds[1, 7]]


def test_an_episode_follows_the_one_before_it_in_its_own_trial_alone() -> None:
    trials = np.array([0, 1, 2**64 - 1, trial_seed(0, Phase.TRAIN, 5)], np.uint64)
    seeds = [episode_seeds(trials, np.full(4, episode)).tolist() for episode in range(4)]
    played = [(trial, episode) for trial in range(4) for episode in range(4)]
    for trial, episode in played:
        after = {(i, j) for i, j in played if follows(seeds[j][i], seeds[episode][trial])}
        assert after == ({(trial, episode + 1)} if episode < 3 else set())


def test_a_row_of_uniforms_depends_on_its_seed_alone() -> None:
    seeds = np.arange(100, dtype=np.uint64)
    draws = uniforms(seeds, 6)
    assert np.array_equal(uniforms(seeds[40:41], 6)[0], draws[40])
    assert np.array_equal(uniforms(seeds[::-1], 6), draws[::-1])
    assert np.array_equal(uniforms(seeds, 3), draws[:, :3])  # asking for more changes nothing before


def test_uniforms_are_uniform_and_neighbouring_seeds_are_unrelated() -> None:
    draws = uniforms(np.arange(20_000, dtype=np.uint64), 4)
    assert draws.min() >= 0 and draws.max() < 1
    counts = np.stack([np.histogram(draws[:, column], bins=20, range=(0, 1))[0] for column in range(4)])
    assert (
        ((counts - 1000) ** 2 / 1000).sum(axis=1) < 50
    ).all()  # chi-squared with 19 degrees of freedom: 50 is p = 1e-4
    related = np.corrcoef(np.concatenate([draws[:-1], draws[1:]], axis=1).T) - np.eye(8)
    assert np.abs(related).max() < 5 / np.sqrt(20_000)
    by_hand = np.corrcoef(np.arange(100) / 100, (np.arange(100) + 1) / 100)[0, 1]
    assert by_hand > 0.9  # seeds used as they are would have been found out
