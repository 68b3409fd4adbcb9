"""What the zoo holds: the words of each run, and what a record of it must agree with to be current."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from configs.compose import composed_settings
from envs.meta import FAMILIES
from policies.run.forecast import what_is_on
from utils.disk.manifest import digest_of

# The parts of a config that decide what is learned; the others say where and how it runs.
LEARNED = ("env", "agent", "memory", "algorithm", "train", "curriculum", "num_slots", "deterministic")
# What is played beside an entry with the same recipe, by what it shows, and the word that makes it.
MARKOV, INFORMED = "Markov", "informed"
COMPANIONS = {MARKOV: "agent=Markov", INFORMED: "env.oracle=true"}


@dataclass(frozen=True)
class Entry:
    """One command of the page."""

    name: str
    # After `python main.py`.
    words: tuple[str, ...]
    # What it takes of one core, by which the cheapest is recorded first; a record knows better.
    minutes: float
    # A Markov agent shows what the memory is for; one that is given the task, where no script is its oracle,
    # what it costs to find out.
    beside: tuple[str, ...] = (MARKOV,)
    seeds: tuple[int, ...] = (0,)
    # A package that it needs besides the tested set.
    needs: str | None = None
    # What a script returns that is told nothing, by episode; tests of the family play it.
    searching: str | None = None
    # What others have published, by their name: returns by episode, or of a trial.
    published: tuple[tuple[str, str], ...] = ()

    @property
    def command(self) -> str:
        """What a user types."""
        return " ".join(["python main.py", *self.words])


@dataclass(frozen=True)
class Recording:
    """One run of an entry."""

    entry: Entry
    seed: int
    # What of `COMPANIONS` it is; None: the entry itself.
    companion: str | None = None

    @property
    def label(self) -> str:
        """By which the record of the entry keeps it."""
        return " ".join(filter(None, (self.companion, f"seed {self.seed}")))

    @property
    def words(self) -> tuple[str, ...]:
        """After `python main.py`, all but the seed."""
        return (*self.entry.words, *([COMPANIONS[self.companion]] if self.companion else []))


THREE = (0, 1, 2)
BOTH = (MARKOV, INFORMED)
VARIBAD, RESEL = "VariBAD (PPO, 100 M env steps)", "RESeL (SAC, 5 M env steps)"

ENTRIES = (
    Entry("PointRobot", ("env=PointRobot",), 3, seeds=THREE),
    Entry("RoomNavi", ("env=RoomNavi",), 10, searching="2809"),
    Entry("TreasureHunt", ("env=TreasureHunt",), 10, searching="737"),
    Entry("Wind", ("env=Wind",), 4, published=((RESEL, "65"),)),
    Entry(
        "AntDir",
        ("env=AntDir",),
        60,
        seeds=THREE,
        beside=BOTH,
        published=((VARIBAD, "1293, 1315"), (RESEL, "2532 in a trial")),
    ),
    Entry("AntGoal", ("env=AntGoal",), 45, beside=BOTH, published=((VARIBAD, "-127.9, -98.8"),)),
    Entry(
        "CheetahDir",
        ("env=CheetahDir",),
        60,
        seeds=THREE,
        beside=BOTH,
        published=((VARIBAD, "1900, 1930"), (RESEL, "5014 in a trial")),
    ),
    Entry("CheetahDirSparse", ("env=CheetahDirSparse",), 45, beside=BOTH),
    Entry(
        "HalfCheetahVel",
        ("env=HalfCheetahVel",),
        45,
        seeds=THREE,
        beside=BOTH,
        published=((VARIBAD, "-24.8, -26.1"), (RESEL, "-33 in a trial")),
    ),
    Entry("HumanoidDir", ("env=HumanoidDir",), 60, beside=BOTH, published=((VARIBAD, "997, 1451"),)),
    Entry(
        "Walker2DRandParams", ("env=Walker2DRandParams",), 45, beside=BOTH, published=((VARIBAD, "988, 992"),)
    ),
    Entry("HopperRandParams", ("env=HopperRandParams",), 45, beside=BOTH),
    Entry("BodyParams", ("env=BodyParams",), 45, beside=BOTH),
    Entry("DarkKeyDoor", ("env=DarkKeyDoor",), 8),
    Entry("DelayedCatch", ("env=DelayedCatch",), 2),
    Entry("GridNavi", ("env=GridNavi",), 6, seeds=THREE, searching="4, 11.07, 11.07, 11.07"),
    Entry("KeyToDoor", ("env=KeyToDoor",), 10),
    Entry("MetaFrozenLake", ("env=MetaFrozenLake",), 8),
    Entry("PassiveVisualMatch", ("env=PassiveVisualMatch",), 10),
    Entry("TMazeActive", ("env=TMazeActive",), 10),
    Entry("TMazeNoise", ("env=TMazeNoise",), 10),
    Entry("TMazePassive", ("env=TMazePassive",), 2),
    Entry(
        "CyberDefence",
        ("experiment=cyber_defence",),
        60,
        beside=(),
        seeds=THREE,
        published=(("the winner of CAGE Challenge 2", "-54.57"),),
    ),
    Entry("RepeatedGame", ("env=RepeatedGame",), 2),
    Entry(
        "GridWorldMultiAgent", ("experiment=grid_world_multi_ppo",), 5, seeds=THREE, searching="3.13, 4.18"
    ),
    Entry("Mixture", ("env=Mixture",), 20),
    Entry("Gymnasium", ("env=Gymnasium", "env.id=CartPole-v1", "algorithm=PPO"), 1, beside=()),
    Entry("MiniGrid", ("env=MiniGrid",), 10, needs="minigrid"),
    Entry("POPGym", ("env=POPGym",), 3, needs="popgym"),
    Entry("PettingZoo", ("env=PettingZoo", "env.id=mpe2/simple_spread_v3"), 10, needs="mpe2"),
    Entry("OpenEnv", ("experiment=connect4",), 60, seeds=THREE, needs="openenv"),
)

# Whose agent of the first seed comes with the project, for `evaluate=zoo/NAME`.
KEPT = (
    "PointRobot",
    "Wind",
    "GridNavi",
    "DarkKeyDoor",
    "KeyToDoor",
    "DelayedCatch",
    "PassiveVisualMatch",
    "TMazePassive",
    "MetaFrozenLake",
    "RepeatedGame",
    "GridWorldMultiAgent",
    "CyberDefence",
    "HalfCheetahVel",
)

# Families without an entry, and why.
LEFT_OUT = {
    "CybORG": "needs the original simulator, which no package index has; CyberDefence plays the same game",
    "MetaWorld": "needs an environment of its own: requirements-metaworld.txt",
}


def jobs_of(entry: Entry) -> list[Recording]:
    """Its runs: every seed, and one of each companion."""
    companions = [Recording(entry, entry.seeds[0], name) for name in entry.beside]
    return [*(Recording(entry, seed) for seed in entry.seeds), *companions]


def is_installed(entry: Entry) -> bool:
    """Whether the package is there that its environment is made of."""
    return entry.needs is None or find_spec(entry.needs) is not None


def digest(words: Sequence[str]) -> str:
    """The hash of all settings that decide what is learned, and of the version of the family."""
    settings = composed_settings(words)
    learned = [what_is_on(settings[name]) for name in LEARNED]
    return digest_of([learned, FAMILIES[settings["env"]["family"]].version])[:16]
