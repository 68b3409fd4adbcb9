"""A peer on trials: what it sees, what is an env step, how it is judged, and (with SB3) a short run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from benchmarks.parts.curves import point_of
from benchmarks.parts.learning.recipes import RECIPES
from benchmarks.parts.learning.sb3_trials import (
    PeerActor,
    TrialTask,
    inputs_of,
    numbers_of,
    played_on_trials,
    trials_env,
)
from configs.compose import load
from envs.meta.make_env import make_family, make_parallel_env
from envs.parallel_env_manager import ParallelEnvManager
from policies.evaluation.playing import evaluate_list

H, K, SLOTS = 5, 2, 3
WORDS = ("env=PointRobot", "train.n_env_steps_total=400", "evaluation.every=200", "env.num_eval_tasks=3")


def a_manager() -> ParallelEnvManager:
    return make_parallel_env(
        "PointRobot", K, 1, seed=0, num_envs=SLOTS, horizon=H, reward="dense", start="fixed"
    )


class Drifting:
    """Always moves to the right; its state counts the calls, and it notes the starts that it was told of."""

    def __init__(self) -> None:
        self.starts, self.states = list[NDArray[np.bool_]](), list[int | None]()

    def predict(
        self, obs: NDArray[Any], state: Any, episode_start: NDArray[np.bool_], deterministic: bool
    ) -> Any:
        assert deterministic
        self.starts.append(episode_start.copy())
        self.states.append(state)
        return np.tile(np.array([1.0, 0.0], np.float32), (len(obs), 1)), (state or 0) + 1


def test_a_peer_sees_the_observation_the_previous_action_and_the_reward() -> None:
    with a_manager() as manager:
        before = inputs_of(manager.reset())
        assert before.dtype == np.float32 and not before[:, -3:].any()
        action = np.tile(np.array([0.5, -0.25], np.float32), (SLOTS, 1))
        after = inputs_of(manager.step(action))
        assert isinstance(manager.rows.obs, np.ndarray)
        assert np.array_equal(after[:, :-3], manager.rows.obs)
        assert np.array_equal(after[:, -3:-1], action)
        assert np.array_equal(after[:, -1], manager.rows.reward.astype(np.float32)) and after[:, -1].all()


def test_it_is_judged_as_our_agents_are_and_told_of_starts_of_trials_alone() -> None:
    model = Drifting()
    with a_manager() as manager:
        tasks = make_family("PointRobot").sample_tasks(np.random.default_rng(0), SLOTS, "test")
        found = evaluate_list(manager, PeerActor(model), tasks, seed=0).returns
        starts = np.stack(model.starts)
        assert starts[0].all() and not starts[1:].any() and len(starts) == K * (H + 1)
        assert model.states == [None, *range(1, K * (H + 1))]

        # The same trials by hand.
        manager.reset(list(tasks), [0] * SLOTS)
        total = np.zeros(SLOTS)
        while manager.running.any():
            total += manager.step(np.tile(np.array([1.0, 0.0], np.float32), (SLOTS, 1))).reward
    assert found.sum(1) == pytest.approx(total)


@pytest.mark.peers
def test_an_action_at_the_end_of_an_episode_is_no_env_step_and_a_trial_ends_with_its_own_last_row() -> None:
    pytest.importorskip("stable_baselines3")
    with a_manager() as manager:
        env, actions = trials_env(manager, 0), np.tile(np.array([0.5, 0.0], np.float32), (SLOTS, 1))
        obs, infos, rewards = env.reset(), list[dict[str, Any]](), np.zeros(SLOTS)
        shape = obs.shape
        for row in range(1, K * (H + 1)):
            obs, rewards, dones, infos = env.step(actions)
            assert env.env_steps == SLOTS * (row - row // (H + 1))
            assert dones.all() == dones.any() == (row == K * (H + 1) - 1)
        # The next trial has begun in the same step: nothing was done in it yet.
        assert obs.shape == shape and not obs[:, -3:].any()
        for slot, info in enumerate(infos):
            last = info["terminal_observation"]
            assert last.shape == obs[slot].shape and last[-1] == rewards[slot]
            assert np.array_equal(last[-3:-1], actions[slot])


@pytest.mark.peers
def test_a_peer_writes_a_curve_by_episode(tmp_path: Path) -> None:
    pytest.importorskip("sb3_contrib")
    words = (*WORDS, "num_slots=2", "algorithm=PPO", "memory=LSTM", "agent.normalise_obs=true")
    played_on_trials("sb3-recurrent-ppo", words, 0, tmp_path / "metrics.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    points = [point for line in lines if (point := point_of(line)) is not None]
    assert points[0].env_steps == 200 and points[-1].env_steps >= 390
    assert all(len(point.returns) == 2 for point in points)


def test_a_peer_has_the_numbers_of_the_recipe() -> None:
    config = load(["experiment=half_cheetah_vel_ppo", "memory.hidden_size=96"])
    numbers = numbers_of(config, 64)
    assert numbers["n_steps"] == 400 and numbers["batch_size"] == 3200 and numbers["n_epochs"] == 3
    assert numbers["policy_kwargs"] == {
        "lstm_hidden_size": 96,
        "net_arch": [128, 128],
        "log_std_init": pytest.approx(np.log(0.5)),
        "activation_fn": torch.nn.Tanh,
    }
    with pytest.raises(SystemExit, match="PPO with an LSTM"):
        numbers_of(load(["env=HalfCheetahVel", "algorithm=SAC"]), 64)


def test_a_peer_has_no_list_of_training_tasks() -> None:
    with pytest.raises(SystemExit, match="a new task in each trial"):
        played_on_trials("sb3-recurrent-ppo", ("env=Wind",), 0, Path("unused"))


def test_the_recipes_of_two_robots_have_a_peer() -> None:
    for name in ("ant_dir_ppo", "half_cheetah_vel_ppo"):
        recipe = RECIPES[name]
        assert isinstance(recipe.task, TrialTask) and recipe.task.words == recipe.words
        command = recipe.task.command("sb3-recurrent-ppo", 3, Path("folder"))
        assert command[-1] == recipe.words[-1] and command[command.index("--seed") + 1] == "3"


def test_a_peer_without_a_memory_is_refused_before_anything_is_played() -> None:
    command = [sys.executable, "-m", "benchmarks.learn", "--recipe", "ant_dir_ppo", "--peer", "sb3-sac"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "--peer=sb3-sac plays no trials; sb3-recurrent-ppo does." in refused.stderr
