"""What is asked of a service before a run: each mistake is one sentence, and a surprise is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from envs.remote.actions import RemoteActionKind
from tests.envs.remote.fake_server import FakeServer, Game
from tests.envs.remote.played_service import family_of
from utils.options import OptionError


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as made:
        yield made


def refused(*servers: FakeServer, slots: int = 1, **options: Any) -> str:
    with pytest.raises(OptionError) as caught:
        family_of(*servers, **options).prepare(slots)
    return str(caught.value)


class Deaf(Game):
    """Drops seed and task, as servers do whose reset does not name them."""

    def reset(self, data: dict[str, Any]) -> dict[str, Any]:
        return super().reset({})


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


def breaks(fields: dict[str, Any]) -> Any:
    """A function of a user who has mistaken a name."""
    return fields["colunm"]


def fails_at_length(fields: dict[str, Any]) -> Any:
    raise ValueError("no such thing.\nHere is more of it.")


def says_nothing(fields: dict[str, Any]) -> Any:
    assert not fields


def makes_an_object(fields: dict[str, Any]) -> Any:
    return {"column": object()}


def writes_by_numpy(fields: dict[str, Any]) -> Any:
    return {"column": np.int64(fields["column"])}


@pytest.mark.parametrize(
    ("option", "function", "said"),
    [
        ("read", "breaks", "raised KeyError: 'colunm'."),
        ("write", "breaks", "raised KeyError: 'colunm'."),
        ("read", "fails_at_length", "raised ValueError: no such thing."),
        ("write", "says_nothing", "raised AssertionError"),
        ("write", "len", "returned 1, and not a dict of the fields to send."),
        ("write", "makes_an_object", "a object is none of its kinds."),
    ],
)
def test_a_function_of_the_users_that_fails_is_one_sentence(
    server: FakeServer, option: str, function: str, said: str
) -> None:
    where = "builtins:len" if function == "len" else f"{__name__}:{function}"
    others = {"observation": [], "text": [], "read_size": 4} if option == "read" else {}
    found = refused(server, **{option: where}, **others)
    assert said in found and "\n" not in found and not found.endswith("..")
    expected = "The field 'column' of a step is" if function == "makes_an_object" else f"{option}={where} "
    assert expected in found


def test_a_function_of_the_users_may_write_numbers_of_numpy(server: FakeServer) -> None:
    family_of(server, write=f"{__name__}:writes_by_numpy").prepare(1)
    assert all(type(data["column"]) is int for _, data in server.steps()) and server.steps()


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


def test_seeds_and_tasks_that_change_nothing_are_told(caplog: pytest.LogCaptureFixture) -> None:
    with FakeServer() as server:
        family_of(server).prepare(1)
        assert not caplog.text
    with FakeServer(make=Deaf) as server:
        family_of(server).prepare(1)
    assert "ignores the seed" in caplog.text and "a reset drops arguments" in caplog.text


class Rarely(Game):
    """The task shows in every third episode only, as a weakness of an opponent does."""

    def observed(self, reward: float | None) -> dict[str, Any]:
        task, self.task = self.task, self.task if self.seed % 3 == 0 else 0.0
        answer = super().observed(reward)
        self.task = task
        return answer


def test_a_task_that_does_not_show_in_the_first_episode_is_no_surprise(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with FakeServer(make=Rarely) as server:
        family_of(server).prepare(1)
    assert "a reset drops arguments" not in caplog.text


def test_a_slow_server_is_asked_for_few_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envs.remote.probe.TASKS_S", 0.0)
    asked: list[int] = []
    for most in (1, 10):
        monkeypatch.setattr("envs.remote.probe.EPISODES", most)
        with FakeServer(make=Deaf) as server:
            family_of(server).prepare(1)
            asked.append(sum(message["type"] == "reset" for _, message in server.log))
    assert asked[0] == asked[1]


def test_a_session_that_opens_slowly_is_no_missing_seat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envs.remote.probe.SEATS_S", 0.05)

    def slow(session: int, message: dict[str, Any], index: int) -> float | None:
        return 0.3 if session > 2 and message["type"] == "reset" else None

    with FakeServer(plan=slow) as server:
        family_of(server).prepare(3)
        assert server.most_open >= 3


def test_a_server_whose_first_session_is_another_one_does_not_repeat_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Within a session it repeats itself, and so do all sessions after the first."""
    made: list[Game] = []

    class Warming(Game):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)
            self.is_first = len(made) == 1

        def observed(self, reward: float | None) -> dict[str, Any]:
            found = super().observed(reward)
            found["observation"]["numbers"][3] += self.is_first
            return found

    with FakeServer(make=Warming) as server:
        family = family_of(server)
        family.prepare(1)
    assert not family.spec.deterministic and "is not deterministic" in caplog.text


class Strict(Game):
    """Two choices at once, of 3 and of 2, which refuses what its flags do not allow."""

    SIZES = (3, 2)

    def flags(self) -> list[int]:
        first = [int(one != self.t % 3) for one in range(3)]
        return first + [int(one == self.t % 2) for one in range(2)]

    def step(self, data: dict[str, Any]) -> dict[str, Any]:
        flags = self.flags()
        assert flags[data["column"]] and flags[3 + data["row"]], f"{data} at {flags}"
        return super().step(data)

    def observed(self, reward: float | None) -> dict[str, Any]:
        found = super().observed(reward)
        found["observation"]["legal"] = self.flags()
        return found


STRICT: dict[str, Any] = {
    "action_kind": RemoteActionKind.several,
    "actions": ["column:3", "row:2"],
    "mask": "legal:flags",
}
STRICT_SCHEMA = {"action": {}, "observation": {}}


def test_the_probe_takes_legal_actions_of_several_choices() -> None:
    with FakeServer(make=Strict, schema=STRICT_SCHEMA) as server:
        family_of(server, **STRICT).prepare(1)
        assert len(server.steps()) > 12
