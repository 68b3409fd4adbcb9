"""Blue restores what looks lost and places decoys from a list: a script that sees what an agent sees."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.meta.cyber import scenario as sc

# The order in which hosts are restored.
_RESTORED = (sc.OP_SERVER, 3, 2, 1, 9, 10, 11, 12, 4, 5, 6)
_DECOYS = (
    *((sc.FEMITTER, 3), (sc.HARAKA_SMPT, 7), (sc.TOMCAT, 1), (sc.FEMITTER, 2), (sc.HARAKA_SMPT, 1)),
    *((sc.APACHE, 7), (sc.TOMCAT, 7), (sc.VSFTPD, 1), (sc.FEMITTER, 10), (sc.TOMCAT, 9), (sc.APACHE, 9)),
    *((sc.TOMCAT, 10), (sc.SSHD, 11), (sc.VSFTPD, 12), (sc.SMSS, 9), (sc.SVCHOST, 9), (sc.APACHE, 10)),
    (sc.SSHD, 10),
)
_LIST = [sc.action_number(sc.FIRST_DECOY + decoy, host) for decoy, host in _DECOYS]
# Where there is nothing to do it looks at the hosts in turn, the Defender last.
_ANALYSED = [sc.action_number(sc.ANALYSE, host) for host in (*range(1, sc.NUM_HOSTS), sc.DEFENDER)]


class RestoreDecoy:
    """The policy `restore_decoy` of the recorded episodes, for n of them; nothing in it is drawn."""

    def __init__(self, n: int) -> None:
        self._lists = [list(_LIST) for _ in range(n)]
        self._looks = [0] * n

    def act(self, obs: NDArray[Any]) -> NDArray[np.int64]:
        """[n] actions for [n, 52] observations."""
        # The high bit of what blue believes of a host: User or Privileged.
        lost = obs.reshape(len(obs), sc.NUM_HOSTS, 4)[..., 3] > 0
        return np.array([self._choose(slot, one) for slot, one in enumerate(lost.tolist())])

    def _choose(self, slot: int, lost: list[bool]) -> int:
        waiting = self._lists[slot]
        host = next((host for host in _RESTORED if lost[host]), None)
        if host is not None:
            # Restore clears the host's decoys, so all of them come next.
            waiting[:0] = [action for action in _LIST if sc.HOST_OF[action] == host]
            return sc.action_number(sc.RESTORE, host)
        if waiting:
            return waiting.pop(0)
        self._looks[slot] += 1
        return _ANALYSED[(self._looks[slot] - 1) % len(_ANALYSED)]
