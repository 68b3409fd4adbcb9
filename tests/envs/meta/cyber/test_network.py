"""The network: every quirk of the published scenario by name, and the whole against a scalar simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.parts.defence.plain_network import PlainNetwork
from envs.meta.cyber import scenario as sc
from envs.meta.cyber.attackers import Attacker
from envs.meta.cyber.network import DECOY_AT, DOWN, CyberNetwork, RedMove, Rules, Verb
from envs.meta.cyber.replay import seen_of, session_levels
from envs.meta.make_env import make_family
from tests.envs.meta.played import Played

HOST = {name: number for number, name in enumerate(sc.HOSTS)}
NOTHING = (Verb.sleep, 0)


class Duel:
    """A network of one slot, in which the test plays both sides."""

    def __init__(self, **rules: bool) -> None:
        self.network = CyberNetwork(1, Rules(**rules))
        self.network.reset(np.arange(1))

    def step(
        self, blue: int = 0, red: tuple[int, int] = NOTHING, exploit: int = sc.NO_EXPLOIT, seen: bool = True
    ) -> float:
        """Blue's action, red's verb and target: the reward."""
        verb, target, chosen = (np.array([number]) for number in (*red, exploit))
        move = RedMove(verb, target, chosen, np.array([seen]))
        return float(self.network.step(np.arange(1), slice(None), np.array([blue]), move, None)[0]) / -10

    def blue(self, verb: str, host: str) -> float:
        return self.step(sc.action_number(sc.VERBS.index(verb), HOST[host]))

    def scan(self, host: str, blue: int = 0) -> None:
        self.step(blue, (Verb.scan, HOST[host]))

    def exploit(self, host: str, exploit: int, blue: int = 0, seen: bool = True) -> int:
        """Red's success."""
        self.step(blue, (Verb.exploit, HOST[host]), exploit, seen)
        return int(self.network.red_success[0])

    def escalate(self, host: str) -> int:
        self.step(0, (Verb.escalate, HOST[host]))
        return int(self.network.red_success[0])

    def level(self, host: str) -> int:
        return int(session_levels(self.network)[0, HOST[host]])

    def numbers(self, host: str) -> list[int]:
        """Activity and compromise, as blue sees them."""
        return seen_of(self.network)[0, 4 * HOST[host] : 4 * HOST[host] + 4].tolist()

    def decoys(self, host: str) -> int:
        return int(self.network.decoys[0, DECOY_AT[HOST[host]]])

    def down(self) -> bool:
        return bool(self.network.state[0] >> DOWN & 1)

    def into_the_server(self) -> None:
        """Red has root on Enterprise1 and on Op_Server0."""
        self.exploit("Enterprise1", sc.BLUE_KEEP)
        self.exploit("Op_Server0", sc.SSH)
        self.escalate("Op_Server0")


def act(verb: str, host: str) -> int:
    return sc.action_number(sc.VERBS.index(verb), HOST[host])


# -- the quirks, in the order of the specification -----------------------------------------------------------


@pytest.mark.parametrize("fixed", [False, True])
def test_quirk_1_restoring_the_server_makes_impact_harmless_for_ever(fixed: bool):
    duel = Duel(fix_impact=fixed)
    duel.into_the_server()
    assert duel.step(0, (Verb.impact, HOST["Op_Server0"])) == -12.0 and duel.down()
    assert duel.blue("Restore", "Op_Server0") == -2.0 and not duel.down()
    duel.into_the_server()
    duel.step(0, (Verb.impact, HOST["Op_Server0"]))
    # It claims success all the same.
    assert duel.network.red_success[0] == 1
    assert duel.down() == fixed


def test_quirk_2_vsftpd_opens_80_and_fits_again_and_again():
    duel = Duel()
    for _ in range(2):
        duel.blue("DecoyVsftpd", "Enterprise0")
        assert duel.network.blue_success[0] == 1
    duel.scan("Enterprise0")
    assert duel.network.memory[0, HOST["Enterprise0"]] == sc.ports(22, 80)
    # After it Apache no longer fits, but it fits beside Apache.
    duel.blue("DecoyApache", "Enterprise0")
    assert duel.network.blue_success[0] == 0
    duel.blue("DecoyApache", "Op_Host0")
    duel.blue("DecoyVsftpd", "Op_Host0")
    assert duel.decoys("Op_Host0") == 1 << sc.APACHE | 1 << sc.VSFTPD


def test_quirk_3_eternal_blue_never_works_on_enterprise_hosts():
    duel = Duel()
    for host in ("Enterprise1", "Enterprise2"):
        assert duel.exploit(host, sc.ETERNAL_BLUE) == 0
        assert duel.level(host) == 0 and duel.numbers(host) == [0, 0, 0, 0]
    assert duel.exploit("User2", sc.ETERNAL_BLUE) == 1


def test_quirk_4_the_database_of_user3_listens_on_another_port():
    duel = Duel()
    duel.scan("User3")
    known = int(duel.network.memory[0, HOST["User3"]])
    assert not sc.OPTIONS[known] >> sc.SQL & 1 and sc.OPTIONS[known] >> sc.BLUE_KEEP & 1
    assert duel.exploit("User3", sc.BLUE_KEEP) == 0 and duel.level("User3") == 0
    assert sc.OPTIONS[sc.OWN_PORTS[HOST["User4"]]] >> sc.SQL & 1


def test_quirk_5_remove_always_reports_success():
    duel = Duel()
    duel.blue("Remove", "User3")
    assert duel.network.blue_success[0] == 1


@pytest.mark.parametrize(
    ("host", "exploit", "seen"),
    [("Enterprise0", sc.SSH, True), ("User3", sc.HTTP_RFI, False), ("User3", sc.HARAKA, True)],
    ids=["ssh", "undetected", "privileged"],
)
def test_quirk_5_a_remove_that_kills_nothing_reports_success_too(host: str, exploit: int, seen: bool):
    duel = Duel()
    duel.exploit(host, exploit, seen=seen)
    before = duel.level(host)
    duel.network.blue_success[0] = 0
    duel.blue("Remove", host)
    assert before > 0 and duel.level(host) == before, "the session is still there"
    assert duel.network.blue_success[0] == 1


@pytest.mark.parametrize(
    ("host", "exploit", "seen", "left"),
    [
        ("User3", sc.HTTP_RFI, True, 0),
        ("User3", sc.HTTP_RFI, False, 1),
        ("Enterprise0", sc.SSH, True, 1),
        ("User3", sc.HARAKA, True, 2),
    ],
    ids=["seen", "undetected", "ssh", "privileged"],
)
def test_quirk_6_remove_kills_only_user_sessions_that_were_seen(
    host: str, exploit: int, seen: bool, left: int
):
    duel = Duel()
    assert duel.exploit(host, exploit, seen=seen) == 1
    duel.blue("Remove", host)
    assert duel.level(host) == left


def test_quirk_7_files_survive_remove_and_analyse_says_privileged():
    duel = Duel()
    duel.exploit("User3", sc.HTTP_RFI)
    duel.blue("Analyse", "User3")
    assert duel.numbers("User3")[2:] == [1, 1], "for a session of user level"
    duel.blue("Remove", "User3")
    assert duel.level("User3") == 0 and duel.numbers("User3")[2:] == [1, 0]
    duel.blue("Analyse", "User3")
    assert duel.numbers("User3")[2:] == [1, 1], "for a host that is clean"
    # An SSH session leaves no file until it is escalated.
    duel.exploit("Enterprise0", sc.SSH)
    duel.blue("Analyse", "Enterprise0")
    assert duel.numbers("Enterprise0")[2:] == [0, 1]
    duel.escalate("Enterprise0")
    duel.blue("Analyse", "Enterprise0")
    assert duel.numbers("Enterprise0")[2:] == [1, 1]


@pytest.mark.parametrize("cardiff", [False, True])
def test_quirk_8_a_decoy_placed_in_a_step_changes_how_its_events_are_read(cardiff: bool):
    # An exploit that runs into a decoy is a scan; with a decoy placed beside it, a false alarm.
    duel = Duel(cardiff=cardiff)
    duel.blue("DecoyTomcat", "User1")
    duel.exploit("User1", sc.HTTPS_RFI)
    assert duel.numbers("User1")[:2] == [1, 0]
    duel.exploit("User1", sc.HTTPS_RFI, blue=act("DecoyApache", "User1"))
    assert duel.numbers("User1")[:2] == [1, 1]
    # A scan of two ports, with a decoy that fits no more than an undetected exploit's event beside it.
    duel = Duel(cardiff=cardiff)
    duel.exploit("User3", sc.HTTP_RFI, blue=act("DecoySSHD", "User3"), seen=False)
    assert duel.numbers("User3")[:2] == ([1, 0] if cardiff else [0, 0])
    # Alone, a decoy is nothing to either.
    duel.blue("DecoyVsftpd", "User3")
    assert duel.numbers("User3")[:2] == [0, 0]
    # A scan that finds three ports stays a scan.
    duel = Duel(cardiff=cardiff)
    duel.scan("User1", blue=act("DecoyApache", "User1"))
    assert duel.numbers("User1")[:2] == [1, 0]


@pytest.mark.parametrize("cardiff", [False, True])
def test_quirk_8_a_scan_of_fewer_than_three_ports_is_hidden_by_a_placed_decoy(cardiff: bool):
    # The SSH port and that of the decoy, which is two; the winner's wrapper shows the scan.
    duel = Duel(cardiff=cardiff)
    duel.scan("Enterprise0", blue=act("DecoyApache", "Enterprise0"))
    assert duel.network.memory[0, HOST["Enterprise0"]] == sc.ports(22, 80)
    assert duel.numbers("Enterprise0") == ([1, 0, 0, 0] if cardiff else [0, 0, 0, 0])
    # In the next step the same ports are a scan, and with a third one, too.
    duel.scan("Enterprise0")
    assert duel.numbers("Enterprise0") == [1, 0, 0, 0]
    duel.scan("Enterprise0", blue=act("DecoyTomcat", "Enterprise0"))
    assert duel.numbers("Enterprise0") == [1, 0, 0, 0]


@pytest.mark.parametrize("cardiff", [False, True])
@pytest.mark.parametrize(("host", "won"), [("Enterprise0", 1), ("Defender", 0), ("User2", 0)])
def test_quirk_8_ssh_is_an_exploit_beside_a_placed_decoy(cardiff: bool, host: str, won: int):
    duel = Duel(cardiff=cardiff)
    # User2 has no SSH of its own, so that of a decoy is tried.
    duel.blue("DecoySSHD", host)
    assert duel.exploit(host, sc.SSH, blue=act("DecoyTomcat", host)) == won
    assert duel.network.blue_success[0] == 1, "the decoy was placed"
    assert duel.numbers(host) == [1, 1, 0, 1]


def test_quirk_9_scans_of_hosts_out_of_reach_succeed_with_empty_answers():
    duel = Duel()
    duel.scan("Op_Server0")
    assert duel.network.red_success[0] == 1 and duel.network.unanswered[0]
    assert duel.network.memory[0, HOST["Op_Server0"]] == 0 and duel.numbers("Op_Server0") == [0, 0, 0, 0]
    duel.exploit("Enterprise0", sc.SSH)
    duel.scan("Op_Server0")
    assert not duel.network.unanswered[0] and duel.network.memory[0, HOST["Op_Server0"]] == sc.ports(22)


def test_quirk_10_the_memory_of_red_outlives_restore():
    duel = Duel()
    duel.blue("DecoyFemitter", "User2")
    duel.scan("User2")
    duel.blue("Restore", "User2")
    assert duel.decoys("User2") == 0
    known = int(duel.network.memory[0, HOST["User2"]])
    assert sc.OPTIONS[known] >> sc.FTP & 1
    assert duel.exploit("User2", sc.FTP) == 0 and duel.numbers("User2") == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("host", "exploit", "level"),
    [
        ("Enterprise1", sc.BLUE_KEEP, 2),
        ("User2", sc.BLUE_KEEP, 1),
        ("User1", sc.FTP, 2),
        ("User1", sc.SSH, 1),
    ],
)
def test_quirk_11_the_level_depends_on_the_exploited_service(host: str, exploit: int, level: int):
    duel = Duel()
    duel.exploit(host, exploit)
    assert duel.level(host) == level


def test_quirk_12_green_sleeps_unless_it_is_asked_for():
    task = np.array([[2.0]])
    for green in (False, True):
        played = Played(make_family("CyberDefence", red="sleep", green=green), 1)
        rows, seen = played.reset([0], task, [3]), 0.0
        for _ in range(50):
            rows = played.step([0], [0])
            assert isinstance(rows.obs, np.ndarray)
            seen += float(rows.obs.sum())
        assert (seen > 0) == green


@pytest.mark.parametrize("red", ["bline", "meander"])
@pytest.mark.parametrize("green", [False, True])
def test_quirk_13_nothing_carries_over_between_episodes(red: str, green: bool):
    played = Played(make_family("CyberDefence", red=red, green=green), 1)
    task = [[float(Attacker[red])]]
    actions = np.random.default_rng(0).integers(sc.NUM_ACTIONS, size=60)
    episodes: list[list[bytes]] = []
    for _ in range(2):
        played.reset([0], task, [5])
        episodes.append([played.bits(0)])
        for action in actions:
            played.step([0], [action])
            episodes[-1].append(played.bits(0))
    assert episodes[0] == episodes[1]


def test_quirk_13_meander_begins_without_its_beliefs():
    played = Played(make_family("CyberDefence", red="meander"), 2)
    shard: Any = played.shard

    def mind() -> list[int]:
        red, network = shard.attackers, shard.network
        believed = [
            int(one[0]) for one in (red.beliefs, red.knows, red.verb, red.target, network.red_success)
        ]
        return [*believed, *network.memory[0].tolist(), int(network.unanswered[0])]

    played.reset([0, 1], [[1.0], [1.0]], [5, 6])
    first = mind()
    for _ in range(60):
        played.step([0, 1], [sc.SLEEP, sc.SLEEP])
    grown = mind()
    assert grown[0].bit_count() > 20 and grown[1].bit_count() > first[1].bit_count() + 10
    other = int(shard.attackers.beliefs[1])
    played.reset([0], [[1.0]], [7])
    assert mind() == first and first[0] == 0, "it believes nothing, and knows User0 and its subnet"
    assert int(shard.attackers.beliefs[1]) == other, "the other slot's red goes on"
    # So it begins with a sweep, and scans what it had scanned before.
    played.step([0], [sc.SLEEP])
    assert (shard.attackers.verb[0], shard.attackers.target[0]) == (Verb.sweep, sc.USER)
    for _ in range(5):
        played.step([0], [sc.SLEEP])
        assert shard.attackers.verb[0] == Verb.scan


def test_the_two_rules_of_the_leader_boards_code():
    for era_2022 in (False, True):
        duel = Duel(era_2022=era_2022)
        # A scan adds to what red knows.
        duel.blue("DecoyFemitter", "User2")
        duel.scan("User2")
        duel.blue("Restore", "User2")
        duel.scan("User2")
        assert (duel.network.memory[0, HOST["User2"]] & sc.ports(21) > 0) == era_2022
        # Haraka fails on a restored User4, with one event.
        duel.blue("Restore", "User4")
        assert duel.exploit("User4", sc.HARAKA) == (0 if era_2022 else 1)
        assert duel.numbers("User4") == ([1, 0, 0, 0] if era_2022 else [1, 1, 0, 1])


# -- the whole -----------------------------------------------------------------------------------------------

OPTIONS: list[dict[str, Any]] = [
    {},
    {"green": True},
    {"wrapper": "cardiff", "green": True},
    {"era": "2022"},
    {"fix_impact": True},
    {"variant": "hidden"},
]


def blue_actions(rng: np.random.Generator, n: int) -> np.ndarray:
    """Random actions, every other one a decoy, so that events meet decoys."""
    decoys = sc.action_number(sc.FIRST_DECOY, 0) + rng.integers(8 * sc.NUM_HOSTS, size=n)
    return np.where(rng.random(n) < 0.4, decoys, rng.integers(sc.NUM_ACTIONS, size=n))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_family_is_what_a_scalar_simulator_makes_of_the_same_moves(options: dict[str, Any]):
    family, rng, n = make_family("CyberDefence", **options), np.random.default_rng(0), 24
    played = Played(family, n)
    shard: Any = played.shard
    rows = played.reset(np.arange(n), family.sample_tasks(rng, n, "train"), np.arange(n))
    rules = {
        "era_2022": "era" in options,
        "cardiff": "wrapper" in options,
        "fix_impact": "fix_impact" in options,
    }
    plain = [PlainNetwork(**rules) for _ in range(n)]
    assert isinstance(rows.obs, np.ndarray) and not rows.obs.any()
    for _ in range(100):
        actions = blue_actions(rng, n)
        rows = played.step(np.arange(n), actions)
        moves: list[Any] = [part.tolist() for part in shard.red]
        scanned = [-1] * n if shard.scanned is None else shard.scanned.tolist()
        for slot, network in enumerate(plain):
            verb, target, exploit, detected = (part[slot] for part in moves)
            move = verb, target, exploit, detected
            numbers, reward = network.step(int(actions[slot]), move, scanned[slot])
            assert isinstance(rows.obs, np.ndarray) and rows.obs[slot].tolist() == numbers
            assert rows.reward[slot] == reward
