"""The network over slots: what blue, green and red do to it in a step, and what blue sees of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.meta.cyber import scenario as sc

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
At = NDArray[np.int64] | slice


class Verb:
    """What red can do; its target is a subnet for `sweep`, Op_Server0 for `impact`, else a host."""

    # Plain numbers: the members of an enumeration cost more to look up than a step's arithmetic.
    sleep, sweep, scan, exploit, escalate, impact = range(6)


@dataclass(frozen=True)
class Rules:
    """In what the published versions differ."""

    # The leader board's code: a scan adds to red's memory; Haraka fails on a restored User3 or User4.
    era_2022: bool = False
    # CardiffUni's wrapper: a decoy hides what happens beside it only where nothing happens.
    cardiff: bool = False
    # Restoring Op_Server0 does not make Impact harmless for ever.
    fix_impact: bool = False


class RedMove(NamedTuple):
    """What red does in each slot, with the draws that it needs."""

    verb: Ints
    target: Ints
    # The exploit that red chose; NO_EXPLOIT where it knows no port.
    exploit: Ints
    # Whether an exploit that wins is seen.
    detected: Bools


class Activity(NamedTuple):
    """The events on one host in one step: how many, and the set of their local ports."""

    number: Ints
    ports: Ints


# -- the state of a slot, in one number ----------------------------------------------------------------------

# 13 bits each: privileged sessions, user sessions that Remove kills, those that it does not, malware files.
PRIVILEGED, REMOVABLE, STUCK, MALWARE = 0, 13, 26, 39
# One bit each: Op_Server0's service is down, can no more be stopped, is known to red.
DOWN, IMMUNE, KNOWN = 52, 53, 54
# User3 and User4 have been restored.
RESTORED = 55
# A bit that is never set.
_NEVER = 62
_ALL_SETS = (1 << 52) - 1

# What blue sees: four bits for each host, two of activity and two of compromise.
NO, UNKNOWN, USER_SEEN, PRIVILEGED_SEEN = range(4)
QUIET, SCAN_SEEN, EXPLOIT_SEEN = 0, 1, 3
NUM_SEEN = 4 * sc.NUM_HOSTS

# Where a host's decoys stand among 24 bytes: six hosts in each eight, so that a double holds them exactly.
DECOY_COLUMNS = 24
DECOY_AT = np.array([8 * (host // 6) + host % 6 for host in range(sc.NUM_HOSTS)])


def _after_blue(rules: Rules) -> tuple[Ints, Ints]:
    """By action: the bits of the state that it keeps, and those that it sets."""
    keeps, sets = np.full(sc.NUM_ACTIONS, -1), np.zeros(sc.NUM_ACTIONS, np.int64)
    for host in range(sc.NUM_HOSTS):
        keeps[sc.action_number(sc.REMOVE, host)] = ~(1 << (REMOVABLE + host))
        # The foothold is never lost.
        cleared = (REMOVABLE, STUCK, MALWARE) if host == sc.FOOTHOLD else (0, REMOVABLE, STUCK, MALWARE)
        keeps[sc.action_number(sc.RESTORE, host)] = ~sum(1 << (start + host) for start in cleared)
    for host in (11, 12):
        sets[sc.action_number(sc.RESTORE, host)] = 1 << (RESTORED + host - 11)
    restore_server = sc.action_number(sc.RESTORE, sc.OP_SERVER)
    keeps[restore_server] &= ~(1 << DOWN)
    sets[restore_server] = 0 if rules.fix_impact else 1 << IMMUNE
    return keeps, sets


def _seen_after_blue() -> tuple[Ints, Ints]:
    """By action: the bits that blue keeps seeing, and the bit of "Unknown" where it removes."""
    # Activity is of one step only.
    compromise = sum(12 << 4 * host for host in range(sc.NUM_HOSTS))
    keeps, unknown = np.full(sc.NUM_ACTIONS, compromise), np.zeros(sc.NUM_ACTIONS, np.int64)
    for host in range(sc.NUM_HOSTS):
        low = 1 << (4 * host + 2)
        keeps[sc.action_number(sc.RESTORE, host)] &= ~(3 * low)
        # Remove: whatever was not "No" becomes "Unknown": the high bit moves down.
        keeps[sc.action_number(sc.REMOVE, host)] &= ~(2 * low)
        unknown[sc.action_number(sc.REMOVE, host)] = low
    return keeps, unknown


_SEEN_KEPT, _UNKNOWN_BIT = _seen_after_blue()
# By action: which bit of the state an Analyse looks at, and what blue sees where that bit is set.
_LOOKS_AT = np.where(sc.VERB_OF == sc.ANALYSE, MALWARE + sc.HOST_OF, _NEVER)
_FOUND = np.where(sc.VERB_OF == sc.ANALYSE, PRIVILEGED_SEEN << (4 * sc.HOST_OF + 2), 0)
# Sleep's success is unknown (2), all others succeed; a decoy succeeds where it was placed.
_BLUE_SUCCESS = np.where(sc.DECOY_PLACED > 0, 0, 1)
_BLUE_SUCCESS[sc.SLEEP] = 2

# By verb * 16 + target: whether only a session on a gate opens the way.
_BEHIND_GATES = np.zeros(6 * 16, np.bool_)
_BEHIND_GATES[Verb.sweep * 16 + sc.OPERATIONAL] = True
for _verb in (Verb.scan, Verb.exploit):
    _BEHIND_GATES[_verb * 16 + 4 : _verb * 16 + 8] = True

# By 2 * outcome + detected: what an exploit gives (to be shifted by the host), its events, whether one of
# them comes from port 4444, and whether it succeeds.
_USER_SEEN, _USER_UNSEEN = (1 << bit | 1 << MALWARE for bit in (REMOVABLE, STUCK))
_BOTH = 1 << PRIVILEGED | 1 << MALWARE
_GAIN = np.array([0, 0, _USER_UNSEEN, _USER_SEEN, _BOTH, _BOTH, 1 << STUCK, 1 << STUCK, *[0] * 6])
_COUNT = np.array([0, 0, 1, 2, 1, 2, 11, 11, 10, 10, 2, 2, 1, 1])
_CALLS_HOME = np.array([0, 0, 0, 1, 0, 1, *[0] * 8]) * sc.EPHEMERAL
_WINS = np.array([0, 0, *[1] * 6, *[0] * 6])


def _readings(rules: Rules) -> Ints:
    """What blue makes of a host's events.

    The key is ((4 * items + ports) * 2 + from 4444) * 2 + a decoy was placed, where items and different ports
    are counted to 3. A decoy that was placed in this step is an item without a port.
    """
    found = np.zeros(64, np.int64)
    for key in range(64):
        items, ports, calls_home, placed = key >> 4, key >> 2 & 3, key >> 1 & 1, key & 1
        hides = placed and (items == 1 or not rules.cardiff)
        if items == 0:
            found[key] = QUIET
        elif items == 3 and ports == 3:
            found[key] = SCAN_SEEN
        elif calls_home or (items == 3 and ports == 1):
            found[key] = EXPLOIT_SEEN
        else:
            found[key] = QUIET if hides else SCAN_SEEN
    return found


class CyberNetwork:
    """The network of every slot."""

    def __init__(self, num_slots: int, rules: Rules) -> None:
        self.rules = rules
        self.state = np.zeros(num_slots, np.int64)
        # What blue has seen of compromise, and in this step of activity.
        self.seen = np.zeros(num_slots, np.int64)
        self.decoys = np.zeros((num_slots, DECOY_COLUMNS), np.uint8)
        # The ports of each host in red's memory; a set of no ports is a host that was never scanned.
        self.memory = np.zeros((num_slots, 16), np.int16)
        # 0 no, 1 yes, 2 unknown; and whether red's last scan got no answer.
        self.red_success = np.zeros(num_slots, np.int64)
        self.blue_success = np.zeros(num_slots, np.int64)
        self.unanswered = np.zeros(num_slots, np.bool_)
        self._flat_decoys, self._flat_memory = self.decoys.reshape(-1), self.memory.reshape(-1)
        self._keeps, self._sets = _after_blue(rules)
        self._readings = _readings(rules)

    def reset(self, slots: Ints) -> None:
        """Everything is empty, but red sits on User0."""
        self.state[slots] = 1 << (PRIVILEGED + sc.FOOTHOLD)
        for array in (self.seen, self.decoys, self.memory, self.unanswered):
            array[slots] = 0
        self.red_success[slots] = 2

    def step(self, slots: Ints, at: At, actions: Ints, red: RedMove, scanned: Ints | None) -> Ints:
        """Blue, green and red act, in this order; the cost of it, in tenths.

        `scanned` is the host that green scans, or -1.
        """
        # Blue acts. What an Analyse finds counts at the end of the step, but it looks before red moves.
        state = (self.state[at] & self._keeps[actions]) | self._sets[actions]
        found = (state >> _LOOKS_AT[actions]) & 1
        seen = self.seen[at]
        seen = (seen | ((seen >> 1) & _UNKNOWN_BIT[actions])) & _SEEN_KEPT[actions]
        placed = self._place_decoys(slots, actions)
        self.blue_success[at] = _BLUE_SUCCESS[actions] | placed

        # Red acts, and each host of this step shows what happened there.
        state, events = self._red_acts(slots, at, state, red)
        host = sc.HOST_OF[actions]
        if scanned is None:
            seen = self._notice(seen, red.target, events, placed & (host == red.target))
        else:
            seen = self._notice_both(slots, seen, red.target, events, (scanned, host, placed))
        self.state[at] = state
        self.seen[at] = seen | found * _FOUND[actions]
        return sc.COSTS[state & 0x1FFF] + 100 * ((state >> DOWN) & 1) + sc.ACTION_COST[actions]

    def _place_decoys(self, slots: Ints, actions: Ints) -> Bools:
        """Place decoys where they fit, clear those of restored hosts; whether one was placed."""
        placed = np.zeros(len(slots), np.bool_)
        group = np.flatnonzero(sc.TOUCHES_DECOYS[actions])
        chosen = actions[group]
        host = sc.HOST_OF[chosen]
        index = slots[group] * DECOY_COLUMNS + DECOY_AT[host]
        decoys = self._flat_decoys[index]
        fits = ((sc.OWN_PORTS[host] | sc.DECOY_PORTS[decoys]) & sc.BLOCKED_BY[chosen]) == 0
        self._flat_decoys[index] = (decoys | fits * sc.DECOY_PLACED[chosen]) & sc.DECOYS_KEPT[chosen]
        placed[group] = fits
        return placed

    def _listening(self, slots: Ints, hosts: Ints) -> Ints:
        """The ports on which these hosts listen now."""
        return (
            sc.OWN_PORTS[hosts] | sc.DECOY_PORTS[self._flat_decoys[slots * DECOY_COLUMNS + DECOY_AT[hosts]]]
        )

    # -- red -------------------------------------------------------------------------------------------------

    def _red_acts(self, slots: Ints, at: At, state: Ints, red: RedMove) -> tuple[Ints, Activity]:
        """The state after red's move, and the events on its target."""
        verb, target = red.verb, red.target
        # Sets of hosts with any session; only the lowest 13 bits of it are meant.
        held = state | (state >> REMOVABLE) | (state >> STUCK)
        session = (held >> target) & 1
        reached = ((held & sc.GATES) > 0) | ~_BEHIND_GATES[verb * 16 + target]
        events = Activity(np.zeros(len(slots), np.int64), np.zeros(len(slots), np.int64))

        # A scan always succeeds, also where nobody answers; a sweep needs the way.
        scans = verb == Verb.scan
        self.unanswered[at] = scans & ~reached
        success = scans | ((verb == Verb.sweep) & reached)
        self._scan(slots, np.flatnonzero(scans & reached), target, events)
        # An escalation needs a session. Where it is new it leaves a file; on Op_Server0 it shows the service.
        escalates = (verb == Verb.escalate) & session
        fresh = escalates & ~(state >> target)
        impacts = (verb == Verb.impact) & session & (state >> KNOWN)
        # Impact stops the service, unless it is immune, and claims success all the same.
        stops = impacts & ~(state >> IMMUNE)
        state = state | (fresh * _BOTH << target) | (stops << DOWN)
        state |= (escalates & (target == sc.OP_SERVER)) << KNOWN
        success = success | escalates | impacts | (2 * (verb == Verb.sleep))
        group = np.flatnonzero((verb == Verb.exploit) & reached & (red.exploit < sc.NUM_EXPLOITS))
        self._exploit(slots, group, red, state, success, events)
        self.red_success[at] = success
        return state, events

    def _scan(self, slots: Ints, group: Ints, target: Ints, events: Activity) -> None:
        """Red remembers the ports that listen now; one event on each."""
        host = target[group]
        listening = self._listening(slots[group], host)
        index = slots[group] * 16 + host
        remembered = listening | self._flat_memory[index] if self.rules.era_2022 else listening
        self._flat_memory[index] = remembered
        events.number[group], events.ports[group] = sc.SIZE[listening], listening

    def _exploit(
        self, slots: Ints, group: Ints, red: RedMove, state: Ints, success: Ints, events: Activity
    ) -> None:
        """The exploits of these slots; writes state, success and events."""
        host, exploit = red.target[group], red.exploit[group]
        outcome = sc.OUTCOMES[exploit * sc.NUM_HOSTS + host]
        # A host's own services come first, so a decoy counts only where nothing of the host answers.
        served = self._flat_decoys[slots[group] * DECOY_COLUMNS + DECOY_AT[host]] & sc.SERVED_BY[exploit]
        fallen = np.where(exploit == sc.SSH, sc.SSH_LOST, sc.INTO_DECOY)
        outcome = np.where((outcome == sc.NOTHING) & (served > 0), fallen, outcome)
        if self.rules.era_2022:
            restored = (
                (exploit == sc.HARAKA) & (host >= 11) & ((state[group] >> (RESTORED - 11 + host)) & 1 > 0)
            )
            outcome = np.where(restored, sc.BROKEN, outcome)
        key = 2 * outcome + red.detected[group]
        state[group] |= _GAIN[key] << host
        success[group] = _WINS[key]
        events.number[group] = _COUNT[key]
        events.ports[group] = sc.PORT_OF[exploit] | _CALLS_HOME[key]

    # -- what blue sees --------------------------------------------------------------------------------------

    def _notice(self, seen: Ints, hosts: Ints, events: Activity, placed: Bools) -> Ints:
        """What blue sees after these events on one host of each slot; `placed`: a decoy was, in this step."""
        items = events.number + placed
        key = 4 * np.minimum(items, 3) + np.minimum(sc.SIZE[events.ports & 0x1FFF], 3)
        calls_home = events.ports >= sc.EPHEMERAL
        activity = self._readings[(2 * key + calls_home) * 2 + placed]
        nibble = 4 * hosts
        # An exploit that is seen makes the host "User", also where it was "Privileged".
        exploited = activity == EXPLOIT_SEEN
        return (seen & ~((exploited * 12) << nibble)) | ((exploited * 8 + activity) << nibble)

    def _notice_both(
        self, slots: Ints, seen: Ints, target: Ints, events: Activity, others: tuple[Ints, Ints, Bools]
    ) -> Ints:
        """The same, where green scans a host too: red's target may be that host or another."""
        scanned, placed_on, placed = others
        scans = scanned >= 0
        host = np.maximum(scanned, 0)
        listening = self._listening(slots, host) * scans
        here = scans & (host == target)
        both = Activity(
            events.number + sc.SIZE[listening] * here, events.ports * (events.number > 0) | listening * here
        )
        seen = self._notice(seen, target, both, placed & (placed_on == target))
        away = np.flatnonzero(scans & ~here)
        alone = Activity(sc.SIZE[listening[away]], listening[away])
        seen[away] = self._notice(
            seen[away], host[away], alone, placed[away] & (placed_on[away] == host[away])
        )
        return seen
