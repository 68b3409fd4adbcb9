"""The scripts of simple_push, on what its agents see."""

from __future__ import annotations

import numpy as np
import pytest

from envs.meta.third_party.simple_push_scripts import DOWN, LEFT, RIGHT, STAY, UP, chaser, guard, walker

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("place", "step"),
    [((0.5, 0.2), RIGHT), ((-0.5, 0.2), LEFT), ((0.1, 0.2), UP), ((0, -1), DOWN), ((0, 0), STAY)],
)
def test_they_walk_along_the_longer_axis(place: tuple[float, float], step: int) -> None:
    agent = np.concatenate([[0, 0], place, np.zeros(15)])
    assert walker(agent, None, RNG) == step
    adversary = np.concatenate([np.zeros(6), place])
    assert chaser(adversary, None, RNG) == step


def test_the_guard_stands_on_the_landmark_that_the_agent_is_closer_to() -> None:
    near_the_first, near_the_second = [1.0, 0.5], [-1.0, 0.5]
    for agent, step in ((near_the_first, RIGHT), (near_the_second, LEFT)):
        obs = np.array([0, 0, 1.0, 0.1, -1.0, 0.1, *agent])
        assert guard(obs, None, RNG) == step


@pytest.mark.peers
def test_walking_is_better_than_drifting() -> None:
    push = pytest.importorskip("mpe2.simple_push_v3")

    def returned(steps: bool) -> float:
        env, total = push.parallel_env(max_cycles=25), 0.0
        for seed in range(20):
            obs, _ = env.reset(seed=seed)
            while env.agents:
                own = walker(obs["agent_0"], None, RNG) if steps else STAY
                actions = {"agent_0": own, "adversary_0": guard(obs["adversary_0"], None, RNG)}
                obs, rewards, *_ = env.step(actions)
                total += rewards["agent_0"]
        return total

    assert returned(True) > returned(False) / 2
