"""What a worker knows of its servers: which one a slot is played on, and no secret in a text."""

from __future__ import annotations

from envs.remote.actions import FieldWriter, RemoteActionKind
from envs.remote.observations import FieldReader
from envs.remote.service_setup import ServiceSetup
from envs.remote.tasks import TaskSource


def test_slots_go_round_the_servers_and_secrets_are_not_shown() -> None:
    writer = FieldWriter.of(RemoteActionKind.discrete, ["column:7"], [], None)
    reader = FieldReader.of(["board:42"], [], None, writer.num_choices, None, 0)
    setup = ServiceSetup(("a", "b", "c"), reader, writer, TaskSource(), headers={"X-Key": "secret"})
    assert [setup.url_of(slot) for slot in range(4)] == ["a", "b", "c", "a"]
    assert setup.url_of(1, turn=2) == "a"
    assert "secret" not in repr(setup)
