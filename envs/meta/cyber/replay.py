"""Replay recorded episodes of the real simulator, by `python -m envs.meta.cyber.replay FILE.npz`.

A file holds episodes with all that red and green drew; the network is stepped with these draws, and
everything that was recorded is compared after every step, with the choices of red's agents too. Attacker,
era, wrapper and green are those of the file's name (`bline__`, `era2022__`, `cardiffwrapper__`, `__green`)
unless an option says otherwise. Where nothing says who attacks, red's choices are not checked, and the line
of that file says so. The exit code is 0 only if every file could be read and no step of any differs.
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
from envs.meta.cyber.recording import NONE, TOTAL, RecordingError, read_recording

# What is compared, as it was recorded and as it is replayed: [episodes, ...].
Compared = tuple[str, NDArray[Any], NDArray[Any]]


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
    parts = [part for part in name.split("__") if part != "green"]
    # A name ends with blue's policy, which may be to sleep.
    if len(parts) > 1 and parts[-1] == Attacker.sleep.name:
        parts.pop()
    return next((Attacker[part] for part in parts if part in Attacker.__members__), None)


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
        # B_line's user host is the target of its first scan; one that it cannot have differs there.
        kind = np.full(self.episodes, int(Attacker.sleep if attacker is None else attacker))
        user = np.full(self.episodes, USER_HOSTS[0])
        if attacker is Attacker.bline and self.steps > 1:
            first = self._at("red_target", 1)
            user = np.where(np.isin(first, USER_HOSTS), first, user)
        self.attackers.reset(self._slots, kind, user, np.tile(LEADS_TO, (self.episodes, 1)), None)
        # The return so far, in tenths.
        self._tenths = np.zeros(self.episodes, np.int64)

    def first_mismatch(self) -> Mismatch | None:
        """What differs first; None where all steps agree."""
        for step in range(self.steps):
            # One after the other: what differs before red's move is known is no move to make.
            for compared in (self._red_chooses, self._red_aims, self._green_scans, self._step):
                for what, recorded, replayed in compared(step):
                    differs = (np.asarray(recorded) != replayed).reshape(self.episodes, -1).any(axis=1)
                    if differs.any():
                        episode = int(np.flatnonzero(differs)[0])
                        values = (np.asarray(one)[episode].tolist() for one in (recorded, replayed))
                        return Mismatch(episode, step, what, *values)
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
        elif self._attacker is Attacker.sleep:
            yield "red_act", verb, np.full(self.episodes, Verb.sleep)
        if self._attacker in (Attacker.meander, Attacker.sleep):
            yield "bline_state", self._at("bline_state", step), np.full(self.episodes, NONE)

    def _red_aims(self, step: int) -> Iterator[Compared]:
        """Red's exploit, beside what the ports that it remembers offer: one of several, or none."""
        exploits = self._at("red_act", step) == Verb.exploit
        target, exploit = np.minimum(self._at("red_target", step), 15), self._at("red_exploit", step)
        options = sc.OPTIONS[self.network.memory[self._slots, target]] * exploits
        offered = (options >> np.minimum(exploit, sc.NUM_EXPLOITS)) & 1
        lightest = np.where(options > 0, sc.NTH[options * sc.NUM_HOSTS], NONE)
        yield "red_exploit", exploit, np.where(offered, exploit, lightest)

    def _green_scans(self, step: int) -> Iterator[Compared]:
        """Green's scan, beside what it can do: sleep, or scan one of some hosts where it is awake."""
        scans, target = self._at("green_act", step), self._at("green_target", step)
        yield "green_act", scans, scans * self._green
        possible = (scans == 0) | np.isin(target, sc.GREEN_SCANS)
        yield "green_target", target, np.where(possible, target, sc.GREEN_SCANS[0])

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
            np.unpackbits(self._recorded["obs"][:, step].astype(np.uint8), axis=-1)[:, : net.NUM_SEEN],
            seen_of(network),
        )
        yield "rew10", self._at("rew10", step), -cost
        yield "red_success", self._at("red_success", step), network.red_success
        # Whether red is seen is drawn where an exploit wins, but not for SSH.
        drawn = (red.verb == Verb.exploit) & (red.exploit != sc.SSH) & (network.red_success == 1)
        yield "detected", self._at("detected", step), np.where(drawn, red.detected, NONE)
        yield "blue_success", self._at("blue_success", step), network.blue_success
        yield from self._state(step)
        self._tenths -= cost
        if step == self.steps - 1:
            # Sums of tenths, whose last bits depend on the order of the sum.
            yield TOTAL, np.round(self._recorded[TOTAL], 6), np.round(self._tenths / 10, 6)

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


def replayed(file: Path, options: argparse.Namespace) -> tuple[bool, str]:
    """Whether a file agrees in every step, and what is to be said of it."""
    try:
        recorded = read_recording(file)
    except RecordingError as error:
        return False, str(error)
    name = file.stem
    attacker = attacker_of(name) if options.red is None else Attacker[options.red]
    green = "green" in name.split("__") if options.green is None else options.green
    replay = RecordedEpisodes(recorded, rules_of(name, options.era, options.wrapper), attacker, green)
    mismatch = replay.first_mismatch()
    if mismatch is not None:
        return False, str(mismatch)
    agreed = f"{replay.episodes * replay.steps:,} steps agree"
    if attacker is None:
        agreed += "; red's choices were not checked, since nothing says who attacks (--red does)"
    return True, agreed


def main(arguments: list[str] | None = None) -> int:
    """Replay the files of the command line and print what differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE.npz")
    parser.add_argument("--red", choices=[attacker.name for attacker in Attacker])
    parser.add_argument("--era", choices=["head", "2022"])
    parser.add_argument("--wrapper", choices=["challenge", "cardiff"])
    parser.add_argument("--green", action=argparse.BooleanOptionalAction)
    options = parser.parse_args(arguments)
    failed = False
    for file in options.files:
        agrees, said = replayed(file, options)
        sys.stdout.write(f"{file}: {said}\n")
        failed |= not agrees
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
