"""Mixture: shares of the parts, each part's H, what all parts know, and returns by part in a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envs.base import Split
from envs.meta.make_env import make_family, make_parallel_env
from policies.learner import Learner
from tests.runs import tiny_config
from utils.logger import read_metrics
from utils.options import OptionError

TWO: dict[str, Any] = {
    "short": {"family": "GridNavi", "max_episode_steps": 3, "weight": 3},
    "long": {"family": "GridNavi", "size": 7, "max_episode_steps": 8},
}


def test_each_part_has_its_share_of_tasks_drawn_together() -> None:
    family = make_family("Mixture", parts=TWO)
    tasks = family.sample_tasks(np.random.default_rng(0), 20, "train")
    assert np.bincount(family.spec.parts_of(tasks)).tolist() == [15, 5]
    assert tasks[:, 0].tolist() != sorted(tasks[:, 0]), "the parts are shuffled"


def test_single_tasks_follow_the_weights() -> None:
    family, rng = make_family("Mixture", parts=TWO), np.random.default_rng(0)
    drawn = [family.sample_tasks(rng, 1, "train")[0, 0] for _ in range(1000)]
    assert 0.2 < np.mean(drawn) < 0.3


def test_a_task_of_no_part_is_refused() -> None:
    family = make_family("Mixture", parts=TWO)
    for wrong in (2.0, -1.0, 0.5):
        with pytest.raises(ValueError, match=f"one of 0 to 1, and not with {wrong:g}"):
            family.horizons(np.array([[wrong, 0, 0]]))


@pytest.mark.parametrize("given, lengths", [(0, [3, 8]), (5, [3, 5]), (99, [3, 8])])
def test_each_part_keeps_its_horizon(given: int, lengths: list[int]) -> None:
    with make_parallel_env("Mixture", 2, 1, parts=TWO, max_episode_steps=given, num_envs=2) as manager:
        assert manager.max_episode_steps == max(lengths)
        tasks = np.array([[0.0, 2, 2], [1.0, 2, 2]])
        manager.reset(tasks, [0, 1])
        ends: list[list[int]] = [[], []]
        for step in range(1, 2 * max(lengths) + 2):
            manager.step(np.zeros(2, np.int64))
            for slot in range(2):
                if manager.rows.valid[slot] and manager.rows.truncated[slot]:
                    ends[slot].append(step)
        assert ends == [[length, 2 * length + 1] for length in lengths]


def test_the_horizon_of_a_slot_is_that_of_its_present_trial() -> None:
    with make_parallel_env("Mixture", 1, 1, parts=TWO, num_envs=1) as manager:
        for part, length in ((1.0, 8), (0.0, 3), (1.0, 8)):
            manager.reset([[part, 2, 2]], [0])
            steps = 0
            while manager.running.any():
                manager.step(np.zeros(1, np.int64))
                steps += 1
            assert steps == length


def test_success_is_known_where_all_parts_know_it() -> None:
    assert make_family("Mixture", parts=["GridNavi", "TMazePassive"]).spec.success == "success"
    assert make_family("Mixture", parts=["GridNavi", "CyberDefence"]).spec.success is None


def test_it_is_held_out_only_where_all_parts_are() -> None:
    assert make_family("Mixture", parts=["GridNavi", "DarkKeyDoor"]).spec.split is Split.shared
    assert make_family("Mixture", parts=["DarkKeyDoor", "MetaFrozenLake"]).spec.split is Split.disjoint


def test_it_has_an_oracle_where_all_parts_have_one() -> None:
    assert make_family("Mixture", parts=["GridNavi", "TMazePassive"]).has_oracle
    cart_pole = {"family": "Gymnasium", "id": "CartPole-v1"}
    assert not make_family("Mixture", parts={"grid": "GridNavi", "pole": cart_pole}).has_oracle


def test_discrete_and_continuous_parts_are_refused_in_one_sentence() -> None:
    with pytest.raises(OptionError, match=r"^One agent cannot choose .*GridNavi Discrete.*Wind Box.*\.$"):
        make_family("Mixture", parts=["GridNavi", "Wind"])


def test_a_family_resolves_its_config_once() -> None:
    config = make_family("Mixture", parts=["GridNavi"]).config
    again = make_family(config).config
    assert again == config and config.max_episode_steps == 15


def test_a_run_reports_each_part_by_episode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tiny_config("Mixture", env={"parts": TWO, "max_episode_steps": 0, "num_eval_tasks": 8})
    with Learner(config, tmp_path / "run") as learner:
        learner.train()
    last = read_metrics(tmp_path / "run" / "metrics.jsonl")[-1]
    for part, share in (("short", 6), ("long", 2)):
        for what in ("return", "success"):
            assert f"train/{what}/{part}_episode_2" in last or part == "long"
            assert f"eval/in_distribution/{what}/{part}_episode_2" in last
        tasks = learner.tasks.evaluation["in_distribution"]
        mine = np.flatnonzero(tasks[:, 0] == (part == "long"))
        assert len(mine) == share
        returns = np.array(last["eval/in_distribution/returns"])[mine, 1]
        assert last[f"eval/in_distribution/return/{part}_episode_2"] == pytest.approx(returns.mean())
    shown = capsys.readouterr().out
    assert "in_distribution/short by episode" in shown  # a line while it trains
    assert "\n  in_distribution/long" in shown  # the table at the end
