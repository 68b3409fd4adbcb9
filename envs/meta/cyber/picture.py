"""The picture of a defence: subnets, hosts, what red holds, what blue sees, decoys."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.meta.cyber import scenario as sc
from envs.meta.cyber.network import DECOY_AT, DOWN, PRIVILEGED, REMOVABLE, STUCK, CyberNetwork, Verb
from envs.meta.pictures import DANGER, GOAL, GROUND, HINT, ROBOT, WALL, Colour

# Subnets from red's foothold on the left to the server on the right, five rows of hosts.
_COLUMNS = (sc.USER, sc.ENTERPRISE, sc.OPERATIONAL)
_WIDTH, _HEIGHT, _GAP, _ROWS = 96, 44, 8, 5
_HEAD = 18
_UNKNOWN: Colour = (170, 170, 180)
_LOST: Colour = (240, 160, 60)
# The truth: clean, a user session, privileged; what blue believes: no, unknown, user, privileged.
_TRUTH: tuple[Colour, ...] = (GOAL, _LOST, DANGER)
_BELIEF: tuple[Colour, ...] = (GOAL, _UNKNOWN, _LOST, DANGER)
_ACTIVITY: dict[int, Colour] = {1: HINT, 3: DANGER}


def network_picture(network: CyberNetwork, slot: int, verb: int, target: int) -> NDArray[np.uint8]:
    """One column for each subnet, one box for each host.

    The left half of a box is the truth, its right half what blue believes: green is clean, orange a user
    session, red privileged, grey unknown. The square on the right is activity that blue sees now, the small
    blue ones below are decoys. A dark frame is red's target; a dark bar means that the service is down.
    """
    width = 3 * (_WIDTH + 2 * _GAP)
    picture = np.full((_HEAD + _ROWS * (_HEIGHT + _GAP), width, 3), GROUND, np.uint8)
    for column, subnet in enumerate(_COLUMNS):
        left = column * (_WIDTH + 2 * _GAP)
        # The head of a subnet is dark red where red sweeps it now.
        swept = verb == Verb.sweep and target == subnet
        picture[4 : _HEAD - 6, left + _GAP : left + _GAP + _WIDTH] = DANGER if swept else _UNKNOWN
        for row, host in enumerate(np.flatnonzero(subnet == sc.SUBNET_OF).tolist()):
            top = _HEAD + row * (_HEIGHT + _GAP)
            box = picture[top : top + _HEIGHT, left + _GAP : left + _GAP + _WIDTH]
            aimed = verb > Verb.sweep and target == host
            _draw_host(box, network, slot, host, aimed)
    return picture


def _draw_host(box: NDArray[np.uint8], network: CyberNetwork, slot: int, host: int, aimed: bool) -> None:
    """One host, into its part of the picture."""
    state, seen = int(network.state[slot]), int(network.seen[slot]) >> 4 * host
    held = (state >> PRIVILEGED + host) & 1
    level = 2 * held or ((state >> REMOVABLE) | (state >> STUCK)) >> host & 1
    box[:] = ROBOT if aimed else WALL
    box[3:-3, 3:48] = _TRUTH[level]
    box[3:-3, 50:-3] = _BELIEF[seen >> 2 & 3]
    if seen & 3 in _ACTIVITY:
        box[7:19, -21:-9] = _ACTIVITY[seen & 3]
    decoys = int(network.decoys[slot, DECOY_AT[host]])
    for place in [decoy for decoy in range(len(sc.DECOYS)) if decoys >> decoy & 1]:
        box[-12:-5, 7 + 5 * place : 11 + 5 * place] = ROBOT
    if host == sc.OP_SERVER and state >> DOWN & 1:
        box[14:20, 3:48] = WALL
