"""The rules of CyberDefence once more, for one slot and in plain Python: the reference of tests and speed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

HOSTS = [
    *("Defender", "Enterprise0", "Enterprise1", "Enterprise2", "Op_Host0", "Op_Host1", "Op_Host2"),
    *("Op_Server0", "User0", "User1", "User2", "User3", "User4"),
]
WINDOWS = {"Enterprise1", "Enterprise2", "User0", "User1", "User2"}
BIG = [22, 135, 3389, 445, 139, 80, 443]
LISTENS = {
    **{key: [22] for key in HOSTS},
    "Defender": [22, 53, 53, 68],
    "Enterprise1": BIG,
    "Enterprise2": BIG,
    "User0": [22, 21],
    "User1": [22, 21],
    "User2": [445, 139, 135, 3389],
    "User3": [80, 3389, 443, 25],
    "User4": [22, 80, 3390, 443, 25],
}
# Decoy: the port that it opens, the port that it checks, the system that it needs.
DECOYS = {
    "Apache": (80, 80, None),
    "Femitter": (21, 21, True),
    "Haraka": (25, 25, False),
    "Smss": (139, 139, True),
    "SSHD": (22, 22, None),
    "Svchost": (3389, 3389, True),
    "Tomcat": (443, 443, None),
    "Vsftpd": (80, 21, False),
}
VERBS = ["Analyse", "Remove", *DECOYS, "Restore"]
EXPLOITS = ["EternalBlue", "BlueKeep", "HTTPRFI", "HTTPSRFI", "SSH", "SQL", "Haraka", "FTP"]
EXPLOIT_PORT = dict(zip(EXPLOITS, [139, 3389, 80, 443, 22, 3390, 25, 21], strict=True))
STOPPED_BY = {
    "EternalBlue": {"Smss"},
    "BlueKeep": {"Svchost"},
    "HTTPRFI": {"Apache", "Vsftpd"},
    "HTTPSRFI": {"Tomcat"},
    "SSH": {"SSHD"},
    "SQL": set(),
    "Haraka": {"Haraka"},
    "FTP": {"Femitter"},
}
WEB = {"HTTPRFI": "user", "HTTPSRFI": "user"}
OPENS_SESSION = {
    "Enterprise1": {"BlueKeep": "root", **WEB},
    "Enterprise2": {"BlueKeep": "root", **WEB},
    "User0": {"FTP": "root"},
    "User1": {"FTP": "root"},
    "User2": {"EternalBlue": "root", "BlueKeep": "user"},
    "User3": {"Haraka": "root", **WEB},
    "User4": {"Haraka": "root", "SQL": "root", **WEB},
}


@dataclass
class Host:
    """What is on one host."""

    root: bool = False
    removable: bool = False
    stuck: bool = False
    file: bool = False
    restored: bool = False
    decoys: list[str] = field(default_factory=list)
    compromised: str = "No"

    @property
    def session(self) -> bool:
        return self.root or self.removable or self.stuck


class PlainNetwork:
    """One slot."""

    def __init__(self, era_2022: bool = False, cardiff: bool = False, fix_impact: bool = False) -> None:
        self.era_2022, self.cardiff, self.fix_impact = era_2022, cardiff, fix_impact
        self.hosts = {name: Host(root=name == "User0") for name in HOSTS}
        self.down = self.immune = self.known = False
        # Whether red's last move succeeded, and the ports that its last scan found.
        self.succeeded, self.answer = False, list[int]()

    def step(
        self, action: int, red: tuple[int, int, int, bool], scanned: int = -1
    ) -> tuple[list[int], float]:
        """Blue, green and red act: the 52 numbers and the reward."""
        items: dict[str, list[Any]] = {name: [] for name in HOSTS}
        verb = VERBS[(action - 2) // 13] if action >= 2 else "Sleep"
        name = HOSTS[(action - 2) % 13]
        found = self._blue(verb, name, items)
        if scanned >= 0:
            items[HOSTS[scanned]] += self.listening(HOSTS[scanned])
        self._red(red, items)
        numbers: list[int] = []
        for other in HOSTS:
            activity = self._activity(items[other])
            host = self.hosts[other]
            if activity == "Exploit":
                host.compromised = "User"
            if found and other == name:
                host.compromised = "Privileged"
            numbers += {"None": [0, 0], "Scan": [1, 0], "Exploit": [1, 1]}[activity]
            numbers += {"No": [0, 0], "Unknown": [1, 0], "User": [0, 1], "Privileged": [1, 1]}[
                host.compromised
            ]
        tenths = 100 * self.down + 10 * (verb == "Restore")
        for other, host in self.hosts.items():
            dear = other in ("Enterprise0", "Enterprise1", "Enterprise2", "Op_Server0")
            if host.root and other != "User0":
                tenths += 10 if dear else 1
        return numbers, -tenths / 10

    def listening(self, name: str) -> list[int]:
        return LISTENS[name] + [DECOYS[decoy][0] for decoy in self.hosts[name].decoys]

    def _blue(self, verb: str, name: str, items: dict[str, list[Any]]) -> bool:
        """Blue acts; whether it has found a file."""
        host = self.hosts[name]
        if verb == "Analyse":
            return host.file
        if verb == "Remove":
            host.removable = False
            host.compromised = "No" if host.compromised == "No" else "Unknown"
        elif verb == "Restore":
            self.hosts[name] = Host(root=name == "User0", restored=True)
            if name == "Op_Server0":
                self.down, self.immune = False, not self.fix_impact
        elif verb in DECOYS:
            _, checked, windows = DECOYS[verb]
            if checked not in self.listening(name) and windows in (None, name in WINDOWS):
                host.decoys.append(verb)
                items[name].append("decoy")
        return False

    def _red(self, red: tuple[int, int, int, bool], items: dict[str, list[Any]]) -> None:
        verb, target, exploit, detected = red
        gate = any(self.hosts[f"Enterprise{number}"].session for number in range(3))
        self.answer, self.succeeded = [], verb == 2 or (verb == 1 and (gate or target != 1))
        if verb < 2:
            return
        name = HOSTS[target]
        host = self.hosts[name]
        reached = gate or not name.startswith("Op_")
        if verb == 2 and reached:
            self.answer = self.listening(name)
            items[name] += self.answer
        elif verb == 3 and reached and exploit < 8:
            items[name] += self._exploited(name, EXPLOITS[exploit], detected)
        elif verb == 4 and host.session:
            host.file = host.file or not host.root
            host.root = True
            self.known = self.known or name == "Op_Server0"
            self.succeeded = True
        elif verb == 5 and host.session and self.known:
            self.down = self.down or not self.immune
            self.succeeded = True

    def _exploited(self, name: str, exploit: str, detected: bool) -> list[Any]:
        """The events of an exploit."""
        host, port = self.hosts[name], EXPLOIT_PORT[exploit]
        decoyed = bool(STOPPED_BY[exploit] & set(host.decoys))
        if exploit == "SSH":
            own = 22 in LISTENS[name]
            if own and name != "Defender":
                host.stuck = self.succeeded = True
                return [22] * 11
            return [22] * 10 if own or decoyed else []
        if self.era_2022 and exploit == "Haraka" and host.restored and name in ("User3", "User4"):
            return [port]
        level = OPENS_SESSION.get(name, {}).get(exploit)
        if level is None:
            return [port, port] if decoyed else []
        host.file = self.succeeded = True
        host.root = host.root or level == "root"
        host.removable = host.removable or (level == "user" and detected)
        host.stuck = host.stuck or (level == "user" and not detected)
        return [port, "from 4444"] if detected else [port]

    def _activity(self, items: list[Any]) -> str:
        """What blue makes of the items of one host."""
        ports = {item for item in items if item != "decoy"}
        if not items:
            return "None"
        if len(items) >= 3 and len(ports) >= 3:
            return "Scan"
        if "from 4444" in ports or (len(items) >= 3 and len(ports) == 1):
            return "Exploit"
        if "decoy" in items and (not self.cardiff or len(items) == 1):
            return "None"
        return "Scan"
