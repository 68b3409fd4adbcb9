"""The picture of a defence: subnets and hosts by name, what red holds, what blue sees, decoys, both moves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.meta.cyber import scenario as sc
from envs.meta.cyber.network import DECOY_AT, DOWN, PRIVILEGED, REMOVABLE, STUCK, CyberNetwork, Verb
from envs.meta.lettering import write_words
from envs.meta.pictures import DANGER, GOAL, GROUND, HINT, ROBOT, WALL, Colour

# Subnets from red's foothold on the left to the server on the right, five rows of hosts.
_COLUMNS = (sc.USER, sc.ENTERPRISE, sc.OPERATIONAL)
_WIDTH, _HEIGHT, _GAP, _ROWS = 120, 60, 8, 5
# Above the hosts the names of the subnets, below them both moves and what the halves of a box are.
_HEAD, _FOOT, _LINE = 20, 44, 14
_UNKNOWN: Colour = (170, 170, 180)
_LOST: Colour = (240, 160, 60)
# The truth: clean, a user session, privileged; what blue believes: no, unknown, user, privileged.
_TRUTH: tuple[tuple[str, Colour], ...] = (("clean", GOAL), ("user", _LOST), ("priv", DANGER))
_BELIEF: tuple[tuple[str, Colour], ...] = (
    *(("no", GOAL), ("unknown", _UNKNOWN)),
    *(("user", _LOST), ("priv", DANGER)),
)
_ACTIVITY: dict[int, tuple[str, Colour]] = {1: ("scan", HINT), 3: ("exploit", DANGER)}
_RED_MOVES = ("sleep", "sweep", "scan", "exploit", "escalate", "impact")


def network_picture(
    network: CyberNetwork, slot: int, verb: int, target: int, action: int
) -> NDArray[np.uint8]:
    """One column for each subnet, one box for each host, and below them both moves of the last step.

    The left half of a box is the truth, its right half what blue believes: green is clean, orange a user
    session, red privileged, grey unknown. Below the belief stands the activity that blue sees now; the small
    blue squares are decoys. A dark frame is red's target. The head of a subnet is red where red sweeps it.
    """
    width = len(_COLUMNS) * (_WIDTH + 2 * _GAP)
    picture = np.full((_HEAD + _ROWS * (_HEIGHT + _GAP) + _FOOT, width, 3), GROUND, np.uint8)
    for column, subnet in enumerate(_COLUMNS):
        left = column * (_WIDTH + 2 * _GAP) + _GAP
        picture[2 : _HEAD - 4, left : left + _WIDTH] = (
            DANGER if verb == Verb.sweep and target == subnet else _UNKNOWN
        )
        write_words(picture, 4, left + 4, sc.SUBNETS[subnet], WALL)
        for row, host in enumerate(np.flatnonzero(subnet == sc.SUBNET_OF).tolist()):
            top = _HEAD + row * (_HEIGHT + _GAP)
            aimed = verb > Verb.sweep and target == host
            _draw_host(picture[top : top + _HEIGHT, left : left + _WIDTH], network, slot, host, aimed)
    _write_moves(picture[-_FOOT:], verb, target, action)
    return picture


def _draw_host(box: NDArray[np.uint8], network: CyberNetwork, slot: int, host: int, aimed: bool) -> None:
    """One host, into its part of the picture."""
    state, seen = int(network.state[slot]), int(network.seen[slot]) >> 4 * host
    held = (state >> PRIVILEGED + host) & 1
    level = 2 * held or ((state >> REMOVABLE) | (state >> STUCK)) >> host & 1
    box[:] = ROBOT if aimed else WALL
    write_words(box, 3, 4, sc.HOSTS[host], GROUND)
    # Two halves, a colour and a word each.
    for columns, (word, colour) in ((slice(3, 59), _TRUTH[level]), (slice(61, -3), _BELIEF[seen >> 2 & 3])):
        half = box[16:-3, columns]
        half[:] = colour
        write_words(half, 3, 1, word, WALL)
    if seen & 3 in _ACTIVITY:
        word, colour = _ACTIVITY[seen & 3]
        box[30:44, 61:-3] = colour
        write_words(box, 32, 62, word, WALL)
    decoys = int(network.decoys[slot, DECOY_AT[host]])
    for place in [decoy for decoy in range(len(sc.DECOYS)) if decoys >> decoy & 1]:
        box[-11:-5, 5 + 6 * place : 10 + 6 * place] = ROBOT
    if host == sc.OP_SERVER and state >> DOWN & 1:
        write_words(box, 32, 4, "down", WALL)


def _write_moves(foot: NDArray[np.uint8], verb: int, target: int, action: int) -> None:
    """Blue's and red's last moves in words, and how to read a box."""
    place = sc.SUBNETS[target] if verb == Verb.sweep else sc.HOSTS[target]
    red = _RED_MOVES[verb] if verb == Verb.sleep else f"{_RED_MOVES[verb]} {place}"
    lines = (("blue", sc.action_name(action), ROBOT), ("red", red, DANGER))
    for number, (who, move, colour) in enumerate(lines):
        write_words(foot, 2 + number * _LINE, _GAP, f"{who:4}: {move}", colour)
    write_words(foot, 2 + 2 * _LINE, _GAP, "left: true  right: seen by blue", _UNKNOWN)
