"""The picture of a defence: hosts and routes, what red holds, what blue sees, decoys, both moves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from envs.meta.cyber import scenario as sc
from envs.meta.cyber.network import DECOY_AT, DOWN, PRIVILEGED, REMOVABLE, STUCK, CyberNetwork, Verb
from envs.meta.lettering import write_words
from envs.meta.pictures import GOAL, GROUND, HINT, ROBOT, WALL, Colour

# Subnets from red's foothold on the left to the server on the right, five rows of hosts.
_COLUMNS = (sc.USER, sc.ENTERPRISE, sc.OPERATIONAL)
_WIDTH, _HEIGHT, _GAP, _ROWS = 120, 60, 8, 5
# Between the columns there is room for routes.
_ROUTES = 24
# Above the hosts the names of the subnets, below them both moves and how to read it all.
_HEAD, _LINE = 20, 14
_FOOT = 5 * _LINE + 4

# Words are dark on light colours, or light on dark ones.
INK: Colour = (25, 25, 35)
CLEAN: Colour = GOAL
LOST: Colour = (240, 160, 60)
HELD: Colour = (230, 115, 105)
UNKNOWN: Colour = (170, 170, 180)
RED_WORDS: Colour = (170, 45, 40)
# A way that red could go, and one that is open to it.
ROUTE: Colour = (205, 205, 212)
OPEN_ROUTE: Colour = (225, 150, 145)

# The truth: clean, a user session, privileged; what blue believes: no, unknown, user, privileged.
_TRUTH: tuple[tuple[str, Colour], ...] = (("clean", CLEAN), ("user", LOST), ("priv", HELD))
_BELIEF: tuple[tuple[str, Colour], ...] = (
    *(("no", CLEAN), ("unknown", UNKNOWN)),
    *(("user", LOST), ("priv", HELD)),
)
_ACTIVITY: dict[int, tuple[str, Colour]] = {1: ("scan", HINT), 3: ("exploit", HELD)}
_RED_MOVES = ("sleep", "sweep", "scan", "exploit", "escalate", "impact")
# A letter for each decoy, in their order.
DECOY_LETTERS = "AFHMSCTV"
_LEGEND = (
    "left: true  right: seen by blue",
    "decoys: A Apache  F Femitter  H Haraka",
    "M Smss  S SSHD  C Svchost  T Tomcat  V Vsftpd",
)


def network_picture(
    network: CyberNetwork, slot: int, red: tuple[int, int], action: int, routes: Sequence[tuple[int, int]]
) -> NDArray[np.uint8]:
    """One column for each subnet, one box for each host, and below them both moves of the last step.

    The left half of a box is the truth, its right half what blue believes: green is clean, orange a user
    session, red privileged, grey unknown. Below the belief stands the activity that blue sees now; the white
    letters on blue are decoys. A dark blue frame is red's target, the verb and target of `red`. The head of a
    subnet is red where red sweeps it.

    A line leads from each host to the one whose address red finds there (`routes`), and from subnet to
    subnet; it is reddish where red may go on: it has root on that host, or a session that opens the subnet.
    """
    verb, target = red
    height = _HEAD + _ROWS * (_HEIGHT + _GAP) + _FOOT
    picture = np.full((height, len(_COLUMNS) * (_WIDTH + _ROUTES) - _ROUTES + 2 * _GAP, 3), GROUND, np.uint8)
    _draw_routes(picture, int(network.state[slot]), routes)
    for subnet in _COLUMNS:
        left = _left_of(subnet)
        swept = verb == Verb.sweep and target == subnet
        picture[2 : _HEAD - 4, left : left + _WIDTH] = HELD if swept else UNKNOWN
        write_words(picture, 4, left + 4, sc.SUBNETS[subnet], INK)
    for host in range(sc.NUM_HOSTS):
        top, left = _corner(host)
        aimed = verb > Verb.sweep and target == host
        _draw_host(picture[top : top + _HEIGHT, left : left + _WIDTH], network, slot, host, aimed)
    _write_moves(picture[-_FOOT:], verb, target, action)
    return picture


def _left_of(subnet: int) -> int:
    return _GAP + _COLUMNS.index(subnet) * (_WIDTH + _ROUTES)


def _corner(host: int) -> tuple[int, int]:
    """Where the box of a host begins: row and column."""
    subnet = int(sc.SUBNET_OF[host])
    row = int(np.flatnonzero(subnet == sc.SUBNET_OF).tolist().index(host))
    return _HEAD + row * (_HEIGHT + _GAP), _left_of(subnet)


def _draw_routes(picture: NDArray[np.uint8], state: int, routes: Sequence[tuple[int, int]]) -> None:
    """From host to host through the room between the columns, and from subnet to subnet above them."""
    held = state >> PRIVILEGED | state >> REMOVABLE | state >> STUCK
    for column, is_open in ((1, True), (2, held & sc.GATES > 0)):
        left = _left_of(_COLUMNS[column])
        picture[_HEAD // 2 - 2 : _HEAD // 2, left - _ROUTES : left] = OPEN_ROUTE if is_open else ROUTE
    # Open ones last, so that they lie on top.
    for host, other in sorted(routes, key=lambda one: state >> PRIVILEGED + one[0] & 1):
        colour = OPEN_ROUTE if state >> PRIVILEGED + host & 1 else ROUTE
        (top, left), (other_top, other_left) = _corner(host), _corner(other)
        start, end = left + _WIDTH, other_left
        # Each host has a line of its own down the room, so that crossing lines can be told apart.
        bend = min(start + 4 + 3 * (host % 5), end - 3)
        here, there = top + _HEIGHT // 2, other_top + _HEIGHT // 2 - 10 + 4 * (host % 5)
        picture[here : here + 2, start : bend + 2] = colour
        picture[min(here, there) : max(here, there) + 2, bend : bend + 2] = colour
        picture[there : there + 2, bend:end] = colour


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
        write_words(half, 3, 1, word, INK)
    if seen & 3 in _ACTIVITY:
        word, colour = _ACTIVITY[seen & 3]
        box[30:44, 61:-3] = colour
        write_words(box, 32, 62, word, INK)
    decoys = int(network.decoys[slot, DECOY_AT[host]])
    for place, decoy in enumerate(decoy for decoy in range(len(sc.DECOYS)) if decoys >> decoy & 1):
        left = 4 + 9 * place
        box[-16:-4, left : left + 8] = ROBOT
        write_words(box[:, : left + 8], len(box) - 15, left + 1, DECOY_LETTERS[decoy], GROUND)
    if host == sc.OP_SERVER and state >> DOWN & 1:
        write_words(box, 31, 4, "down", INK)


def _write_moves(foot: NDArray[np.uint8], verb: int, target: int, action: int) -> None:
    """Blue's and red's last moves in words, and how to read a box."""
    place = sc.SUBNETS[target] if verb == Verb.sweep else sc.HOSTS[target]
    red = _RED_MOVES[verb] if verb == Verb.sleep else f"{_RED_MOVES[verb]} {place}"
    lines = (("blue", sc.action_name(action), ROBOT), ("red", red, RED_WORDS))
    for number, (who, move, colour) in enumerate(lines):
        write_words(foot, 2 + number * _LINE, _GAP, f"{who:4}: {move}", colour)
    for number, line in enumerate(_LEGEND):
        write_words(foot, 2 + (2 + number) * _LINE, _GAP, line, WALL)
