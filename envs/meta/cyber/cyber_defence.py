"""CyberDefence: blue defends a network of 13 hosts against an attacker that it does not know."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any, Self

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Obs, Reference, Shard, Shelf, Split, TaskFamily
from envs.meta.cyber import scenario as sc
from envs.meta.cyber.attackers import LEADS_TO, USER_HOSTS, Arms, Attacker, Attackers
from envs.meta.cyber.network import NUM_SEEN, At, CyberNetwork, Ints, RedMove, Rules
from envs.meta.cyber.picture import network_picture
from envs.meta.cyber.scripts import INFO_NAMES, Truth, oracle_script, write_truth
from envs.meta.kernels import (
    check_split,
    checked_choices,
    index_of,
    split_choices,
    split_draws,
    split_uniforms,
)
from utils.options import OptionError, option
from utils.seeding import episode_seeds, uniforms


class RedKind(Enum):
    """Which attackers are drawn."""

    bline = "bline"
    meander = "meander"
    sleep = "sleep"
    any = "any"


def attackers_of(red: RedKind) -> tuple[float, ...]:
    """The attackers that are drawn, as tasks number them."""
    return tuple(float(one) for one in Attacker if red in (RedKind.any, RedKind[one.name]))


class CyberVariant(Enum):
    """What the task is: `attacker`, who attacks; `hidden`, also the network and the attacker's habits."""

    attacker = "attacker"
    hidden = "hidden"


class CyberWrapper(Enum):
    """Whose reading of events blue is shown: the challenge's, or that of its winner CardiffUni."""

    challenge = "challenge"
    cardiff = "cardiff"


# Which code: the newest (`head`), or that of the leader board, of August 2022. A year is no name that a class
# statement can give, so the members are written as a table.
CyberEra = Enum("CyberEra", {"head": "head", "2022": 2022})


@dataclass
class CyberDefenceConfig(EnvConfig):
    """Options of CyberDefence; the defaults are Scenario2 of CAGE Challenge 2."""

    family: str = "CyberDefence"
    max_rollouts_per_task: int = option(
        0, "k: episodes of one task in a trial; 0: 1, or 2 with variant=hidden", low=0
    )
    max_episode_steps: int = option(100, "H: environment steps in an episode", low=1)
    variant: CyberVariant = option(
        CyberVariant.attacker, "what the task is: who attacks, or hidden numbers of the network too"
    )
    red: RedKind = option(RedKind.any, "which attackers are drawn; any: all, without sleep in hidden")
    green: bool = option(False, "whether users scan hosts, which hides what red does")
    wrapper: CyberWrapper = option(CyberWrapper.challenge, "whose reading of events blue sees")
    era: CyberEra = option(CyberEra.head, "the newest code, or that of the leader board")
    fix_impact: bool = option(False, "whether a restored Op_Server0 can be stopped again")

    def resolved(self) -> Self:
        """This config with the number of episodes that belongs to its variant."""
        episodes = 2 if self.variant is CyberVariant.hidden else 1
        return replace(self, max_rollouts_per_task=self.max_rollouts_per_task or episodes)


# Where the numbers of a hidden task stand.
_ATTACKER, _USER_HOST, _LEADS_TO = 0, 1, slice(2, 6)
_HEAVIEST_CHANCE, _DETECTION_CHANCE = 6, 7
_RANKING, _ORDER = slice(8, 16), slice(16, 29)
_HIDDEN_DIM = 29
# The published chances, and from where to 1 the hidden ones are drawn.
_PUBLISHED_CHANCES = np.array([0.75, 0.95])
_LOWEST_CHANCES = np.array([0.5, 0.6])


class CyberDefence(TaskFamily):
    """Blue defends a network of 13 hosts against one of three attackers, which it is not told.

    Task: the attacker (0 B_line, 1 Meander, 2 Sleep), shared by training and tests. Observation: 52 numbers,
    0 or 1: for each host two of activity in this step (none 00, scan 10, exploit 11) and two of compromise
    (no 00, unknown 10, user 01, privileged 11); all zeros at the start. Action: one of 145, Sleep, Monitor,
    then Analyse, Remove, eight decoys and Restore, 13 hosts each. Reward: minus the cost of the hosts where
    red is privileged (1 for the Enterprise hosts and Op_Server0, 0.1 for others, 0 for User0), minus 10 while
    the service of Op_Server0 is down, minus 1 for a Restore. H=100 (published also 30 and 50), k=1. An
    episode never ends by itself. Info: privileged hosts, service_down, step, and the true state for scripts.

    Published as Scenario2 of CAGE Challenge 2, written anew and checked step by step against CybORG 2.1, with
    its quirks. A Restore of Op_Server0 makes Impact harmless for ever (`fix_impact` ends that). Vsftpd opens
    port 80. EternalBlue never wins on Enterprise hosts. The database of User3 listens on BlueKeep's port, so
    there SQL is no option and BlueKeep fails. Remove always reports success, but kills only sessions that
    were seen, and no file, so Analyse still says Privileged. The account of the exploited service decides the
    level, so the first exploit is often privileged at once. A decoy placed in a step changes how its events
    are read. Scans of hosts out of reach succeed; red's memory outlives Restore, and nothing outlives the
    episode. `green` is asleep, as in the published scores. Blue, green and red act in this order.

    `era=2022` is the code of the leader board: a scan adds to the ports that red remembers, where that of
    `head` replaces them, and Haraka fails on a restored User3 or User4. `wrapper=cardiff` shows events as the
    winner's code does: a decoy placed in a step makes a host look quiet only if nothing else happened there;
    for `challenge` it also hides a scan of few ports and an exploit that was not seen.

    variant=hidden: k=2, disjoint splits. The task has also: the user host of B_line, the Enterprise hosts
    that User1 to User4 lead to, the chance of the best exploit (0.5 to 1), that of being seen (0.6 to 1), the
    ranking of exploits, and Meander's order of targets; chances, rankings and orders of tests are none of
    training. The oracle is a script that sees the true state.
    """

    Config = CyberDefenceConfig
    # 2: the rankings and orders of hidden tests are none of training.
    version = 2
    shelf = Shelf.cyber
    config: CyberDefenceConfig
    references = (
        Reference(oracle=-9.17, random=-444.0),
        Reference(oracle=-12.83, random=-744.6, options={"red": RedKind.bline}),
        Reference(oracle=-14.67, random=-580.4, options={"red": RedKind.meander}),
        Reference(oracle=-23.66, random=-496.6, options={"variant": CyberVariant.hidden}),
    )

    def __init__(self, config: CyberDefenceConfig) -> None:
        super().__init__(config)
        self._hidden = config.variant is CyberVariant.hidden
        if self._hidden and config.red is RedKind.sleep:
            raise OptionError(
                "CyberDefence: a sleeper has nothing to hide: red=sleep needs variant=attacker."
            )
        self.spec = EnvSpec(
            name="CyberDefence",
            obs_space=spaces.Box(0.0, 1.0, (NUM_SEEN,), np.float32),
            action_space=spaces.Discrete(sc.NUM_ACTIONS),
            task_dim=_HIDDEN_DIM if self._hidden else 1,
            info_names=INFO_NAMES,
            split=Split.disjoint if self._hidden else Split.shared,
            reference=self.measured_reference(),
        )

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        check_split(split)
        drawn = attackers_of(self.config.red)
        if self._hidden:
            drawn = tuple(one for one in drawn if one != Attacker.sleep)
        attackers = split_choices(rng, n, drawn, split)
        if not self._hidden:
            return attackers[:, None]
        tasks = np.zeros((n, _HIDDEN_DIM))
        tasks[:, _ATTACKER] = attackers
        tasks[:, _USER_HOST] = rng.choice(USER_HOSTS, size=n)
        # Enterprise0 or Enterprise1, as far as every user host is concerned.
        tasks[:, _LEADS_TO] = rng.integers(1, 3, size=(n, 4))
        # The chances are disjoint in training and tests.
        chances = _LOWEST_CHANCES + (1.0 - _LOWEST_CHANCES) * split_uniforms(rng, (n, 2), split)
        tasks[:, [_HEAVIEST_CHANCE, _DETECTION_CHANCE]] = chances
        # So do the ranking and the order, each by itself: none of tests is ever one of training.
        tasks[:, _RANKING] = split_draws(partial(_permutations, rng, sc.NUM_EXPLOITS), n, split)
        tasks[:, _ORDER] = split_draws(partial(_permutations, rng, sc.NUM_HOSTS), n, split)
        return tasks

    def make_shard(self, num_slots: int, threads: int = 1) -> CyberDefenceShard:
        return CyberDefenceShard(num_slots, self.config)

    def oracle_action(
        self, obs: Obs, task: NDArray[np.float64], info: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """The script that is made for the task's attacker; it sees the true state."""
        truth = Truth.of(info, self.config.max_episode_steps)
        actions = np.zeros(len(info), np.int64)
        for attacker in Attacker:
            actions = np.where(task[:, _ATTACKER] == attacker, oracle_script(attacker, truth), actions)
        return actions


def _permutations(rng: np.random.Generator, length: int, n: int) -> NDArray[np.float64]:
    """[n, length] orders of 0..length-1, each as likely."""
    return rng.permuted(np.tile(np.arange(float(length)), (n, 1)), axis=1)


class CyberDefenceShard(Shard):
    """Slots of CyberDefence."""

    def __init__(self, num_slots: int, config: CyberDefenceConfig) -> None:
        self._num_slots = num_slots
        self._green = config.green
        self._hidden = config.variant is CyberVariant.hidden
        rules = Rules(
            era_2022=config.era is CyberEra["2022"],
            cardiff=config.wrapper is CyberWrapper.cardiff,
            fix_impact=config.fix_impact,
        )
        self.network = CyberNetwork(num_slots, rules)
        self.attackers = Attackers(num_slots, self.network, ordered=self._hidden)
        self._arms = Arms(num_slots, self.network)
        # What red did in the last step and what green scanned, in the order of its slots.
        self.red: RedMove | None = None
        self.scanned: Ints | None = None
        self._seed = np.zeros(num_slots, np.uint64)
        self._time = np.zeros(num_slots, np.int64)
        # Blue's last action, for pictures.
        self._action = np.zeros(num_slots, np.int64)

    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        """An empty network, but for red's foothold, and a new attacker."""
        self._seed[slots] = seeds
        self._time[slots] = self._action[slots] = 0
        self.network.reset(slots)
        attacker = np.rint(tasks[:, _ATTACKER]).astype(np.int64)
        if self._hidden:
            whole = np.rint(tasks).astype(np.int64)
            self.attackers.reset(slots, attacker, whole[:, _USER_HOST], whole[:, _LEADS_TO], whole[:, _ORDER])
            chances = tasks[:, [_HEAVIEST_CHANCE, _DETECTION_CHANCE]]
            self._arms.reset(slots, chances, whole[:, _RANKING])
        else:
            # B_line's user host is drawn anew in every episode; step 0 has no other draws.
            draws = uniforms(episode_seeds(seeds, self._time[slots]), 1)[:, 0]
            user_host = USER_HOSTS[(draws * len(USER_HOSTS)).astype(np.int64)]
            self.attackers.reset(slots, attacker, user_host, np.tile(LEADS_TO, (len(slots), 1)), None)
            self._arms.reset(slots, _PUBLISHED_CHANCES[None], sc.RANKING[None])
        self._write(slots)

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        """Blue, green and red act; all draws of a step are a function of the episode's seed and the step."""
        at = index_of(slots, self._num_slots)
        chosen = checked_choices(actions, slots, sc.NUM_ACTIONS)
        self._time[at] += 1
        self._action[at] = chosen
        draws = uniforms(episode_seeds(self._seed[at], self._time[at]), 6 if self._green else 4)
        # Red and green decide by what they know, which is of earlier steps.
        verb, target = self.attackers.choose(slots, at, draws[:, 0])
        exploit = self._arms.choose(slots, verb, target, draws[:, 1:3])
        detected = draws[:, 3] < self._arms.detection_chance[at]
        self.scanned = _scanned_by_green(draws[:, 4:]) if self._green else None
        self.red = RedMove(verb, target, exploit, detected)
        cost = self.network.step(slots, at, chosen, self.red, self.scanned)
        rows = self.rows
        # Whole tenths, divided once: the published rewards to the last bit.
        rows.reward[at] = cost / -10.0
        rows.terminated[at] = rows.truncated[at] = False
        self._write(at)

    def _write(self, at: At) -> None:
        obs, info = self.rows.obs, self.rows.info
        assert isinstance(obs, np.ndarray)
        # The lowest 52 bits of what blue sees are its 52 numbers.
        seen = self.network.seen[at].astype("<i8").view(np.uint8).reshape(-1, 8)
        obs[at] = np.unpackbits(seen, axis=1, count=NUM_SEEN, bitorder="little")
        truth = np.empty((len(seen), len(INFO_NAMES)))
        write_truth(truth, self.network, at, self._time[at])
        info[at] = truth

    def render(self, slot: int) -> NDArray[np.uint8]:
        """The network: the true state beside what blue sees, routes, decoys, and both moves in words."""
        red = int(self.attackers.verb[slot]), int(self.attackers.target[slot])
        routes = self.attackers.routes(slot)
        return network_picture(self.network, slot, red, int(self._action[slot]), routes)


def _scanned_by_green(draws: NDArray[np.float64]) -> Ints:
    """The host that green scans, or -1: it sleeps in half of the steps."""
    host = sc.GREEN_SCANS[(draws[:, 1] * len(sc.GREEN_SCANS)).astype(np.int64)]
    return np.where(draws[:, 0] < 0.5, -1, host)
