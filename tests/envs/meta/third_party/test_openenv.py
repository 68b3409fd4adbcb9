"""The family OpenEnv against a fake server: the promises of a family, and what is asked before a run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import cloudpickle
import numpy as np
import pytest
from gymnasium import spaces

from envs.backends.base import OnFault
from envs.base import Split
from envs.meta.make_env import make_env, make_family
from tests.envs.meta.played import Played, play_alone
from tests.envs.remote.fake_server import FakeServer, Game
from tests.envs.remote.played_service import OPTIONS, SCRIPTED, family_of, manager_of, rows_of
from tests.envs.remote.task_api import TaskApiServer
from utils.options import OptionError


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as made:
        yield made


def test_what_it_reports_follows_from_the_options(server: FakeServer) -> None:
    spec = family_of(server).spec
    assert isinstance(spec.obs_space, spaces.Dict)
    assert spec.obs_space["observation"].shape == (14,) and spec.obs_space["action_mask"].shape == (4,)
    assert spec.action_space == spaces.Discrete(4) and spec.task_dim == 1 and spec.split is Split.shared
    assert server.sessions == 0, "a family is cheap to build"


def test_an_episode_is_that_of_the_server(server: FakeServer) -> None:
    played = Played(family_of(server), 2)
    rows = played.reset([0, 1], [[0.0], [2.0]], [5, 6])
    vectors = rows.obs["observation"]  # pyright: ignore[reportCallIssue, reportArgumentType]
    assert vectors[:, :4].tolist() == [[5, 0, 0, 0], [6, 2, 0, 0]]
    assert bytes((vectors[1, 4:] * 255).round().astype(np.uint8)) == b"step 0 of "
    masks = rows.obs["action_mask"]  # pyright: ignore[reportCallIssue, reportArgumentType]
    assert masks.tolist() == [[0, 1, 1, 1]] * 2
    for t in range(1, 6):
        played.step([1], [3])
        assert (rows.reward[1], rows.terminated[1], rows.truncated[1]) == (3.0 * t, t == 5, False)
    assert vectors[0, 2] == 0.0, "the other slot was left alone"
    played.shard.close()


def test_the_same_task_and_seed_give_the_same_episode_in_any_slot(server: FakeServer) -> None:
    family = family_of(server)
    actions = SCRIPTED[:4]
    alone = play_alone(family, np.array([1.0]), 9, actions)
    copy = cloudpickle.loads(cloudpickle.dumps(family))
    assert play_alone(copy, np.array([1.0]), 9, actions) == alone
    played = Played(family, 3)
    played.reset([0, 1, 2], [[0.0], [2.0], [1.0]], [1, 2, 9])
    assert played.bits(2) == alone[0]
    for action, bits in zip(actions, alone[1:], strict=True):
        played.step([0, 2], [0, action])
        assert played.bits(2) == bits
    played.shard.close()


@pytest.mark.parametrize("backend", ["thread", "asyncio", "process"])
def test_rows_are_those_of_serial_on_every_backend(server: FakeServer, backend: str) -> None:
    assert rows_of(family_of(server), backend) == rows_of(family_of(server))


@pytest.mark.parametrize("backend", ["serial", "thread", "asyncio", "process"])
def test_a_server_that_restarts_in_the_middle_of_a_trial_changes_no_row(
    server: FakeServer, backend: str
) -> None:
    undisturbed = rows_of(family_of(server))
    restarts = lambda t: server.restart() if t in (2, 6) else None  # noqa: E731
    assert rows_of(family_of(server), backend, restarts) == undisturbed


# -- what is asked before a run ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"urls": ["localhost:1"]}, "'localhost:1' is no address of a server"),
        ({"serve": "a:b"}, "give one of them"),
        ({"observation": [], "text": []}, "observation= has to name the fields that are seen"),
        ({"observation": ["numbers:many"]}, "'numbers:many' should be name:size"),
        ({"actions": []}, "actions= has to name the fields"),
        ({"actions": ["column:4", "row:2"]}, "action_kind=discrete has one field, not 2"),
        ({"texts": ["a"]}, "texts= and action_kind=text belong together"),
        ({"action_kind": "numbers", "actions": ["force:1"]}, "these actions are no choices"),
        ({"read": "nowhere:vector", "read_size": 3}, "leave observation= and text= out"),
        ({"tasks": ["task"]}, "'task' should be name=value"),
        ({"tasks": ["task=3..1"]}, "'task=3..1' should be name=low..high"),
        ({"test_tasks": ["other=1"]}, "'other' should be an argument of tasks="),
        ({"arguments": ["task=1"]}, "'task' in another way already"),
        ({"task_by_seed": True}, "all say what a task is: give one"),
        ({"headers_from_env": ["Authorization:NO_SUCH_VARIABLE"]}, "NO_SUCH_VARIABLE is not set"),
    ],
)
def test_contradictions_are_refused_without_a_server(options: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says.replace("'", ".").replace("(", ".")):
        make_family("OpenEnv", **({"urls": ["http://127.0.0.1:9"]} | OPTIONS | options))


def test_without_a_server_there_is_one_sentence() -> None:
    with pytest.raises(OptionError, match=r"OpenEnv needs a server: urls=\[http"):
        make_env("OpenEnv")


class Noisy(Game):
    """Nothing of it repeats itself."""

    def observed(self, reward: float | None) -> dict[str, Any]:
        found = super().observed(reward)
        found["observation"]["numbers"][3] = float(np.random.default_rng().random())
        return found


def test_what_is_not_deterministic_is_found_out_and_gives_up_trials(caplog: pytest.LogCaptureFixture) -> None:
    with FakeServer(make=Noisy) as server:
        family = family_of(server)
        assert family.spec.deterministic
        with manager_of(family) as manager:
            assert not manager.spec.deterministic and manager._config.on_fault is OnFault.drop
        assert "is not deterministic" in caplog.text
        with manager_of(family, on_fault=OnFault["raise"]) as manager:
            assert manager._config.on_fault is OnFault["raise"], "what was chosen is kept"


def test_secrets_reach_the_server_and_nothing_else(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "hf_secret")
    family = family_of(server, headers_from_env=["Authorization:MY_TOKEN"])
    monkeypatch.delenv("MY_TOKEN")
    rows_of(family, "process")
    assert {headers.get("Authorization") for headers in server.headers} == {"Bearer hf_secret"}
    assert "hf_secret" not in f"{family.config} {family.spec} {vars(family)}"


# -- kinds of actions, tasks and rewards ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "space", "action", "sent"),
    [
        ({}, spaces.Discrete(4), 3, {"column": 3}),
        (
            {"action_kind": "several", "actions": ["column:3", "row:2"]},
            spaces.MultiDiscrete([3, 2]),
            [2, 1],
            {"column": 2, "row": 1},
        ),
        (
            {"action_kind": "numbers", "actions": ["force:1:-2:2", "aim:2"]},
            spaces.Box(-1, 1, (3,), np.float32),
            [0.5, 7.0, -1.0],
            {"force": 1.0, "aim": [1.0, -1.0]},
        ),
        (
            {"action_kind": "text", "actions": ["say"], "texts": ["yes", "no"]},
            spaces.Discrete(2),
            1,
            {"say": "no"},
        ),
        ({"write": "tests.envs.meta.third_party.test_openenv:moved"}, spaces.Discrete(4), 1, {"column": 2}),
    ],
)
def test_actions_of_every_kind(options: Any, space: Any, action: Any, sent: Any, server: FakeServer) -> None:
    family = family_of(server, **({"mask": None} | options))
    assert family.spec.action_space == space
    played = Played(family, 1)
    played.reset([0], [[0.0]], [1])
    played.step([0], [action])
    played.shard.close()
    assert server.steps() == [(0, sent)]


def moved(fields: dict[str, Any]) -> dict[str, Any]:
    return {"column": fields["column"] + 1}


def vector_of(observation: dict[str, Any]) -> list[float]:
    return [observation["numbers"][2], float(len(observation["text"]))]


def test_a_function_of_the_user_makes_the_vector(server: FakeServer) -> None:
    read = "tests.envs.meta.third_party.test_openenv:vector_of"
    family = family_of(server, read=read, read_size=2, observation=[], text=[], mask=None)
    played = Played(family, 1)
    rows = played.reset([0], [[1.0]], [1])
    assert rows.obs.tolist() == [[0.0, 16.0]]  # pyright: ignore[reportAttributeAccessIssue]
    played.shard.close()


def test_tasks_are_arguments_seeds_or_one(server: FakeServer) -> None:
    rng = np.random.default_rng(0)
    family = family_of(server, tasks=["task=0|1|2", "wind=-1..1"], test_tasks=["task=3"])
    train, test = (family.sample_tasks(rng, 50, split) for split in ("train", "test"))
    assert set(train[:, 0]) == {0.0, 1.0, 2.0} and set(test[:, 0]) == {3.0}
    assert family.spec.split is Split.disjoint and (np.abs(train[:, 1]) <= 1).all()
    family = family_of(server, tasks=[], task_by_seed=True)
    seeds = family.sample_tasks(rng, 50, "test")
    played = Played(family, 1)
    played.reset([0], seeds[:1], [77])
    assert server.log[-1][1]["data"] == {"seed": int(seeds[0, 0])} and (seeds % 2 == 1).all()
    played.shard.close()
    assert family_of(server, tasks=[]).sample_tasks(rng, 3, "train").tolist() == [[0.0]] * 3


def test_what_sessions_cost_is_measured_by_server(server: FakeServer) -> None:
    family = family_of(server)
    rows_of(family, "asyncio")
    measured = family.measured()
    assert measured[f"openenv/127.0.0.1:{server.port}/messages"] > 20
    assert measured[f"openenv/127.0.0.1:{server.port}/bytes_per_message"] > 50


class Turns:
    """A server whose answers take a moment, and how many it was asked for at the same time."""

    def __init__(self) -> None:
        self.now = self.most = 0
        turns = self

        class Counted(Game):
            def observed(self, reward: float | None) -> dict[str, Any]:
                turns.now -= 1
                return super().observed(reward)

        self.server = FakeServer(self.plan, Counted)

    def plan(self, session: int, message: dict[str, Any], index: int) -> float:
        self.now += 1
        self.most = max(self.most, self.now)
        return 0.03


@pytest.mark.parametrize("backend", ["serial", "thread", "process"])
@pytest.mark.parametrize("limit", [1, 3, None])
def test_a_limit_is_that_of_the_server_for_all_workers_together(backend: str, limit: int | None) -> None:
    turns = Turns()
    with turns.server as server:
        family = family_of(server, max_in_flight=limit)
        with manager_of(family, 6, backend) as manager:
            turns.most = 0  # the probe opens all sessions
            manager.reset()
            for _ in range(4):
                manager.step(np.full(6, 1))
    assert turns.most == (limit or 6)


def test_the_messages_of_all_workers_keep_their_interval(server: FakeServer) -> None:
    family = family_of(server, min_interval_s=0.05)
    with manager_of(family, 4, "process") as manager:
        began = time.monotonic()
        manager.reset()
        assert time.monotonic() - began >= 3 * 0.05


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_what_sessions_of_workers_cost_is_measured_too(server: FakeServer, backend: str) -> None:
    family, name = family_of(server), f"openenv/127.0.0.1:{server.port}"
    with manager_of(family, 4, backend) as manager:
        before = family.measured()
        server.log.clear()
        manager.reset()
        manager.step(np.full(4, 1))
        server.restart()
        manager.step(np.full(4, 1))
        asked = sum(message["type"] != "close" for _, message in server.log)
        measured = family.measured()
    assert asked >= 12 and measured[f"{name}/messages"] - before[f"{name}/messages"] >= asked
    assert measured[f"{name}/reopenings"] - before[f"{name}/reopenings"] in (0, 4)


def test_a_task_of_the_task_api_is_an_entry_of_its_split() -> None:
    with TaskApiServer(counts={"train": 3, "test": 2}) as server:
        family = family_of(server, tasks=[], task_api="maze")
        assert family.spec.split is Split.disjoint and family.spec.task_dim == 2
        rng = np.random.default_rng(0)
        train, test = (family.sample_tasks(rng, 50, split) for split in ("train", "test"))
        assert {tuple(task) for task in train.tolist()} == {(0, 0), (0, 1), (0, 2)}
        assert {tuple(task) for task in test.tolist()} == {(1, 0), (1, 1)}
        family.prepare(1)
        assert server.asked == [("/maze/num_tasks", {"split": split}) for split in ("train", "test")]
        played = Played(family, 1)
        played.reset([0], [[1.0, 1.0]], [7])
        assert server.log[-1][1]["data"] == {"seed": 7, "split": "test", "index": 1}
        played.shard.close()


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        ({}, r"^task_api=maze: http://127.0.0.1:\d+ has no page maze/num_tasks\.$"),
        ({"train": 0}, "has no tasks in the split 'train'"),
        ({"train": 1, "test": 0}, "has no tasks in the split 'test'"),
    ],
)
def test_a_task_api_without_tasks_is_one_sentence(counts: dict[str, int], says: str) -> None:
    with TaskApiServer(counts=counts) as server, pytest.raises(OptionError, match=says):
        family_of(server, tasks=[], task_api="maze").prepare(1)


@pytest.mark.parametrize(
    ("session", "in_a_trial", "for_the_next"), [("keep", 0, 0), ("per_trial", 0, 1), ("per_episode", 1, 1)]
)
def test_a_session_lasts_as_long_as_it_is_told_to(
    server: FakeServer, session: str, in_a_trial: int, for_the_next: int
) -> None:
    with manager_of(family_of(server, session=session), 1) as manager:
        manager.reset(tasks=[[1.0]])
        opened = [server.sessions]
        while manager.running.any():
            manager.step(np.array([1]))
        opened.append(server.sessions)
        manager.reset(tasks=[[1.0]])
        opened.append(server.sessions)
    assert np.diff(opened).tolist() == [in_a_trial, for_the_next]
