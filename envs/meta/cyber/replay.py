"""Replay recorded episodes of the real simulator, by `python -m envs.meta.cyber.replay FILE.npz`.

A file holds episodes of 100 steps with all that red and green drew; the network is stepped with these draws,
and everything that was recorded is compared after every step, with the choices of red's agents too. Era,
wrapper and green are those of the file's name (`era2022__`, `cardiffwrapper__`, `__green`) unless an option
says otherwise. The exit code is 0 only if no step of any file differs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.meta.cyber import network as net
from envs.meta.cyber import scenario as sc
from envs.meta.cyber.attackers import LEADS_TO, USER_HOSTS, Attacker, Attackers
from envs.meta.cyber.network import CyberNetwork, Ints, RedMove, Rules, Verb

# What is compared, as it was recorded and as it is replayed: [episodes, ...].
Compared = tuple[str, NDArray[Any], NDArray[Any]]

# What a file writes where there is no target.
NONE = 255


@dataclass(frozen=True)
class Mismatch:
    """The first thing that differs: in which episode and step, what was recorded and what came out."""

    episode: int
    step: int
    what: str
    recorded: Any
    replayed: Any

    def __str__(self) -> str:
        return (
            f"episode {self.episode}, step {self.step}: {self.what} was recorded as {self.recorded} "
            f"and is replayed as {self.replayed}"
        )


def rules_of(name: str, era: str | None = None, wrapper: str | None = None) -> Rules:
    """The rules under which a file of this name was recorded, unless an option says otherwise."""
    return Rules(
        era_2022="era2022__" in name if era is None else era == "2022",
        cardiff="cardiffwrapper__" in name if wrapper is None else wrapper == "cardiff",
    )


def attacker_of(name: str) -> Attacker | None:
    """Whose episodes a file of this name holds; None where the name does not say."""
    parts = name.split("__")
    return next((attacker for attacker in Attacker if attacker.name in parts), None)


class RecordedEpisodes:
    """The episodes of one file, stepped together."""

    def __init__(
        self, recorded: Mapping[str, NDArray[Any]], rules: Rules, attacker: Attacker | None, green: bool
    ) -> None:
        self._recorded, self._attacker, self._green = recorded, attacker, green
        self.episodes, self.steps = recorded["act"].shape
        self._slots = np.arange(self.episodes)
        self.network = CyberNetwork(self.episodes, rules)
        self.network.reset(self._slots)
        self.attackers = Attackers(self.episodes, self.network)
        # B_line's user host is the target of its first scan.
        kind = np.full(self.episodes, int(Attacker.sleep if attacker is None else attacker))
        user = np.full(self.episodes, USER_HOSTS[0])
        if attacker is Attacker.bline:
            user = self._at("red_target", 1)
        self.attackers.reset(self._slots, kind, user, np.tile(LEADS_TO, (self.episodes, 1)), None)

    def first_mismatch(self) -> Mismatch | None:
        """What differs first; None where all steps agree."""
        for step in range(self.steps):
            for what, recorded, replayed in (*self._red_chooses(step), *self._step(step)):
                differs = (np.asarray(recorded) != replayed).reshape(self.episodes, -1).any(axis=1)
                if differs.any():
                    episode = int(np.flatnonzero(differs)[0])
                    return Mismatch(
                        episode, step, what, *(one[episode].tolist() for one in (recorded, replayed))
                    )
        return None

    def _at(self, what: str, step: int) -> Ints:
        """[episodes, ...] what was recorded of one step."""
        return self._recorded[what][:, step].astype(np.int64)

    def _red_chooses(self, step: int) -> Iterator[Compared]:
        """What red does, as recorded, beside what our agents would do: one move, or one of several."""
        verb, target = self._at("red_act", step), self._at("red_target", step)
        if self._attacker is Attacker.bline:
            mine = self.attackers.choose(self._slots, slice(None), np.zeros(self.episodes))
            yield "red_act", verb, mine[0]
            yield "red_target", target, mine[1]
            yield "bline_state", self._at("bline_state", step), self.attackers.place
        elif self._attacker is Attacker.meander:
            self.attackers.digest(self._slots)
            mine, candidates = self.attackers.candidates(self._slots)
            yield "red_act", verb, mine
            # A sweep takes the first subnet; other targets are drawn.
            candidates = np.where(verb == Verb.sweep, candidates & -candidates, candidates)
            possible = (candidates >> np.minimum(target, sc.NUM_HOSTS)) & 1
            yield "red_target", target, np.where(possible, target, NONE)
            self.attackers.take(self._slots, verb, target)

    def _step(self, step: int) -> Iterator[Compared]:
        """Step the network as recorded; what was recorded of the outcome, beside ours."""
        target = self._at("red_target", step)
        red = RedMove(
            self._at("red_act", step),
            np.where(target == NONE, 0, target),
            self._at("red_exploit", step),
            self._at("detected", step) == 1,
        )
        scanned = None
        if self._green:
            scans = self._at("green_act", step) == 1
            scanned = np.where(scans, self._at("green_target", step), -1)
        network = self.network
        cost = network.step(self._slots, slice(None), self._at("act", step), red, scanned)
        yield (
            "obs",
            np.unpackbits(self._recorded["obs"][:, step], axis=-1)[:, : net.NUM_SEEN],
            seen_of(network),
        )
        yield "rew10", self._at("rew10", step), -cost
        yield "red_success", self._at("red_success", step), network.red_success
        yield "blue_success", self._at("blue_success", step), network.blue_success
        yield from self._state(step)

    def _state(self, step: int) -> Iterator[Compared]:
        """The true state as recorded, beside ours."""
        state, network = self.network.state, self.network
        level = session_levels(network)
        yield "level", self._at("level", step), level
        yield "decoys", self._at("decoys", step), network.decoys[:, net.DECOY_AT]
        yield "red_ports", self._at("red_ports", step), network.memory[:, : sc.NUM_HOSTS]
        yield "malware", self._at("malware", step), (state >> net.MALWARE) & 0x1FFF
        # Beside a privileged session user sessions do not matter, and only the simulator keeps all of them.
        shown = ((level < 2) << np.arange(sc.NUM_HOSTS)).sum(axis=1)
        yield "removable", self._at("removable", step) & shown, (state >> net.REMOVABLE) & shown
        yield "sticky", self._at("sticky", step) & shown, (state >> net.STUCK) & shown
        down, immune, known = ((state >> bit) & 1 for bit in (net.DOWN, net.IMMUNE, net.KNOWN))
        yield "op", self._at("op", step), (1 - down) | immune << 1 | known << 2


def seen_of(network: CyberNetwork) -> NDArray[np.uint8]:
    """[n, 52] the numbers that blue sees."""
    seen = network.seen.astype("<i8").view(np.uint8).reshape(-1, 8)
    return np.unpackbits(seen, axis=1, count=net.NUM_SEEN, bitorder="little")


def session_levels(network: CyberNetwork) -> Ints:
    """[n, 13] red's best session on each host: 0 none, 1 user, 2 privileged."""
    state = network.state[:, None] >> np.arange(sc.NUM_HOSTS)
    session = (state >> net.REMOVABLE) | (state >> net.STUCK)
    return np.where(state & 1, 2, session & 1)


def main(arguments: list[str] | None = None) -> int:
    """Replay the files of the command line and print what differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE.npz")
    parser.add_argument("--era", choices=["head", "2022"])
    parser.add_argument("--wrapper", choices=["challenge", "cardiff"])
    parser.add_argument("--green", action=argparse.BooleanOptionalAction)
    options = parser.parse_args(arguments)
    failed = False
    for file in options.files:
        name = file.stem
        green = "green" in name.split("__") if options.green is None else options.green
        with np.load(file) as recorded:
            replay = RecordedEpisodes(
                dict(recorded), rules_of(name, options.era, options.wrapper), attacker_of(name), green
            )
        mismatch = replay.first_mismatch()
        agreed = f"{replay.episodes * replay.steps:,} steps agree"
        sys.stdout.write(f"{file}: {mismatch or agreed}\n")
        failed |= mismatch is not None
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
