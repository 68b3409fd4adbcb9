"""The history of trials: what was sent is found again, and a re-run is compared with every row of before."""

from __future__ import annotations

import numpy as np
import pytest

from envs.backends.base import Commands
from envs.base import Rows
from envs.layout import Layout
from envs.manager.history import Digest, TrialHistory
from tests.toys import CountingFamily, DictCountingFamily

LAYOUT = Layout(DictCountingFamily().spec, with_task=True, with_flag=True)
ALL = np.arange(3)


def filled(number: int) -> Rows:
    """Rows of three slots, all of whose numbers are this one."""
    rows = LAYOUT.allocate(3)
    show(rows, number)
    return rows


def show(rows: Rows, number: int) -> None:
    """Write this number wherever an environment writes."""
    assert isinstance(rows.obs, dict)
    for array in (rows.reward, rows.info, *rows.obs.values()):
        array[:] = number


def digest_of(*numbers: int) -> int:
    """The digest of a trial whose rows show these numbers, one after the other."""
    rows = filled(0)
    digest = Digest(LAYOUT, rows)
    digest.begin(ALL)
    for number in numbers:
        show(rows, number)
        digest.add(slice(None))
    assert len(set(digest.value.tolist())) == 1
    return int(digest.value[0])


def test_a_digest_sees_every_row_and_their_order() -> None:
    assert digest_of(1, 2, 3) == digest_of(1, 2, 3)
    assert len({digest_of(1, 2, 3), digest_of(2, 1, 3), digest_of(1, 2), digest_of(9, 2, 3)}) == 4


@pytest.mark.parametrize("name", ["reward", "where", "count"])
def test_a_digest_sees_one_bit_of_one_slot(name: str) -> None:
    rows = filled(1)
    assert isinstance(rows.obs, dict)
    digest = Digest(LAYOUT, rows)
    array = rows.reward if name == "reward" else rows.obs[name]
    array[1] += 1
    digest.add(ALL)
    assert digest.value[0] == digest.value[2] != digest.value[1]


def test_what_the_manager_adds_is_not_part_of_the_digest() -> None:
    rows = filled(1)
    assert isinstance(rows.obs, dict)
    digest = Digest(LAYOUT, rows)
    rows.obs["task"][1] = rows.obs["new_episode"][1] = 7
    digest.add(ALL)
    assert len(set(digest.value.tolist())) == 1


def test_commands_are_found_again_and_the_last_row_can_be_shown_again() -> None:
    rows = Layout(CountingFamily().spec).allocate(3)
    commands = Commands.empty(rows)
    history = TrialHistory(Layout(CountingFamily().spec), rows, commands, longest=4)
    history.begin(ALL)
    for position, slots in enumerate([ALL, ALL[1:]]):
        commands.reset[:] = position == 0
        commands.action[:] = position
        history.posted(slots)
        rows.reward[:] = 10.0 + position
        history.arrived(slots)
    assert history.length.tolist() == [1, 2, 2]
    was_reset, actions = history.sent(ALL[1:], 1)
    assert not was_reset.any() and (actions == 1).all()
    rows.reward[:] = np.nan
    for slot in range(3):
        history.show_last_row(slot)
    assert rows.reward.tolist() == [10.0, 11.0, 11.0]


def test_a_rerun_is_the_same_only_if_all_its_rows_are() -> None:
    rows = Layout(CountingFamily().spec).allocate(3)
    history = TrialHistory(Layout(CountingFamily().spec), rows, Commands.empty(rows), longest=4)
    history.begin(ALL)
    history.reshown.begin(ALL)
    for reward in (1.0, 2.0):
        rows.reward[:] = reward
        history.arrived(ALL)
        rows.reward[1] += 0.5 if reward == 1.0 else 0.0
        history.reshown.add(ALL)
    assert [history.rerun_is_the_same(slot) for slot in range(3)] == [True, False, True]
