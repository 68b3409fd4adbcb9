"""Meander once more in plain Python, for one slot: what it knows and believes as sets of names."""

from __future__ import annotations

from benchmarks.parts.defence.plain_network import HOSTS

SWEEP, SCAN, EXPLOIT, ESCALATE, IMPACT = range(1, 6)
SUBNETS = {
    "Enterprise": {"Defender", "Enterprise0", "Enterprise1", "Enterprise2"},
    "Operational": {"Op_Server0", "Op_Host0", "Op_Host1", "Op_Host2"},
    "User": {"User0", "User1", "User2", "User3", "User4"},
}
GATES = {"Enterprise0", "Enterprise1", "Enterprise2"}
LEADS_TO = {
    "User1": "Enterprise1",
    "User2": "Enterprise1",
    "User3": "Enterprise0",
    "User4": "Enterprise0",
    "Enterprise2": "Op_Server0",
}


class PlainMeander:
    """What Meander knows and believes, and which actions it may take next."""

    def __init__(self) -> None:
        self.subnets, self.addresses, self.names = {"User"}, {"User0"}, {"User0"}
        self.swept, self.scanned = set[str](), set[str]()
        self.exploited, self.escalated, self.mapped = set[str](), set[str](), set[str]()
        self._last: tuple[int, str] | None = None

    def digest(self, succeeded: bool) -> None:
        """Learn from the last action."""
        if self._last is None:
            return
        verb, target = self._last
        if succeeded:
            self._gain(verb, target)
        elif verb == EXPLOIT:
            self.exploited.discard(target)
            self._doubt()
        elif verb in (ESCALATE, IMPACT):
            self.escalated.discard(target)
            if target in self.mapped:
                self.exploited.discard(target)

    def _gain(self, verb: int, target: str) -> None:
        if verb == SWEEP:
            self.addresses |= SUBNETS[target]
        elif verb == EXPLOIT:
            self.names.add(target)
            self.mapped.add(target)
        elif verb == ESCALATE:
            self.addresses |= {target, LEADS_TO.get(target, target)}
            self.subnets |= {net for net, hosts in SUBNETS.items() if target in hosts}

    def _doubt(self) -> None:
        """A failed exploit: it takes its farthest hosts for lost."""
        beyond = self.escalated & SUBNETS["Operational"]
        lost = beyond or self.escalated & GATES
        self.escalated -= lost
        self.exploited -= lost

    def options(self) -> tuple[int, set[str]]:
        """The verb of the next action, and its possible targets."""
        if "Op_Server0" in self.escalated:
            return IMPACT, {"Op_Server0"}
        for net in SUBNETS:
            if net in self.subnets - self.swept:
                return SWEEP, {net}
        given_up = self.mapped - self.exploited
        for verb, targets in (
            (SCAN, self.addresses - self.scanned),
            (ESCALATE, self.names - self.escalated - given_up),
        ):
            if targets:
                return verb, targets
        return EXPLOIT, self.addresses - self.exploited

    def take(self, verb: int, target: str) -> None:
        """Act: the target is noted now, whether or not it works."""
        self._last = verb, target
        noted = {SWEEP: self.swept, SCAN: self.scanned, EXPLOIT: self.exploited, ESCALATE: self.escalated}
        if verb in noted:
            noted[verb].add(target)


def name_of(verb: int, target: int) -> str:
    """The name of a target, as the family numbers it."""
    return list(SUBNETS)[target] if verb == SWEEP else HOSTS[target]
