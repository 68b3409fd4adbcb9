"""Mixtures of services: seats, servers, determinism and waiting are those of every part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from envs.backends.base import OnFault
from envs.base import TaskFamily
from envs.meta.make_env import make_family, recorded_spec
from tests.envs.meta.played import Played
from tests.envs.remote.fake_server import FakeServer, Game
from tests.envs.remote.played_service import OPTIONS, SCRIPTED, manager_of
from utils.options import OptionError


@pytest.fixture
def servers() -> Iterator[tuple[FakeServer, FakeServer]]:
    with FakeServer() as one, FakeServer() as other:
        yield one, other


class Noisy(Game):
    """Nothing of it repeats itself."""

    def observed(self, reward: float | None) -> dict[str, Any]:
        found = super().observed(reward)
        found["observation"]["numbers"][3] = float(np.random.default_rng().random())
        return found


def part_of(*servers: FakeServer, **options: Any) -> dict[str, Any]:
    return {"family": "OpenEnv", "urls": [server.url for server in servers], **(OPTIONS | options)}


def mixture_of(*servers: FakeServer, **options: Any) -> TaskFamily:
    """A part on each server, and one that computes."""
    names = ("one", "two", "three")
    parts = {name: part_of(server, **options) for name, server in zip(names, servers, strict=False)}
    return make_family("Mixture", parts=parts | {"grid": "GridNavi"})


def played_rows(family: TaskFamily, backend: str) -> list[Any]:
    """The rows of three slots that play a part each."""
    seen: list[Any] = []
    with manager_of(family, 3, backend) as manager:
        rows = manager.reset(tasks=[[0, 1, 0], [1, 2, 0], [2, 3, 3]], seeds=[4, 5, 6])
        for action in SCRIPTED[:8].tolist():
            shown = {key: array.tolist() for key, array in rows.obs.items()}
            seen.append((shown, rows.reward.tolist(), rows.terminated.tolist()))
            rows = manager.step(np.full(3, action))
    return seen


def tasks_told(server: FakeServer) -> set[float]:
    return {message["data"]["task"] for _, message in server.log if message["type"] == "reset"}


# -- slots ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["thread", "asyncio", "process"])
def test_every_backend_gives_the_rows_of_serial(servers: tuple[FakeServer, FakeServer], backend: str) -> None:
    assert played_rows(mixture_of(*servers), backend) == played_rows(mixture_of(*servers), "serial")


def test_a_part_shows_what_its_own_family_shows(servers: tuple[FakeServer, FakeServer]) -> None:
    family = mixture_of(*servers)
    mixed, alone = Played(family, 2), Played(make_family(**_renamed(part_of(servers[1]))), 2)
    mixed.reset([0, 1], [[0, 1, 0], [1, 2, 0]], [5, 6])
    alone.reset([1], [[2]], [6])
    for action in SCRIPTED[:4].tolist():
        mixed.step([0, 1], [action, action])
        alone.step([1], [action])
        assert isinstance(mixed.rows.obs, dict) and isinstance(alone.rows.obs, dict)
        assert mixed.rows.obs["observation"][1].tolist() == alone.rows.obs["observation"][1].tolist()
        assert mixed.rows.obs["action_mask"][1, :4].tolist() == alone.rows.obs["action_mask"][1].tolist()
        assert mixed.rows.reward[1] == alone.rows.reward[1]
    mixed.shard.close()
    alone.shard.close()


def _renamed(options: dict[str, Any]) -> dict[str, Any]:
    return {"env": options.pop("family")} | options


def test_sessions_open_when_first_played_and_close_with_the_shard(
    servers: tuple[FakeServer, FakeServer],
) -> None:
    one, other = servers
    played = Played(mixture_of(one, other), 2)
    played.reset([0, 1], [[0, 1, 0], [2, 3, 3]], [1, 2])
    assert (one.sessions, other.sessions) == (1, 0)
    played.reset([0], [[1, 1, 0]], [3])
    played.reset([0], [[0, 2, 0]], [4])
    assert (one.sessions, other.sessions) == (1, 1), "a slot keeps its session while it plays another part"
    played.shard.close()
    assert [message["type"] for _, message in one.log][-1] == "close"
    assert [message["type"] for _, message in other.log][-1] == "close"


@pytest.mark.parametrize("backend", ["serial", "asyncio", "process"])
def test_slot_i_of_a_part_is_played_on_server_i_mod_k(
    servers: tuple[FakeServer, FakeServer], backend: str
) -> None:
    one, other = servers
    family = make_family("Mixture", parts={"both": part_of(one, other), "grid": "GridNavi"})
    with manager_of(family, 4, backend) as manager:
        one.log.clear()
        other.log.clear()
        manager.reset(tasks=[[0, 0, 0], [0, 1, 0], [0, 2, 0], [1, 3, 3]])
    assert (tasks_told(one), tasks_told(other)) == ({0, 2}, {1})


@pytest.mark.parametrize("backend", ["serial", "asyncio"])
def test_slots_wait_for_different_parts_at_the_same_time(backend: str) -> None:
    """Each server answers a step only when the other one has been asked too."""
    asked: list[set[int]] = [set(), set()]

    def plan_of(server: int) -> Any:
        def plan(session: int, message: dict[str, Any], index: int) -> float | None:
            if has_begun and message["type"] == "step":
                asked[server].add(session)
                return 1.5
            return None

        return plan

    class Waits(Game):
        def step(self, data: dict[str, Any]) -> dict[str, Any]:
            both.append(bool(asked[0]) and bool(asked[1]))
            return super().step(data)

    has_begun: list[bool] = []
    both: list[bool] = []
    with (
        FakeServer(plan_of(0), Waits) as one,
        FakeServer(plan_of(1), Waits) as other,
        manager_of(mixture_of(one, other), 2, backend) as manager,
    ):
        both.clear()  # the probe has stepped, too
        has_begun.append(True)
        manager.reset(tasks=[[0, 1, 0], [1, 2, 0]])
        manager.step(np.full(2, 3))
    assert both == [True, True]


# -- before a run --------------------------------------------------------------------------------------------


def test_too_few_seats_are_one_sentence_that_names_the_part() -> None:
    with FakeServer() as one, FakeServer(seats=3) as other:
        mixture_of(one, other).prepare(3)
        with pytest.raises(OptionError) as caught:
            mixture_of(one, other).prepare(8)
    assert str(caught.value) == (
        "env.parts.two: The server has 3 seats, and this run needs 8 on each, to train and to evaluate: "
        "start it with max_concurrent_envs=12, or set a smaller num_slots."
    )


def test_parts_on_one_server_take_seats_beside_each_other() -> None:
    with FakeServer(seats=7) as server:
        with pytest.raises(OptionError, match="has 7 seats, and this run needs 8"):
            mixture_of(server, server).prepare(4)
        mixture_of(server, server).prepare(3)


def test_one_noisy_part_makes_the_mixture_give_up_trials(caplog: pytest.LogCaptureFixture) -> None:
    with FakeServer() as one, FakeServer(make=Noisy) as other:
        with manager_of(mixture_of(one, one), 1) as manager:
            assert manager.spec.deterministic and manager._config.on_fault is OnFault.restart
        with manager_of(mixture_of(one, other), 1) as manager:
            assert not manager.spec.deterministic and manager._config.on_fault is OnFault.drop
    assert f"127.0.0.1:{other.port} is not deterministic" in caplog.text


def test_a_part_without_a_server_is_one_sentence_and_yet_described() -> None:
    options = {"observation": ["board:42"], "actions": ["column:7"], "mask": "legal"}
    parts = {"far": {"family": "OpenEnv", **options}, "grid": {"family": "GridNavi"}}
    with pytest.raises(OptionError, match=r"^env\.parts\.far: OpenEnv needs a server: urls="):
        make_family("Mixture", parts=parts)
    # What was served for a run is not served for its agent, which can be loaded all the same.
    served = parts | {"far": {"family": "OpenEnv", "serve": "module:app", **options}}
    assert recorded_spec({"family": "Mixture", "parts": parts}).obs_space == (
        make_family("Mixture", parts=served).spec.obs_space
    )


def test_waits_of_every_part_are_known_by_its_name() -> None:
    far = {"family": "OpenEnv", "urls": ["http://127.0.0.1:9"]} | OPTIONS
    config = make_family("Mixture", parts={"far": far, "grid": "GridNavi"}).config
    assert config.waits() == {"parts.far.message_timeout_s": 50.0, "parts.far.patience_s": 20.0}


def test_what_sessions_cost_is_measured_for_each_server(servers: tuple[FakeServer, FakeServer]) -> None:
    family = mixture_of(*servers)
    played_rows(family, "asyncio")
    measured = family.measured()
    for server in servers:
        assert measured[f"openenv/127.0.0.1:{server.port}/messages"] > 5
