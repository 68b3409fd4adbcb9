"""What a worker knows of its servers: which one a slot is played on, and no secret in a text."""

from __future__ import annotations

from envs.remote.actions import FieldWriter, RemoteActionKind
from envs.remote.observations import FieldReader
from envs.remote.service_setup import Measure, ServiceSetup, in_few_words
from envs.remote.tasks import TaskSource


def test_slots_go_round_the_servers_and_secrets_are_not_shown() -> None:
    writer = FieldWriter.of(RemoteActionKind.discrete, ["column:7"], [], None)
    reader = FieldReader.of(["board:42"], [], None, writer.num_choices, None, 0)
    setup = ServiceSetup(("a", "b", "c"), reader, writer, TaskSource(), headers={"X-Key": "secret"})
    assert [setup.url_of(slot) for slot in range(4)] == ["a", "b", "c", "a"]
    assert setup.url_of(1, turn=2) == "a"
    assert "secret" not in repr(setup)


def test_the_servers_of_a_run_are_one_item_of_the_console() -> None:
    one = Measure(messages=1, in_flight_s=0.004, reopenings=2)
    two = Measure(messages=3, in_flight_s=0.0, reopenings=1)
    measured = {
        f"openenv/{host}/{name}": value
        for host, measure in (("a:1", one), ("b:2", two))
        for name, value in measure.shown().items()
    }
    assert in_few_words(measured | {"other": 3.0}) == "1.0 ms in flight, 3 reopened"
    assert in_few_words({}) == ""


def test_counts_of_others_are_added_and_whole_numbers_stay_whole() -> None:
    both = Measure(messages=2, in_flight_s=0.5).plus([1.0, 0.25, 0, 0, 0, 3.0, 0, 0])
    assert both == Measure(messages=3, in_flight_s=0.75, reopenings=3)
    assert type(both.messages) is int and type(both.waiting_s) is float
