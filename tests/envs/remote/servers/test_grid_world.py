"""The grid world on a real server: texts as bytes, words as actions, the goal as the task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from envs.meta.make_env import make_env
from envs.remote.serving import ServedApp
from tests.envs.remote.servers.real import serving

pytestmark = pytest.mark.peers
pytest.importorskip("openenv")


@pytest.fixture(scope="module")
def server() -> Iterator[ServedApp]:
    with serving("grid_world") as made:
        yield made


@pytest.fixture(autouse=True)
def a_server_that_runs(server: ServedApp) -> None:
    """Made before what a test leaves behind is looked at."""


def test_words_lead_to_the_goal(server: ServedApp) -> None:
    options: dict[str, Any] = {
        "urls": [server.url],
        "text": ["text:32"],
        "action_kind": "text",
        "actions": ["message"],
        "texts": ["north", "south", "east", "west"],
        "tasks": ["goal_x=0|1|2|3|4", "goal_y=0|1|2|3|4"],
        "max_episode_steps": 40,
    }
    with make_env("OpenEnv", episodes_per_task=1, **options) as env:
        obs, _ = env.reset(seed=3, options={"task": np.array([4.0, 4.0])})
        done, reward = False, 0.0
        while not done:
            text = bytes((np.asarray(obs)[:32] * 255).round().astype(np.uint8)).rstrip(b"\0").decode()
            assert text.startswith("You are in")
            x, _ = (int(word) for word in text.rstrip(".").split()[-2:])
            obs, reward, terminated, truncated, _ = env.step(2 if x < 4 else 0)
            done = terminated or truncated
        assert reward == 1.0
