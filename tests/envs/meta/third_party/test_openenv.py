"""The family OpenEnv against a fake server: the promises of a family, and what is asked before a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cloudpickle
import numpy as np
import pytest
from gymnasium import spaces

from envs.backends.base import BackendConfig, OnFault
from envs.base import Split, TaskFamily
from envs.meta.make_env import make_env, make_family, make_parallel_env
from envs.parallel_env_manager import EnvCrashLoopError, ParallelEnvManager
from tests.envs.meta.played import Played, play_alone
from tests.envs.remote.fake_server import FakeServer, Game
from utils.options import OptionError

OPTIONS: dict[str, Any] = {
    "observation": ["numbers:4"],
    "text": ["text:10"],
    "mask": "legal_actions",
    "actions": ["column:4"],
    "tasks": ["task=0|1|2"],
    "max_episode_steps": 4,
    "patience_s": 20.0,
}
SCRIPTED = np.arange(40) % 3


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as made:
        yield made


def family_of(*servers: FakeServer, **options: Any) -> TaskFamily:
    return make_family("OpenEnv", urls=[server.url for server in servers], **(OPTIONS | options))


def manager_of(family: TaskFamily, slots: int = 3, backend: str = "serial", **settings: Any) -> Any:
    return ParallelEnvManager(
        family,
        slots,
        episodes_per_trial=2,
        seed=3,
        backend=BackendConfig(name=backend, **settings),
        num_workers=2 if backend in ("process", "thread") else 1,
    )


def rows_of(family: TaskFamily, backend: str = "serial", when: Any = None, **settings: Any) -> list[Any]:
    """All rows of one trial in each slot, with actions that are written down; `when(t)` is called before."""
    seen: list[Any] = []
    with manager_of(family, backend=backend, **settings) as manager:
        rows = manager.reset()
        for t, action in enumerate(SCRIPTED[:9].tolist()):
            numbers = rows.obs["observation"].copy()
            seen.append(
                (numbers.tolist(), rows.reward.tolist(), rows.terminated.tolist(), rows.valid.tolist())
            )
            if when is not None:
                when(t)
            rows = manager.step(np.full(3, action))
    return seen


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


@pytest.mark.parametrize("backend", ["serial", "asyncio", "process"])
def test_a_server_that_restarts_in_the_middle_of_a_trial_changes_no_row(
    server: FakeServer, backend: str
) -> None:
    undisturbed = rows_of(family_of(server))
    restarts = lambda t: server.restart() if t in (2, 6) else None  # noqa: E731
    assert rows_of(family_of(server), backend, restarts) == undisturbed


def test_slots_are_shared_out_among_servers_by_their_numbers() -> None:
    with FakeServer() as one, FakeServer() as other:
        for backend in ("serial", "asyncio"):
            family = family_of(one, other)
            with manager_of(family, 3, backend) as manager:
                one.log.clear()
                other.log.clear()
                manager.reset(tasks=[[0.0], [1.0], [2.0]])
            told = [
                [message["data"]["task"] for _, message in server.log if message["type"] == "reset"]
                for server in (one, other)
            ]
            assert (sorted(told[0]), told[1]) == ([0, 2], [1])


def test_failover_moves_a_slot_at_a_reset_and_changes_no_row() -> None:
    with FakeServer() as one, FakeServer() as other:
        undisturbed = rows_of(family_of(one))
        family = family_of(one, other, failover=True, patience_s=2.0)
        assert rows_of(family, when=lambda t: one.stop() if t == 3 else None) == undisturbed
        one.start()


def test_without_failover_a_server_that_stays_away_ends_the_run(server: FakeServer) -> None:
    family = family_of(server, patience_s=0.3)
    with pytest.raises(EnvCrashLoopError, match=r"cannot be reached.*tried for 0\.3 s"):
        rows_of(family, when=lambda t: server.stop() if t == 3 else None)
    server.start()


def test_a_session_for_each_episode(server: FakeServer) -> None:
    for session, more in (("keep", 0), ("per_episode", 1)):
        played = Played(family_of(server, session=session), 1)
        played.reset([0], [[0.0]], [1])
        before = server.sessions
        played.reset([0], [[0.0]], [2])
        assert server.sessions - before == more
        played.shard.close()


# -- what is asked before a run ------------------------------------------------------------------------------


def refused(*servers: FakeServer, slots: int = 1, **options: Any) -> str:
    with pytest.raises(OptionError) as caught:
        family_of(*servers, **options).prepare(slots)
    return str(caught.value)


def test_names_that_the_server_does_not_have_are_refused(server: FakeServer) -> None:
    assert "has no field 'number' in its observation (observation=). Did you mean 'numbers'?" in refused(
        server, observation=["number:4"]
    )
    assert "has no field 'colum' in its action (actions=). Did you mean 'column'?" in refused(
        server, actions=["colum:4"]
    )


def test_sizes_that_are_not_the_servers_are_refused(server: FakeServer) -> None:
    assert "field 'numbers' has 4 numbers, and 5 were declared" in refused(server, observation=["numbers:5"])
    assert "field 'legal_actions' is [1, 2, 3], not among 0 to 2" in refused(server, actions=["column:3"])


def test_too_few_seats_are_one_sentence_before_the_run() -> None:
    with FakeServer(seats=3) as server:
        family_of(server).prepare(3)
        said = refused(server, slots=8)
        assert said == (
            "The server has 3 seats, and this run needs 8 on each, to train and to evaluate: "
            "start it with max_concurrent_envs=12, or set a smaller num_slots."
        )


def test_a_server_that_is_not_there_is_one_sentence() -> None:
    said = refused(FakeServer(port=9))
    assert said.startswith("http://127.0.0.1:9 cannot be read") and said.count("\n") == 0


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


class Deaf(Game):
    """Drops seed and task, as servers do whose reset does not name them."""

    def reset(self, data: dict[str, Any]) -> dict[str, Any]:
        return super().reset({})


def test_what_is_not_deterministic_is_found_out_and_gives_up_trials(caplog: pytest.LogCaptureFixture) -> None:
    with FakeServer(make=Noisy) as server:
        family = family_of(server)
        assert family.spec.deterministic
        with manager_of(family) as manager:
            assert not manager.spec.deterministic and manager._config.on_fault is OnFault.drop
        assert "is not deterministic" in caplog.text
        with manager_of(family, on_fault=OnFault["raise"]) as manager:
            assert manager._config.on_fault is OnFault["raise"], "what was chosen is kept"


def test_seeds_and_tasks_that_change_nothing_are_told(caplog: pytest.LogCaptureFixture) -> None:
    with FakeServer() as server:
        family_of(server).prepare(1)
        assert not caplog.text
    with FakeServer(make=Deaf) as server:
        family_of(server).prepare(1)
    assert "ignores the seed" in caplog.text and "a reset drops arguments" in caplog.text


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


class Silent(Game):
    """Gives no reward."""

    def observed(self, reward: float | None) -> dict[str, Any]:
        return super().observed(None)


def test_a_missing_reward_is_zero_and_told_once_or_refused(caplog: pytest.LogCaptureFixture) -> None:
    with FakeServer(make=Silent) as server:
        rows_of(family_of(server))
        assert caplog.text.count("gives no reward for a step") == 1
        with pytest.raises(EnvCrashLoopError, match="the step has no reward"):
            rows_of(family_of(server, missing_reward="refuse"))


def test_what_sessions_cost_is_measured_by_server(server: FakeServer) -> None:
    family = family_of(server)
    rows_of(family, "asyncio")
    measured = family.measured()
    assert measured[f"openenv/127.0.0.1:{server.port}/messages"] > 20
    assert measured[f"openenv/127.0.0.1:{server.port}/bytes_per_message"] > 50


def test_an_error_of_the_environment_is_a_fault_with_its_words() -> None:
    def plan(session: int, message: dict[str, Any], index: int) -> str | None:
        return "EXECUTION_ERROR" if broken and message["type"] == "step" else None

    broken: list[bool] = []
    with FakeServer(plan) as server, make_parallel_env("OpenEnv", 1, 1, urls=[server.url], **OPTIONS) as env:
        env.reset()
        broken.append(True)
        with pytest.raises(EnvCrashLoopError, match="EXECUTION_ERROR: as planned"):
            env.step(np.array([3]))
