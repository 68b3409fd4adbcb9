"""The network of the scenario: hosts, ports, decoys, exploits, costs and blue's actions, as tables.

A host is its index everywhere. A set of hosts is a number with a bit for each host, and so is a set of ports,
of decoys or of exploits; what a step needs to know of a set is looked up in a table over all sets.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

HOSTS = (
    *("Defender", "Enterprise0", "Enterprise1", "Enterprise2", "Op_Host0", "Op_Host1", "Op_Host2"),
    *("Op_Server0", "User0", "User1", "User2", "User3", "User4"),
)
NUM_HOSTS = len(HOSTS)
DEFENDER, OP_SERVER, FOOTHOLD = 0, 7, 8
ENTERPRISE, OPERATIONAL, USER = range(3)
SUBNETS = ("Enterprise", "Operational", "User")
SUBNET_OF = np.array([ENTERPRISE] * 4 + [OPERATIONAL] * 4 + [USER] * 5)
IS_WINDOWS = np.array([host in (2, 3, 8, 9, 10) for host in range(NUM_HOSTS)])
# The hosts of each subnet, as sets.
HOSTS_OF = np.array([sum(1 << int(host) for host in np.flatnonzero(SUBNET_OF == net)) for net in range(3)])
# Enterprise0 to Enterprise2: a session on one of them opens the way to the Operational subnet.
GATES = 0b1110
# The hosts that green scans, each as often.
GREEN_SCANS = np.array([8, 9, 10, 11, 12, 1, 2, 3])

# -- ports ---------------------------------------------------------------------------------------------------

PORTS = (21, 22, 25, 80, 135, 139, 443, 445, 3389, 3390, 53, 68)
NUM_PORTS = len(PORTS)
# An event that comes from port 4444 has a local port of its own, different from all others.
EPHEMERAL = 1 << NUM_PORTS


def ports(*numbers: int) -> int:
    """The set of these ports."""
    return sum(1 << PORTS.index(number) for number in numbers)


_SERVER = ports(22, 135, 3389, 445, 139, 80, 443)
# The ports on which each host listens by itself.
OWN_PORTS = np.array(
    [
        ports(22, 53, 68),
        *(ports(22), _SERVER, _SERVER),
        *[ports(22)] * 4,
        *[ports(22, 21)] * 2,
        ports(445, 139, 135, 3389),
        ports(80, 3389, 443, 25),
        ports(22, 80, 3390, 443, 25),
    ]
)

# -- decoys --------------------------------------------------------------------------------------------------

DECOYS = ("Apache", "Femitter", "HarakaSMPT", "Smss", "SSHD", "Svchost", "Tomcat", "Vsftpd")
APACHE, FEMITTER, HARAKA_SMPT, SMSS, SSHD, SVCHOST, TOMCAT, VSFTPD = range(8)
_OPENS = (80, 21, 25, 139, 22, 3389, 443, 80)
# Vsftpd opens 80 and checks 21: it always fits on Linux, again and again.
_CHECKS = (80, 21, 25, 139, 22, 3389, 443, 21)
_NEEDS_WINDOWS = (None, True, False, True, None, True, None, False)

# -- exploits ------------------------------------------------------------------------------------------------

EXPLOITS = ("EternalBlue", "BlueKeep", "HTTPRFI", "HTTPSRFI", "SSH", "SQL", "Haraka", "FTP")
NUM_EXPLOITS = len(EXPLOITS)
ETERNAL_BLUE, BLUE_KEEP, HTTP_RFI, HTTPS_RFI, SSH, SQL, HARAKA, FTP = range(NUM_EXPLOITS)
NO_EXPLOIT = 255
# From the heaviest to the lightest.
RANKING = np.array([FTP, HARAKA, SQL, HTTPS_RFI, HTTP_RFI, ETERNAL_BLUE, BLUE_KEEP, SSH])
# The port where each exploit's events are seen.
PORT_OF = np.array([ports(one) for one in (139, 3389, 80, 443, 22, 3390, 25, 21)])
# The decoys, as a set, that each exploit runs into.
SERVED_BY = np.array(
    [
        *(1 << SMSS, 1 << SVCHOST, 1 << APACHE | 1 << VSFTPD, 1 << TOMCAT),
        *(1 << SSHD, 0, 1 << HARAKA_SMPT, 1 << FEMITTER),
    ]
)

# What an exploit comes to on a host.
(
    NOTHING,  # nothing listens: no trace
    USER_LEVEL,
    PRIVILEGED,
    SSH_WON,
    SSH_LOST,  # SSH into the Defender or into a decoy
    INTO_DECOY,
    BROKEN,  # era=2022: Haraka on a restored host
) = range(7)


def _outcomes() -> NDArray[np.int64]:
    """[exploits * hosts] what each exploit comes to on each host without decoys."""
    found = np.full((NUM_EXPLOITS, NUM_HOSTS), NOTHING)
    found[SSH, (OWN_PORTS & ports(22)) > 0] = SSH_WON
    found[SSH, DEFENDER] = SSH_LOST
    found[BLUE_KEEP, [2, 3]] = PRIVILEGED
    found[HTTP_RFI, [2, 3, 11, 12]] = found[HTTPS_RFI, [2, 3, 11, 12]] = USER_LEVEL
    found[FTP, [8, 9]] = PRIVILEGED
    # EternalBlue works on User2 alone, and SQL not on User3, whose database listens on another port.
    found[ETERNAL_BLUE, 10] = PRIVILEGED
    found[BLUE_KEEP, 10] = USER_LEVEL
    found[HARAKA, [11, 12]] = PRIVILEGED
    found[SQL, 12] = PRIVILEGED
    return found.ravel()


OUTCOMES = _outcomes()

# -- tables over sets ----------------------------------------------------------------------------------------

# [sets * 13] the n-th member of a set of up to 13 things is NTH[set * 13 + n]; its size is SIZE[set].
_MEMBERS = (np.arange(1 << 13)[:, None] >> np.arange(13)) & 1
SIZE = _MEMBERS.sum(axis=1)
NTH = np.argsort(1 - _MEMBERS, axis=1, kind="stable").astype(np.uint8).ravel()

# By set of decoys: the ports that they open.
DECOY_PORTS = np.bitwise_or.reduce(
    _MEMBERS[:256, :8] * np.array([ports(number) for number in _OPENS]), axis=1
)


def _options() -> NDArray[np.int64]:
    """By set of ports: the exploits that they offer."""
    known = np.arange(1 << NUM_PORTS)
    offered = np.zeros(len(known), np.int64)
    for exploit in range(NUM_EXPLOITS):
        offers = (known & PORT_OF[exploit]) > 0
        if exploit == SQL:
            # SQL is an option beside a web server only.
            offers &= (known & ports(80, 443)) > 0
        offered |= offers.astype(np.int64) << exploit
    return offered


OPTIONS = _options()

# By set of privileged hosts: their cost per step, in tenths. User0 is red's foothold and costs nothing.
COSTS = _MEMBERS @ np.array([1, 10, 10, 10, 1, 1, 1, 10, 0, 1, 1, 1, 1])

# -- blue's actions ------------------------------------------------------------------------------------------

NUM_ACTIONS = 145
SLEEP, MONITOR = 0, 1
VERBS = ("Analyse", "Remove", *(f"Decoy{name}" for name in DECOYS), "Restore")
ANALYSE, REMOVE, FIRST_DECOY, RESTORE = 0, 1, 2, 10
_NUMBERS = np.arange(NUM_ACTIONS) - 2
# By action: its verb (-1: Sleep and Monitor) and its host (0 for these two).
VERB_OF = np.where(_NUMBERS >= 0, _NUMBERS // NUM_HOSTS, -1)
HOST_OF = np.where(_NUMBERS >= 0, _NUMBERS % NUM_HOSTS, 0)


def action_number(verb: int, host: int) -> int:
    """The number of the action that does `verb` on `host`."""
    return 2 + NUM_HOSTS * verb + host


def action_name(action: int) -> str:
    """An action in words."""
    if action < 2:
        return ("Sleep", "Monitor")[action]
    return f"{VERBS[VERB_OF[action]]} {HOSTS[HOST_OF[action]]}"


_DECOY_OF = np.clip(VERB_OF - FIRST_DECOY, 0, 7)
_PLACES = (VERB_OF >= FIRST_DECOY) & (VERB_OF < RESTORE)
_FITS_OS = np.array([(True, True) if need is None else (not need, need) for need in _NEEDS_WINDOWS])[
    _DECOY_OF, IS_WINDOWS[HOST_OF].astype(np.int64)
]
# By action: whether it touches decoys; the ports of which none may be open for it to place one (where the
# system is wrong: all, of which every host has some); the decoy, as a set; the decoys that stay.
TOUCHES_DECOYS = VERB_OF >= FIRST_DECOY
BLOCKED_BY = np.where(
    _PLACES & _FITS_OS, np.array([ports(number) for number in _CHECKS])[_DECOY_OF], (1 << NUM_PORTS) - 1
)
DECOY_PLACED = np.where(_PLACES, 1 << _DECOY_OF, 0)
DECOYS_KEPT = np.where(VERB_OF == RESTORE, 0, 255)
# What a Restore costs, in tenths.
ACTION_COST = np.where(VERB_OF == RESTORE, 10, 0)
