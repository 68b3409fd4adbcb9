"""Blue by scripts that see the true state, and the info row in which they see it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.meta.cyber import scenario as sc
from envs.meta.cyber.attackers import Attacker
from envs.meta.cyber.network import DECOY_AT, MALWARE, PRIVILEGED, REMOVABLE, STUCK, Bools, CyberNetwork, Ints

# The true state as numbers that a double holds exactly: all sets of hosts, and the decoys in three parts.
INFO_NAMES = ("privileged", "service_down", "step", "state", "decoys_0", "decoys_1", "decoys_2")
_STATE = INFO_NAMES.index("state")
_ALL_SETS = (1 << MALWARE + sc.NUM_HOSTS) - 1

# The hosts that matter, in the order in which they are put right.
_PRECIOUS = (sc.OP_SERVER, 3, 2, 1)
_USERS = (9, 10, 11, 12)
_OP_HOSTS = (4, 5, 6)
# With fewer steps left, restoring a cheap host costs more than it saves.
_WORTH_RESTORING = 12

_SERVER_DECOYS = (sc.HARAKA_SMPT, sc.TOMCAT, sc.APACHE, sc.VSFTPD)
# The decoys of each host that is worth some, in their order.
_DECOYS = {
    1: _SERVER_DECOYS,
    2: (sc.FEMITTER,),
    3: (sc.FEMITTER,),
    sc.OP_SERVER: _SERVER_DECOYS,
    9: (sc.TOMCAT, sc.APACHE, sc.SMSS, sc.SVCHOST),
    10: (sc.FEMITTER, sc.TOMCAT, sc.APACHE, sc.SSHD),
    11: (sc.SSHD,),
}
# The order in which hosts get their decoys, against B_line and against Meander.
_ORDERS = {
    Attacker.bline: (1, 2, 3, sc.OP_SERVER, 10, 9, 11),
    Attacker.meander: (10, 1, 2, 3, 9, 11, sc.OP_SERVER),
}


def write_truth(info: NDArray[np.float64], network: CyberNetwork, at: Ints | slice, step: Ints) -> None:
    """Write [n, 7] info rows."""
    state = network.state[at]
    # The foothold is always red's.
    info[:, 0] = sc.SIZE[state & 0x1FFF] - 1
    info[:, 1] = (state >> MALWARE + sc.NUM_HOSTS) & 1
    info[:, 2] = step
    info[:, 3] = state & _ALL_SETS
    info[:, 4:] = network.decoys.view(np.int64)[at]


class Truth(NamedTuple):
    """The true state of [n] rows, and the steps that are left."""

    state: Ints
    # [n, 13] the decoys of each host, as sets.
    decoys: Ints
    left: NDArray[np.float64]

    @classmethod
    def of(cls, info: NDArray[np.float64], horizon: int) -> Truth:
        """The state that these info rows tell."""
        parts = np.ascontiguousarray(info[:, 4:7].astype(np.int64))
        decoys = parts.view(np.uint8)[:, DECOY_AT].astype(np.int64)
        return cls(info[:, _STATE].astype(np.int64), decoys, horizon - info[:, 2])

    def has(self, kind: int, host: int) -> Bools:
        """Whether the host is in this set of the state."""
        return (self.state >> (kind + host)) & 1 > 0


def oracle_script(attacker: Attacker, truth: Truth) -> NDArray[np.int64]:
    """[n] actions of the script that is made for this attacker; against the sleeper it sleeps."""
    actions = np.full(len(truth.state), sc.SLEEP, np.int64)
    if attacker is Attacker.sleep:
        return actions
    # The rules stand from the first to the last, and the first that applies acts.
    for action, applies in reversed(_rules(attacker, truth)):
        actions[applies] = action
    return actions


def _rules(attacker: Attacker, truth: Truth) -> list[tuple[int, Bools]]:
    """(action, [n] whether it may be taken)."""
    rules: list[tuple[int, Bools]] = []

    def restore(host: int, applies: Bools) -> None:
        rules.append((sc.action_number(sc.RESTORE, host), applies))

    def remove(host: int, applies: Bools) -> None:
        rules.append((sc.action_number(sc.REMOVE, host), applies))

    for host in _PRECIOUS:
        restore(host, truth.has(PRIVILEGED, host))
    for host in _PRECIOUS:
        restore(host, truth.has(STUCK, host))
        remove(host, truth.has(REMOVABLE, host))
    for host in _USERS:
        alone = ~truth.has(PRIVILEGED, host) & ~truth.has(STUCK, host)
        remove(host, truth.has(REMOVABLE, host) & alone)
    for host in _ORDERS[attacker]:
        for decoy in _DECOYS[host]:
            # Apache and Vsftpd open the same port, so one of them is enough.
            enough = 1 << decoy | (1 << sc.APACHE if decoy == sc.VSFTPD else 0)
            missing = truth.decoys[:, host] & enough == 0
            rules.append((sc.action_number(sc.FIRST_DECOY + decoy, host), missing))
    if attacker is Attacker.meander:
        for host in (*_USERS, *_OP_HOSTS):
            restore(host, truth.has(PRIVILEGED, host) & (truth.left > _WORTH_RESTORING))
    return rules
