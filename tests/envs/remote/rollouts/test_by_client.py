"""What is remembered of clients is remembered by identity, and a client plays one episode at a time."""

from __future__ import annotations

import pytest

from envs.remote.protocol import RemoteError
from envs.remote.rollouts.by_client import ByClient, Claims


def test_one_thing_for_each_client_also_where_clients_are_equal_or_cannot_be_hashed() -> None:
    made = ByClient[list[int]](lambda client: [len(client)])
    one, two = [1], [1]
    assert made[one] == [1] and made[one] is made[one] and made[one] is not made[two]


def test_a_client_is_claimed_by_one_at_a_time_and_released_after_an_error() -> None:
    claims, client = Claims(), [1]
    with pytest.raises(ValueError), claims.claim(client), claims.claim([1]):
        with pytest.raises(RemoteError, match="This list plays an episode already"), claims.claim(client):
            raise AssertionError
        raise ValueError
    with claims.claim(client):
        pass
