"""Peers: the command that plays one, what its evaluation means, and (where SB3 is installed) a short run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from benchmarks.parts.curves import point_of
from benchmarks.parts.learning.recipes import RECIPES
from benchmarks.parts.learning.sb3_runs import PEERS, Task, mean_return, played_by_peer
from configs.compose import load
from envs.meta.third_party.gymnasium_family import GymnasiumConfig


class Pusher:
    """Always pushes the cart to the left, and notes when it was told that an episode starts."""

    def __init__(self) -> None:
        self.starts = list[bool]()

    def predict(self, obs: Any, state: Any, episode_start: Any, deterministic: bool) -> tuple[int, None]:
        assert deterministic
        self.starts.append(bool(episode_start[0]))
        return 0, None


def test_a_return_is_the_mean_of_whole_episodes_and_memories_are_told_of_their_starts() -> None:
    pusher = Pusher()
    found = mean_return(pusher, gym.make("CartPole-v1"), 3)
    assert 8 <= found <= 11 and sum(pusher.starts) == 3 and len(pusher.starts) == round(3 * found)


def test_a_peer_has_the_environment_the_env_steps_and_the_evaluations_of_the_recipe() -> None:
    for recipe in RECIPES.values():
        if not isinstance(recipe.task, Task):
            continue
        config, task = load(recipe.words), recipe.task
        env = config.env
        assert isinstance(env, GymnasiumConfig)
        assert (env.id, tuple(env.wrappers), env.num_eval_tasks) == (
            task.env_id,
            task.wrappers,
            task.episodes,
        )
        assert (config.train.n_env_steps_total, config.evaluation.every) == (task.env_steps, task.every)
        command = task.command("sb3-ppo", 3, Path("folder"))
        assert command[command.index("--seed") + 1] == "3" and task.env_id in command


@pytest.mark.peers
@pytest.mark.parametrize("peer", sorted(PEERS))
def test_a_peer_writes_a_curve(peer: str, tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    pytest.importorskip("sb3_contrib")
    played_by_peer(peer, Task("Pendulum-v1", 300, 150, episodes=2), 0, tmp_path / "metrics.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    points = [point for line in lines if (point := point_of(line)) is not None]
    assert points[0].env_steps == 150 and points[-1].env_steps >= 300
