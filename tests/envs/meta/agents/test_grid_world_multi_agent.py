"""GridWorldMultiAgent as a family: tasks, modes, masks, and what a dead agent costs a learner."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from envs.base import Split
from envs.interop.spaces import MASK_KEY
from envs.meta.agents.grid_board import FEATURES
from envs.meta.agents.grid_scripts import Partner
from envs.meta.agents.grid_world_multi_agent import GridWorldMultiAgent
from envs.meta.make_env import make_family
from policies.agents.actions import actions_of
from tests.envs.backends.test_backends import manage
from tests.envs.meta.played import Played, returns_of
from tests.streams import trial_streams
from utils.options import OptionError


def family_with(**options: Any) -> GridWorldMultiAgent:
    family = make_family("GridWorldMultiAgent", **options)
    assert isinstance(family, GridWorldMultiAgent)
    return family


def drawn(family: GridWorldMultiAgent, n: int = 400, split: str = "train") -> np.ndarray:
    return family.sample_tasks(np.random.default_rng(0), n, split)


def test_homes_are_far_from_every_start() -> None:
    homes = np.unique(drawn(family_with()), axis=0)
    assert len(homes) == 63
    far = [np.abs(homes - start).max(1) for start in ((0, 0), (8, 8))]
    assert min(distance.min() for distance in far) == 3


def test_the_oracle_goes_straight_to_the_edge_of_the_view() -> None:
    homes = np.unique(drawn(family_with()), axis=0)
    assert returns_of(family_with(), homes, oracle=True).mean() == pytest.approx(4.179, abs=0.001)
    assert returns_of(family_with(), homes, oracle=False).mean() < 0.5
    alone = family_with(mode="ego")
    tasks = np.concatenate([homes, np.full((63, 1), float(Partner.idle))], 1)
    assert returns_of(alone, tasks, oracle=True).mean() > 4.0


def test_a_partner_that_is_held_out_is_in_the_tests_alone() -> None:
    family = family_with(mode="ego", held_out="wanderer")
    assert set(drawn(family)[:, 2]) == {Partner.scout, Partner.sweeper, Partner.idle}
    assert set(drawn(family, split="test")[:, 2]) == {Partner.wanderer}
    assert family.spec.split is Split.disjoint and family_with(mode="ego").spec.split is Split.shared
    with pytest.raises(OptionError, match="held_out=idle is a type of partner, and mode=joint has none"):
        family_with(held_out="idle")


def test_layouts_of_tests_are_new() -> None:
    family = family_with(obstacles=3)
    assert family.spec.split is Split.disjoint
    assert not set(drawn(family)[:, 2]) & set(drawn(family, split="test")[:, 2])


def test_rows_of_a_team_hold_all_observations_and_the_mean_of_all_rewards() -> None:
    team, alone = Played(family_with(), 1), Played(family_with(mode="ego"), 1)
    team.reset([0], [[4, 4]], [0])
    alone.reset([0], [[4, 4, Partner.idle]], [0])
    for action in (0, 1, 0, 1):
        rows, own = team.step([0], [[action, 4]]), alone.step([0], [action])
        assert isinstance(rows.obs, np.ndarray) and isinstance(own.obs, np.ndarray)
        np.testing.assert_array_equal(rows.obs[0, :FEATURES], own.obs[0])
        assert rows.obs[0, -2:].tolist() == [1, 1], "both live"
        assert rows.reward[0] == rows.info[0, 4:].mean() and own.reward[0] == own.info[0, 4]
    assert rows.info[0].tolist() == [4, 4, 1, 0, 0.5, -0.01]


def test_what_one_sees_the_other_is_told_unless_nobody_tells() -> None:
    for shared in (True, False):
        played = Played(family_with(shared_target=shared), 1)
        rows = played.reset([0], [[3, 3]], [0])
        assert isinstance(rows.obs, np.ndarray)
        other = rows.obs[0].reshape(-1)[FEATURES : 2 * FEATURES]
        assert other[-3:].tolist() == [0, 0, 0]
        played.step([0], [[0, 4]])
        played.step([0], [[1, 4]])
        told = [1.0, np.float32(3 / 8), np.float32(3 / 8)] if shared else [0.0, 0.0, 0.0]
        assert other[-3:].tolist() == told


def test_an_episode_ends_with_the_last_agent_and_the_dead_can_only_stay() -> None:
    played = Played(family_with(death_on_sight=True), 1)
    rows = played.reset([0], [[3, 3]], [0])
    for action in (0, 0, 1, 1):  # the first one walks to (2, 2), close to the target
        assert not rows.terminated[0] and isinstance(rows.obs, dict)
        assert rows.obs[MASK_KEY].all()
        rows = played.step([0], [[action, 4]])
    assert isinstance(rows.obs, dict)
    assert rows.info[0, 4] == -0.5 and not rows.terminated[0]
    assert rows.obs[MASK_KEY][0].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1, 1]
    assert not rows.obs["seats"][0, :FEATURES].any() and rows.obs["seats"][0, -2:].tolist() == [0, 1]
    for action in (2, 2, 2, 2, 3, 3, 3, 3):
        assert not rows.terminated[0]
        rows = played.step([0], [[4, action]])
        assert rows.info[0, 4] == 0.0, "a dead agent is paid nothing"
    assert rows.terminated[0] and rows.info[0, 5] == -0.5


def test_the_choices_of_a_dead_agent_reach_no_loss() -> None:
    """Its only choice has log-probability and entropy 0, whatever the network says, and gets no gradient."""
    actions = actions_of(family_with(death_on_sight=True).spec.action_space)
    mask = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1, 1, 1]], dtype=torch.int8)
    logits = torch.randn(1, 10, generator=torch.Generator().manual_seed(0)).requires_grad_()
    policy: Any = actions.distribution(logits, mask)
    (policy.log_prob(torch.tensor([[4, 2]])) + policy.entropy()).sum().backward()
    assert logits.grad is not None
    assert not logits.grad[0, :5].any() and logits.grad[0, 5:].all()
    assert policy.parts[0].log_prob(torch.tensor([4])).item() == policy.parts[0].entropy().item() == 0.0


def test_every_option_of_the_game_reaches_its_rules() -> None:
    options = {
        "size": 12,
        "agents": 3,
        "obstacles": 4,
        "target_speed": 0.3,
        "closeness_cost": 0.25,
        "together": True,
        "death_on_sight": True,
    }
    plain = family_with()
    for name, value in options.items():
        assert family_with(**{name: value}).rules == replace(plain.rules, **{name: value})


def test_deaths_in_a_trial_are_the_same_on_workers_and_threads() -> None:
    """Agents die in the middle of a cycle, and episodes end early, at different times in different slots."""
    family = family_with(death_on_sight=True, size=7, target_speed=0.8, max_episode_steps=40)
    with manage(family) as manager:
        streams = trial_streams(manager, 9)
    assert len({len(stream) for stream in streams}) > 2, "episodes end early"
    for backend, workers in (("process", 2), ("thread", 2)):
        with manage(family, backend, workers) as manager:
            assert trial_streams(manager, 9) == streams
