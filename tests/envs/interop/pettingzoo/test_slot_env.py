"""SlotEnv: vectors, pictures and masks as agents read them, and nothing after the end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from envs.interop.pettingzoo import EgoWrapper, FlattenMultiAgentWrapper
from envs.interop.pettingzoo.slot_env import SlotEnv
from tests.envs.interop.pettingzoo.random_games import RandomAtOnce
from tests.envs.interop.pettingzoo.rounds import Rounds


def test_an_agents_mask_stands_beside_its_vector() -> None:
    env = SlotEnv(EgoWrapper(Rounds(), "b"), masked=True)
    obs, _ = env.reset(seed=0)
    assert env.observation_space.contains(obs)
    assert obs["observation"].shape == (1,) and obs["action_mask"].tolist() == [1, 0, 1, 1]


def test_a_picture_stays_a_picture() -> None:
    class Pictures(Rounds):
        def observation_space(self, agent: str) -> spaces.Space[Any]:
            return spaces.Box(0, 255, (4, 5, 3), np.uint8)

        def _obs(self) -> dict[str, Any]:
            return {name: np.full((4, 5, 3), self.time, np.uint8) for name in self.agents}

    env = SlotEnv(EgoWrapper(Pictures(), "a"), masked=False)
    assert env.reset(seed=0)[0].shape == (4, 5, 3) == env.observation_space.shape


def test_each_agents_reward_is_in_the_info_and_the_end_stays() -> None:
    env = SlotEnv(FlattenMultiAgentWrapper(RandomAtOnce(limit=1)), masked=True)
    env.reset(seed=0)
    obs, reward, _, truncated, info = env.step(np.zeros(3, np.int64))
    assert truncated and 3 * reward == pytest.approx(sum(info.values()))
    again, reward, _, truncated, info = env.step(np.ones(3, np.int64))
    assert again is obs and truncated and (reward, info) == (0.0, {})
    assert env.reset(seed=0)[0]["observation"][0] == 0.0, "a reset begins anew"
