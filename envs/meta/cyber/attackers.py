"""Red's agents over slots: B_line walks a plan, Meander explores the whole network, Sleep does nothing."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from envs.meta.cyber import scenario as sc
from envs.meta.cyber.network import At, Bools, CyberNetwork, Ints, Verb


class Attacker(IntEnum):
    """Who attacks; the number is that of the task."""

    bline = 0
    meander = 1
    sleep = 2


_BLINE, _MEANDER, _SLEEPER = (int(attacker) for attacker in Attacker)


# -- B_line --------------------------------------------------------------------------------------------------

# B_line's plan: what it does in each of 15 places, where it goes on after a failure, and the targets that are
# the same in all episodes (-1: the user host; -2: the Enterprise host that this one leads to).
PLAN_LENGTH = 15
LAST_PLACE = PLAN_LENGTH - 1
_SWEEP, _SCAN, _EXPLOIT, _ESCALATE = Verb.sweep, Verb.scan, Verb.exploit, Verb.escalate
PLAN = np.array(
    [
        *(_SWEEP, _SCAN, _EXPLOIT, _ESCALATE),
        *(_SCAN, _EXPLOIT, _ESCALATE),
        *(_SWEEP, _SCAN, _EXPLOIT, _ESCALATE),
        *(_SCAN, _EXPLOIT, _ESCALATE, Verb.impact),
    ]
)
_AFTER_FAILURE = np.array([0, 1, 2, 2, 2, 2, 5, 5, 5, 5, 9, 9, 9, 12, 13])
# By 15 * succeeded + place: the next place.
_NEXT_PLACE = np.concatenate([_AFTER_FAILURE, np.minimum(np.arange(PLAN_LENGTH) + 1, LAST_PLACE)])
_TARGETS = np.array([sc.USER, -1, -1, -1, -2, -2, -2, sc.ENTERPRISE, 3, 3, 3, *[sc.OP_SERVER] * 4])
# The place where a scan that got no answer sends B_line back to the user host, once.
_EXPLOIT_SERVER, _SCAN_USER = 12, 1

# -- the published links -------------------------------------------------------------------------------------

USER_HOSTS = np.array([9, 10, 11, 12])
# The Enterprise host that User1 to User4 lead to.
LEADS_TO = np.array([2, 2, 1, 1])

# -- Meander -------------------------------------------------------------------------------------------------

# What Meander believes, 13 bits each: hosts that it has scanned, exploited and escalated (as it acts, not as
# it succeeds), and hosts of which an exploit ever succeeded.
SCANNED, EXPLOITED, ESCALATED, MAPPED = 0, 13, 26, 39
# What it knows: addresses and names, 13 bits each; subnets, and those that it has swept, 3 bits each.
ADDRESSES, NAMES, SUBNETS_KNOWN, SWEPT = 0, 13, 26, 29
_HOSTS, _NETS = 0x1FFF, 7
_OPERATIONAL, _ENTERPRISE = int(sc.HOSTS_OF[sc.OPERATIONAL]), sc.GATES
# By verb: where the target is noted when Meander acts, in what it knows (a sweep) and in what it believes.
_NOTES_IN_BELIEFS = np.array([0, 0, 1 << SCANNED, 1 << EXPLOITED, 1 << ESCALATED, 0])
_FIRST_KNOWN = 1 << ADDRESSES + sc.FOOTHOLD | 1 << NAMES + sc.FOOTHOLD | 1 << SUBNETS_KNOWN + sc.USER
_NET_BIT = 1 << (SUBNETS_KNOWN + sc.SUBNET_OF)


class Attackers:
    """The attacker of every slot: who it is, what it did last, and what it believes."""

    def __init__(self, num_slots: int, network: CyberNetwork, ordered: bool = False) -> None:
        self.network = network
        self.kind = np.full(num_slots, _SLEEPER)
        self.verb = np.zeros(num_slots, np.int64)
        self.target = np.zeros(num_slots, np.int64)
        # B_line: where in its plan it is, the farthest that it was, its targets.
        self.place = np.zeros(num_slots, np.int64)
        self.farthest = np.zeros(num_slots, np.int64)
        self._plans = np.tile(_TARGETS, (num_slots, 1))
        # Meander: what it believes and knows; what escalating each host tells it (as a set of addresses).
        self.beliefs = np.zeros(num_slots, np.int64)
        self.knows = np.zeros(num_slots, np.int64)
        self._links = np.zeros((num_slots, 16), np.int64)
        # Whether Meander takes its targets in an order that belongs to the task, and that order.
        self._ordered = ordered
        self._order = np.tile(np.arange(sc.NUM_HOSTS), (num_slots, 1))

    def reset(self, slots: Ints, kind: Ints, user_host: Ints, leads_to: Ints, order: Ints | None) -> None:
        """A new attacker in these slots; `leads_to` is [n, 4], the Enterprise hosts that users lead to."""
        self.kind[slots] = kind
        self.verb[slots] = Verb.sleep
        self.target[slots] = self.place[slots] = self.farthest[slots] = self.beliefs[slots] = 0
        self.knows[slots] = _FIRST_KNOWN
        gate = leads_to[np.arange(len(slots)), user_host - USER_HOSTS[0]]
        plan = np.where(_TARGETS == -1, user_host[:, None], _TARGETS)
        self._plans[slots] = np.where(_TARGETS == -2, gate[:, None], plan)
        links = np.zeros((len(slots), 16), np.int64)
        links[:, : sc.NUM_HOSTS] = 1 << np.arange(sc.NUM_HOSTS)
        links[:, USER_HOSTS] |= 1 << leads_to
        links[:, 3] |= 1 << sc.OP_SERVER
        self._links[slots] = links
        if order is not None:
            self._order[slots] = order

    def routes(self, slot: int) -> list[tuple[int, int]]:
        """(host, other host) where escalating the first tells the address of the second."""
        links = self._links[slot].tolist()
        hosts = range(sc.NUM_HOSTS)
        return [
            (host, other) for host in hosts for other in hosts if links[host] >> other & 1 and other != host
        ]

    def choose(self, slots: Ints, at: At, draws: NDArray[np.float64]) -> tuple[Ints, Ints]:
        """The verbs and targets of this step; one uniform draw for each slot."""
        kind = self.kind[at]
        self._choose_bline(slots[kind == _BLINE])
        meander = np.flatnonzero(kind == _MEANDER)
        group = slots[meander]
        self.digest(group)
        verb, candidates = self.candidates(group)
        self.take(group, verb, self._picked(group, verb, candidates, draws[meander]))
        return self.verb[at], self.target[at]

    # -- B_line ----------------------------------------------------------------------------------------------

    def _choose_bline(self, group: Ints) -> None:
        succeeded = self.network.red_success[group] == 1
        place = _NEXT_PLACE[PLAN_LENGTH * succeeded + self.place[group]]
        # Once in an episode it notices that Op_Server0 did not answer, and starts again at the user host.
        arrived = (place == _EXPLOIT_SERVER) & (self.farthest[group] < _EXPLOIT_SERVER)
        place = np.where(arrived & self.network.unanswered[group], _SCAN_USER, place)
        self.farthest[group] = np.maximum(self.farthest[group], place)
        self.place[group] = place
        self.verb[group] = PLAN[place]
        self.target[group] = self._plans[group, place]

    # -- Meander ---------------------------------------------------------------------------------------------

    def digest(self, group: Ints) -> None:
        """What Meander learns from its last action."""
        verb, target = self.verb[group], self.target[group]
        succeeded = self.network.red_success[group] == 1
        beliefs, knows = self.beliefs[group], self.knows[group]
        # A sweep tells addresses, an exploit a name, an escalation links and the host's subnet.
        swept = succeeded & (verb == Verb.sweep)
        knows |= swept * sc.HOSTS_OF[np.minimum(target, 2)] << ADDRESSES
        exploits = verb == Verb.exploit
        won = exploits & succeeded
        knows |= won << NAMES + target
        beliefs |= won << MAPPED + target
        told = succeeded & (verb == Verb.escalate)
        knows |= told * (self._links[group, target] << ADDRESSES | _NET_BIT[target])
        # After a failed exploit it doubts its way: what it escalated in the Operational subnet, or else in
        # the Enterprise subnet, it takes for lost.
        lost = exploits & ~succeeded
        escalated = (beliefs >> ESCALATED) & lost * _HOSTS
        beyond = escalated & _OPERATIONAL
        doubted = np.where(beyond > 0, beyond, escalated & _ENTERPRISE)
        # After a failed escalation or Impact it tries the host again from the start, if it ever had it.
        denied = ((verb == Verb.escalate) | (verb == Verb.impact)) & ~succeeded
        again = denied & (beliefs >> MAPPED + target)
        beliefs &= ~((doubted | denied << target) << ESCALATED)
        beliefs &= ~((doubted | (lost | again) << target) << EXPLOITED)
        self.beliefs[group], self.knows[group] = beliefs, knows

    def candidates(self, group: Ints) -> tuple[Ints, Ints]:
        """The verb of Meander's next action, and the set of its possible targets."""
        beliefs, knows = self.beliefs[group], self.knows[group]
        exploited, escalated = beliefs >> EXPLOITED, beliefs >> ESCALATED
        addresses = knows & _HOSTS
        # From the last resort to the first choice, so that the first choice stands at the end.
        verb = np.full(len(group), Verb.exploit)
        found = addresses & ~exploited
        for other, targets in (
            (Verb.escalate, (knows >> NAMES) & ~escalated & ~((beliefs >> MAPPED) & ~exploited) & _HOSTS),
            (Verb.scan, addresses & ~(beliefs >> SCANNED)),
            (Verb.sweep, (knows >> SUBNETS_KNOWN) & ~(knows >> SWEPT) & _NETS),
            (Verb.impact, escalated & 1 << sc.OP_SERVER),
        ):
            possible = targets > 0
            verb = np.where(possible, other, verb)
            found = np.where(possible, targets, found)
        return verb, found

    def _picked(self, group: Ints, verb: Ints, candidates: Ints, draws: NDArray[np.float64]) -> Ints:
        """One of the candidates: the first subnet; else uniform, or the first in the task's order."""
        if self._ordered:
            order = self._order[group]
            place = np.argmax((candidates[:, None] >> order) & 1, axis=1)
            ordered = order[np.arange(len(group)), place]
            return np.where(verb == Verb.sweep, sc.NTH[candidates * sc.NUM_HOSTS], ordered)
        number = (draws * sc.SIZE[candidates]).astype(np.int64) * (verb != Verb.sweep)
        return sc.NTH[candidates * sc.NUM_HOSTS + number].astype(np.int64)

    def take(self, group: Ints, verb: Ints, target: Ints) -> None:
        """Meander acts: it notes the target now, not when it succeeds."""
        self.verb[group], self.target[group] = verb, target
        self.beliefs[group] |= _NOTES_IN_BELIEFS[verb] << target
        self.knows[group] |= (verb == Verb.sweep) << SWEPT + target


class Arms:
    """Red's choice of an exploit in every slot: which ranks first, and how often that one is taken."""

    def __init__(self, num_slots: int, network: CyberNetwork) -> None:
        self._network = network
        # The chance of the heaviest, and that of a winning exploit to be seen.
        self.heaviest_chance = np.zeros(num_slots)
        self.detection_chance = np.zeros(num_slots)
        # By set of exploits: the heaviest of them.
        self._heaviest = np.zeros((num_slots, 1 << sc.NUM_EXPLOITS), np.uint8)

    def reset(self, slots: Ints, chances: NDArray[np.float64], ranking: Ints) -> None:
        """New chances and ranks, for each slot or once for all.

        `chances` is [n or 1, 2], of the heaviest and of being seen; `ranking` is [n or 1, 8] exploits, the
        heaviest first.
        """
        self.heaviest_chance[slots] = chances[:, 0]
        self.detection_chance[slots] = chances[:, 1]
        sets = np.arange(1 << sc.NUM_EXPLOITS)
        heaviest = np.zeros((len(ranking), len(sets)), np.uint8)
        # From the lightest to the heaviest, so that the heaviest member of a set stands at the end.
        for exploit in ranking.T[::-1, :, None]:
            heaviest = np.where((sets >> exploit) & 1 > 0, exploit, heaviest)
        self._heaviest[slots] = heaviest

    def choose(self, slots: Ints, verb: Ints, target: Ints, draws: NDArray[np.float64]) -> Ints:
        """The exploits of this step, by two draws for each slot; NO_EXPLOIT where there is none."""
        chosen = np.full(len(slots), sc.NO_EXPLOIT)
        group = np.flatnonzero(verb == Verb.exploit)
        own = slots[group]
        options = sc.OPTIONS[self._network.memory[own, target[group]]]
        heaviest = self._heaviest[own, options].astype(np.int64)
        others = options & ~(1 << heaviest)
        count = sc.SIZE[others]
        other = sc.NTH[others * sc.NUM_HOSTS + (draws[group, 1] * count).astype(np.int64)]
        takes_heaviest: Bools = (draws[group, 0] < self.heaviest_chance[own]) | (count == 0)
        picked = np.where(takes_heaviest, heaviest, other)
        chosen[group] = np.where(options > 0, picked, sc.NO_EXPLOIT)
        return chosen
