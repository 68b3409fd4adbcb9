"""Local hosts with their private rows, and the mailbox in which they answer."""

from __future__ import annotations

import threading

import numpy as np

from envs.backends.base import Block, Commands
from envs.backends.threads.local_host import Letter, LocalHost, Mailbox, OrderKind, PrivateRows
from envs.layout import Layout
from tests.toys import CountingFamily


def test_what_runs_in_a_host_is_seen_when_it_is_delivered() -> None:
    family = CountingFamily()
    layout = Layout(family.spec, with_flag=True)
    public = layout.allocate(4)
    private_rows = PrivateRows(layout, public, 0, 4)
    first, second = (
        LocalHost(0, [Block(lambda: family, 0, 1)], private_rows, 1),
        LocalHost(1, [Block(lambda: family, 1, 3)], private_rows, 1),
    )
    commands = Commands.empty(public)
    commands.reset[:], commands.task[:] = True, 7.0
    private_rows.load(np.array([0, 1, 2]), commands)
    commands.task[:] = 8.0
    for host in (first, second):
        host.build()
        host.run(np.array(host.slots))
    assert isinstance(public.obs, np.ndarray)
    assert not public.obs.any()
    private_rows.deliver(np.array([2]))
    assert public.obs[:, 0].tolist() == [0.0, 0.0, 7.0, 0.0]
    private_rows.deliver(np.array([0, 1, 2]))
    assert public.obs[:, 0].tolist() == [7.0, 7.0, 7.0, 0.0]
    first.close()
    second.close()


def test_the_mailbox_wakes_once_there_are_enough_letters_and_at_the_deadline() -> None:
    family = CountingFamily()
    layout = Layout(family.spec)
    host = LocalHost(0, [Block(lambda: family, 0, 1)], PrivateRows(layout, layout.allocate(1), 0, 1), 1)
    mail = Mailbox()
    letters = [Letter(host, np.array([0]), number, OrderKind.RUN) for number in range(3)]
    assert mail.take(1, deadline=0.0) == []
    mail.put(letters[0])
    assert mail.take(2, deadline=0.0) == letters[:1]
    thread = threading.Thread(target=lambda: [mail.put(letter) for letter in letters])
    thread.start()
    assert [letter.sequence for letter in mail.take(3, deadline=float("inf"))] == [0, 1, 2]
    thread.join()
