"""The stream of AgileRL's vectoriser, recorded, is that of our face with one import changed.

recorded/agilerl_simple_push.npz is what AgileRL 2.58.0 returned in an environment of its own (pettingzoo
1.26.1, mpe2 1.1.1, numpy 2.4.6), by its AsyncPettingZooVecEnv: four environments
of `simple_push_v3.parallel_env(max_cycles=25)`, `reset(seed=7)`, and the actions that stand in the file. Of
each agent's 25 observations the first is the reset's; with the last step AgileRL begins the next episode, and
the last observation is lost.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from envs.interop.pettingzoo import AsyncPettingZooVecEnv

RECORDED = Path(__file__).parent / "recorded" / "agilerl_simple_push.npz"


@pytest.mark.peers
@pytest.mark.parametrize("num_workers", [1, 2])
def test_the_first_episode_of_each_environment_is_agilerls(num_workers: int) -> None:
    push = pytest.importorskip("mpe2.simple_push_v3")
    recorded = np.load(RECORDED)
    env = AsyncPettingZooVecEnv(
        [lambda: push.parallel_env(max_cycles=25)] * 4, num_workers=num_workers, seeding="offset"
    )
    obs, _ = env.reset(seed=7)
    for time, actions in enumerate(recorded["actions"]):
        for agent in env.agents:
            expected = recorded[f"obs_{agent}"][time]
            # Other processors may give other last bits of a logarithm.
            np.testing.assert_allclose(obs[agent], expected, rtol=1e-5, atol=1e-6)
            assert (obs[agent].shape, obs[agent].dtype) == (expected.shape, expected.dtype)
        given = dict(zip(env.agents, actions, strict=True))
        obs, *others, _ = env.step(given)
        for name, values in zip(("rewards", "terminations", "truncations"), others, strict=True):
            for agent in env.agents:
                np.testing.assert_allclose(values[agent], recorded[f"{name}_{agent}"][time], rtol=1e-9)
                assert values[agent].dtype == recorded[f"{name}_{agent}"].dtype
    assert recorded["truncations_agent_0"][-1].all()
    env.close()
