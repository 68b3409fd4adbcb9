"""Red's agents: what they choose, how often, and in which order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from benchmarks.parts.defence.plain_network import PlainNetwork
from envs.meta.cyber import scenario as sc
from envs.meta.cyber.attackers import ESCALATED, EXPLOITED, LEADS_TO, MAPPED, SCANNED, Attacker, Attackers
from envs.meta.cyber.network import CyberNetwork, RedMove, Rules, Verb
from envs.meta.make_env import make_family
from tests.envs.meta.cyber.plain_meander import PlainMeander, name_of
from tests.envs.meta.played import Played


def played_moves(options: dict[str, Any], n: int = 600) -> tuple[Any, np.ndarray, list[Any]]:
    """The shard, the tasks and red's moves of some episodes in which blue sleeps."""
    family = make_family("CyberDefence", **options)
    played, tasks = Played(family, n), family.sample_tasks(np.random.default_rng(2), n, "train")
    played.reset(np.arange(n), tasks, np.arange(n))
    shard: Any = played.shard
    moves = []
    for _ in range(40):
        known = shard.network.memory.copy()
        played.step(np.arange(n), np.zeros(n, np.int64))
        # Copies, because the arrays are those of the shard.
        moves.append((RedMove(*(part.copy() for part in shard.red)), known))
    return shard, tasks, moves


def share_of_the_heaviest(moves: list[Any], ranking: np.ndarray) -> tuple[float, int]:
    """How often the first of the ranking was chosen among several exploits, and the number of choices."""
    heaviest = chosen = 0
    for red, known in moves:
        for slot in np.flatnonzero(red.verb == Verb.exploit):
            options = int(sc.OPTIONS[known[slot, red.target[slot]]])
            if options & (options - 1):
                best = next(one for one in ranking[slot].astype(int).tolist() if options >> one & 1)
                heaviest, chosen = heaviest + (red.exploit[slot] == best), chosen + 1
    return heaviest / chosen, chosen


def test_the_published_chances_and_choices():
    _shard, _, moves = played_moves({"red": "meander"})
    share, chosen = share_of_the_heaviest(moves, np.tile(sc.RANKING, (600, 1)))
    assert chosen > 1000 and share == pytest.approx(0.75, abs=4 * math.sqrt(0.75 * 0.25 / chosen))
    seen = np.concatenate([red.detected for red, _ in moves])
    assert seen.mean() == pytest.approx(0.95, abs=0.01)
    # The first scan is of any of the five user hosts, equally often.
    _, counts = np.unique(moves[1][0].target, return_counts=True)
    assert len(counts) == 5 and np.abs(counts - 120).max() < 45
    # B_line keeps to one of four.
    _, _, moves = played_moves({"red": "bline"})
    hosts, counts = np.unique(moves[1][0].target, return_counts=True)
    assert hosts.tolist() == [9, 10, 11, 12] and np.abs(counts - 150).max() < 45


def test_a_hidden_b_line_goes_its_way():
    _, tasks, moves = played_moves({"variant": "hidden", "red": "bline"})
    assert (moves[1][0].target == tasks[:, 1]).all()
    scans = [(red.verb == Verb.scan) & np.isin(red.target, (1, 2)) for red, _ in moves]
    leads_to = tasks[np.arange(len(tasks)), 2 + tasks[:, 1].astype(int) - 9]
    for (red, _), scan in zip(moves, scans, strict=True):
        assert (red.target[scan] == leads_to[scan]).all()
    assert np.array(scans).any()
    # The ranking of the task decides which exploit comes first.
    drawn = np.array([share_of_the_heaviest(moves, tasks[:, 8:16])[0], tasks[:, 6].mean()])
    assert drawn[0] == pytest.approx(drawn[1], abs=0.04)


def test_a_hidden_meander_takes_its_targets_in_the_order_of_the_task():
    _, tasks, moves = played_moves({"variant": "hidden", "red": "meander"})
    order = tasks[:, 16:].astype(int)
    users = np.array([[host for host in one if host >= 8] for one in order.tolist()])
    scanned = np.stack([red.target for red, _ in moves[1:6]], axis=1)
    assert (scanned == users).all()


# -- Meander beside its scalar counterpart -------------------------------------------------------------------


def hosts_in(numbers: int) -> set[str]:
    return {name for number, name in enumerate(sc.HOSTS) if numbers >> number & 1}


def blue_that_resists(rng: np.random.Generator, n: int) -> np.ndarray:
    """Mostly Restore and decoys on Enterprise and Op hosts, so that red fails and forgets."""
    restores = sc.action_number(sc.RESTORE, 1) + rng.integers(7, size=n)
    decoys = sc.action_number(sc.FIRST_DECOY, 0) + rng.integers(8 * sc.NUM_HOSTS, size=n)
    drawn = np.where(rng.random(n) < 0.5, restores, decoys)
    return np.where(rng.random(n) < 0.5, drawn, rng.integers(sc.NUM_ACTIONS, size=n))


@pytest.mark.parametrize("resists", [0.0, 0.4, 1.0], ids=["sleeping", "some", "every step"])
def test_meander_may_do_what_a_scalar_meander_may_do(resists: float):
    rng, n = np.random.default_rng(5), 24
    slots, network = np.arange(n), CyberNetwork(n, Rules())
    network.reset(slots)
    red = Attackers(n, network)
    red.reset(slots, np.full(n, int(Attacker.meander)), np.full(n, 9), np.tile(LEADS_TO, (n, 1)), None)
    plain, games = [PlainMeander() for _ in range(n)], [PlainNetwork() for _ in range(n)]
    verbs: set[int] = set()
    for step in range(150):
        if step:
            for meander, game in zip(plain, games, strict=True):
                meander.digest(game.succeeded)
        red.digest(slots)
        verb, found = red.candidates(slots)
        target = np.zeros(n, np.int64)
        for slot, meander in enumerate(plain):
            wanted, names = meander.options()
            # The sweep's set may hold two subnets, of which the first is taken.
            mine = int(found[slot]) & -int(found[slot]) if wanted == Verb.sweep else int(found[slot])
            possible = [number for number in range(sc.NUM_HOSTS) if mine >> number & 1]
            assert verb[slot] == wanted and {name_of(wanted, one) for one in possible} == names
            target[slot] = rng.choice(possible)
            meander.take(wanted, name_of(wanted, int(target[slot])))
        red.take(slots, verb, target)
        verbs |= set(verb.tolist())
        for slot, meander in enumerate(plain):
            beliefs = int(red.beliefs[slot])
            assert hosts_in(beliefs >> SCANNED) == meander.scanned
            assert hosts_in(beliefs >> EXPLOITED) == meander.exploited
            assert hosts_in(beliefs >> ESCALATED) == meander.escalated
            assert hosts_in(beliefs >> MAPPED) == meander.mapped
        play_both(rng, network, games, (verb, target), resists)
    assert verbs >= {Verb.sweep, Verb.scan, Verb.exploit, Verb.escalate}
    assert resists or Verb.impact in verbs


def play_both(
    rng: np.random.Generator,
    network: CyberNetwork,
    games: list[PlainNetwork],
    aim: tuple[np.ndarray, np.ndarray],
    resists: float,
) -> None:
    """One step of the network and of the scalar ones, with the same blue, exploits and luck."""
    n, (verb, target) = len(games), aim
    options = sc.OPTIONS[network.memory[np.arange(n), target]] * (verb == Verb.exploit)
    offered = [[one for one in range(sc.NUM_EXPLOITS) if known >> one & 1] for known in options.tolist()]
    exploit = np.array([rng.choice(one) if one else sc.NO_EXPLOIT for one in offered])
    detected = rng.random(n) < 0.95
    blue = np.where(rng.random(n) < resists, blue_that_resists(rng, n), sc.SLEEP)
    network.step(np.arange(n), slice(None), blue, RedMove(verb, target, exploit, detected), None)
    for slot, game in enumerate(games):
        move = int(verb[slot]), int(target[slot]), int(exploit[slot]), bool(detected[slot])
        game.step(int(blue[slot]), move)
        assert game.succeeded == (network.red_success[slot] == 1)
