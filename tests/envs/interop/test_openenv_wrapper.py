"""A client of a service is a Gymnasium environment that passes Gymnasium's own check."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from envs.interop.openenv_wrapper import OpenEnvGymnasiumWrapper
from envs.remote.rollouts import HttpEnvClient, ParallelRolloutCollector
from tests.envs.remote.fake_server import FakeServer
from tests.envs.remote.rollouts.clients import Awaited, Plain
from utils.options import OptionError

CHOICES = [{"column": 0}, {"column": 2}]


def wrapped(client: Any, **options: Any) -> OpenEnvGymnasiumWrapper:
    merged: dict[str, Any] = {"discrete_actions": CHOICES} | options
    return OpenEnvGymnasiumWrapper(client, action_mode="discrete", **merged)


@pytest.mark.filterwarnings("ignore:.*minimum value is -infinity", "ignore:.*maximum value is infinity")
@pytest.mark.filterwarnings("ignore:.*not have bounds of")
@pytest.mark.parametrize("mode", ["text", "array", "dict"])
def test_gymnasiums_check_passes(mode: str) -> None:
    with FakeServer() as server:
        env = wrapped(HttpEnvClient(server.url), observation_mode=mode)
        check_env(env, skip_render_check=True)
        env.close()
        assert not server.open


def test_observations_hold_what_the_service_told() -> None:
    array = wrapped(Plain(), observation_mode="array", fields=["numbers"])
    obs, _ = array.reset(seed=7, options={"task": 2.0})
    np.testing.assert_array_equal(obs, [7, 2, 0, 0])
    obs, reward, terminated, truncated, _ = array.step(1)
    np.testing.assert_array_equal(obs, [7, 2, 1, 2])
    assert (reward, terminated, truncated) == (2.0, False, False)

    text = wrapped(Plain(), observation_mode="text", text_length=4)
    np.testing.assert_array_equal(
        text.reset(seed=1)[0], np.array([ord(one) for one in "step"], np.float32) / 255
    )
    parts = wrapped(Plain(), observation_mode="dict")
    assert isinstance(parts.observation_space, spaces.Dict)
    assert set(parts.observation_space.spaces) == {"numbers", "text", "legal_actions"}
    assert parts.reset(seed=7)[0]["numbers"][0] == 7


def test_an_episode_is_cut_at_its_horizon_and_ends_by_itself() -> None:
    def ends(length: int, horizon: int) -> list[tuple[bool, bool]]:
        env = wrapped(Plain(length), max_episode_steps=horizon)
        env.reset(seed=1)
        return [env.step(0)[2:4] for _ in range(2)]

    assert ends(2, 9) == [(False, False), (True, False)]
    assert ends(9, 2) == [(False, False), (False, True)]
    assert ends(2, 2) == [(False, False), (True, False)]


def test_a_reset_without_a_seed_draws_one() -> None:
    client = Plain()
    env = wrapped(client)
    env.reset(seed=1)
    env.reset()
    env.reset()
    env.reset(seed=1)
    env.reset()
    drawn = [told["seed"] for told in client.resets[1:]]
    assert len({*drawn}) == 3 and drawn[:2] == drawn[3:], "they are a function of the first"


def test_actions_come_from_the_schema_or_are_listed() -> None:
    schema = {
        "action": {
            "properties": {
                "column": {"type": "integer", "minimum": 0, "exclusiveMaximum": 4},
                "say": {"type": "string"},
            }
        }
    }
    with FakeServer(schema=schema) as server:
        by_schema = wrapped(HttpEnvClient(server.url), discrete_actions=None)
        assert by_schema.action_space == spaces.Discrete(4)
        by_schema.reset(seed=1)
        by_schema.step(3)
        texts = wrapped(HttpEnvClient(server.url), discrete_actions=["up", "down"])
        texts.reset(seed=1)
        texts.step(1)
        written = OpenEnvGymnasiumWrapper({"env_url": server.url, "observation_mode": "array"})
        written.reset(seed=1)
        written.step("hello")
        assert [data for _, data in server.steps()] == [{"column": 3}, {"say": "down"}, {"say": "hello"}]
        for env in (by_schema, texts, written):
            env.close()


def test_it_is_a_client_itself() -> None:
    """So collectors play it, as any environment of Gymnasium."""
    with ParallelRolloutCollector() as collector:
        (one,), _ = collector.collect_with_stats([wrapped(Plain(2))], lambda observation, done: 1, seeds=[3])
    assert (one.episode_length, one.rewards) == (2, [2.0, 4.0])


@pytest.mark.parametrize(
    ("client", "options", "said"),
    [
        (Plain(), {"observation_mode": "txt"}, "observation_mode='txt' is none. Did you mean 'text'"),
        (
            Plain(),
            {"observation_mode": "array", "fields": ["nubmers"]},
            "no field 'nubmers'. Did you mean 'numb",
        ),
        (Plain(), {"observation_mode": "array", "fields": ["text"]}, "has no numbers in"),
        (
            Plain(base_url=""),
            {"discrete_actions": None},
            r"no bounded field.*discrete_actions=\[\.\.\.\] lists",
        ),
        (Plain(), {"discrete_actions": []}, "one action at least"),
        (Plain(base_url=""), {"discrete_actions": ["up"]}, "give discrete_actions="),
        ({"url": "http://127.0.0.1:1"}, {}, "env_url is missing"),
    ],
)
def test_what_cannot_be_meant_is_a_sentence(client: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        wrapped(client, **options)


def test_of_several_bounded_fields_none_is_taken() -> None:
    bounded = {"type": "integer", "minimum": 0, "maximum": 3}
    with FakeServer(schema={"action": {"properties": {"row": bounded, "column": bounded}}}) as server:
        client = HttpEnvClient(server.url)
        with pytest.raises(
            OptionError, match=r"the bounded fields \['column', 'row'\], and not one: say what"
        ):
            wrapped(client, discrete_actions=None)
        client.close()


def test_a_client_of_coroutines_alone_is_refused() -> None:
    with pytest.raises(OptionError, match="give one that blocks"):
        wrapped(Awaited())
