"""One game of CyberDefence against B_line in plain Python, as most environments are written."""

from __future__ import annotations

import random
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from benchmarks.parts.defence.plain_network import EXPLOIT_PORT, EXPLOITS, HOSTS, PlainNetwork

# Heaviest first, as red ranks them.
RANKED = ("FTP", "Haraka", "SQL", "HTTPSRFI", "HTTPRFI", "EternalBlue", "BlueKeep", "SSH")
HEAVIEST, DETECTED = 0.75, 0.95
SWEEP, SCAN, EXPLOIT, ESCALATE, IMPACT = range(1, 6)
# The plan: verbs, targets (None: the user host, or where it leads to), and where a failure leads back to.
PLAN = (
    *((SWEEP, 2), (SCAN, "user"), (EXPLOIT, "user"), (ESCALATE, "user")),
    *((SCAN, "gate"), (EXPLOIT, "gate"), (ESCALATE, "gate")),
    *((SWEEP, 0), (SCAN, "Enterprise2"), (EXPLOIT, "Enterprise2"), (ESCALATE, "Enterprise2")),
    *((SCAN, "Op_Server0"), (EXPLOIT, "Op_Server0"), (ESCALATE, "Op_Server0"), (IMPACT, "Op_Server0")),
)
AFTER_FAILURE = (0, 1, 2, 2, 2, 2, 5, 5, 5, 5, 9, 9, 9, 12, 13)
ATTACKS_SERVER = 12
NO_EXPLOIT = 255


class PlainBline:
    """B_line with its memory of ports."""

    def __init__(self, rng: random.Random, network: PlainNetwork) -> None:
        self._rng, self._network = rng, network
        user = rng.choice(("User1", "User2", "User3", "User4"))
        self._targets = {"user": user, "gate": "Enterprise1" if user in ("User1", "User2") else "Enterprise0"}
        self._memory: dict[str, list[int]] = {}
        self._place = self._farthest = 0

    def choose(self) -> tuple[int, int, int, bool]:
        """Its next move, as the network takes it."""
        network, before = self._network, self._place
        place = min(before + 1, len(PLAN) - 1) if network.succeeded else AFTER_FAILURE[before]
        # Once it notices that the server did not answer its scan, and starts again at the user host.
        unanswered = PLAN[before][0] == SCAN and not network.answer
        if place == ATTACKS_SERVER > self._farthest and unanswered:
            place = 1
        self._place, self._farthest = place, max(self._farthest, place)
        verb, aim = PLAN[place]
        if verb == SWEEP:
            return verb, int(aim), NO_EXPLOIT, False
        name = self._targets.get(str(aim), str(aim))
        exploit = self._exploit(name) if verb == EXPLOIT else None
        number = NO_EXPLOIT if exploit is None else EXPLOITS.index(exploit)
        return verb, HOSTS.index(name), number, self._rng.random() < DETECTED

    def learn(self) -> None:
        """Remember what a scan has found."""
        verb, aim = PLAN[self._place]
        if verb == SCAN and self._network.answer:
            self._memory[self._targets.get(str(aim), str(aim))] = self._network.answer

    def _exploit(self, name: str) -> str | None:
        """The exploit that it takes, of those that the ports in its memory offer."""
        known = self._memory.get(name, [])
        options = [one for one in RANKED if EXPLOIT_PORT[one] in known]
        if "SQL" in options and not {80, 443} & set(known):
            options.remove("SQL")
        if len(options) < 2 or self._rng.random() < HEAVIEST:
            return options[0] if options else None
        return self._rng.choice(options[1:])


class PlainDefence(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Blue's side of it as a Gymnasium environment, with `cpu_s` of CPU in each step that keep the GIL."""

    observation_space = spaces.Box(0.0, 1.0, (52,), np.float32)
    action_space = spaces.Discrete(145)

    def __init__(self, cpu_s: float = 0.0) -> None:
        self._cpu_s = cpu_s

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self._network = PlainNetwork()
        self._red = PlainBline(random.Random(int(self.np_random.integers(2**63))), self._network)
        return np.zeros(52, np.float32), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        # Red decides by what it knows of earlier steps, and acts after blue.
        numbers, reward = self._network.step(int(action), self._red.choose())
        self._red.learn()
        if self._cpu_s:
            end = time.thread_time() + self._cpu_s
            while time.thread_time() < end:
                pass
        return np.array(numbers, np.float32), reward, False, False, {}
