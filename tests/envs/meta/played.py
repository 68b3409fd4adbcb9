"""What the tests of the families share: shards with rows, and episodes played on them."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from benchmarks.scores import returns_of as returns_of
from envs.base import ObsSpace, Rows, Shard, TaskFamily, arrays_of, uniform_actions
from envs.layout import Layout
from envs.meta import FAMILIES
from envs.meta.make_env import make_family
from envs.meta.third_party.installed import missing
from utils.options import from_keywords

# The families that can be played with what is installed; the others' tests need another environment.
PLAYABLE = [name for name, family in FAMILIES.items() if missing(family) is None]

# Games that need no package (tests/envs/interop/pettingzoo/random_games.py).
_RANDOM = "tests.envs.interop.pettingzoo.random_games"

_VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in FAMILIES),
    ("PointRobot", {"reward": "sparse_distance", "start": "fixed", "max_episode_steps": 100}),
    ("PointRobot", {"reward": "dense", "start": "fixed", "max_episode_steps": 20}),
    ("PointRobot", {"goals": "square", "start": "square", "reward": "dense"}),
    ("PointRobot", {"goals": "circle", "arcs": "down_up", "wind": "episode"}),
    ("PointRobot", {"goals": "circle", "arcs": "sides", "wind": "step"}),
    ("PointRobot", {"goals": "circle", "test_circle_radius": 2.0, "wind": "fixed"}),
    ("GridNavi", {"variant": "show"}),
    ("GridNavi", {"variant": "dense"}),
    ("GridNavi", {"variant": "hall"}),
    ("AntDir", {"variant": "forward_backward"}),
    ("AntDir", {"variant": "circle"}),
    ("AntDir", {"variant": "direction_2d", "contacts": True}),
    ("AntGoal", {"variant": "sparse", "contacts": True}),
    ("AntGoal", {"variant": "semicircle_sparse"}),
    ("AntGoal", {"variant": "circle"}),
    ("DarkKeyDoor", {"start": "corner", "shuffle_actions": True}),
    ("DelayedCatch", {"runs": 5}),
    ("MetaFrozenLake", {"holes": "recover"}),
    ("HumanoidDir", {"contacts": True}),
    ("BodyParams", {"body": "half_cheetah", "parameters": ["gravity"]}),
    ("BodyParams", {"body": "hopper", "parameters": ["mass"]}),
    ("BodyParams", {"body": "walker2d", "parameters": ["damping"]}),
    ("BodyParams", {"body": "humanoid", "contacts": True}),
    ("TMazePassive", {"length": 20, "penalty": "wrong_action"}),
    ("TMazeActive", {"penalty": "wrong_action"}),
    ("TMazeNoise", {"variant": "LN", "length": 30, "indicator_at": 0}),
    ("TMazeNoise", {"variant": "LN", "length": 30, "agreement_at": 15}),
    ("CyberDefence", {"variant": "hidden", "green": True}),
    ("CyberDefence", {"era": "2022", "wrapper": "cardiff", "fix_impact": True}),
    ("Mixture", {"parts": {"a": {"family": "TreasureHunt", "weight": 3}, "b": {"family": "Wind"}}}),
    ("Mixture", {"parts": ["KeyToDoor", "TMazeNoise"], "show_part": False}),
    ("Mixture", {"parts": ["GridNavi", "KeyToDoor", "TMazePassive"]}),
    ("GridWorldMultiAgent", {"mode": "ego", "agents": 3, "held_out": "idle"}),
    ("GridWorldMultiAgent", {"death_on_sight": True, "obstacles": 3, "target_speed": 0.5, "together": True}),
    ("Gymnasium", {"task_by": "seed"}),
    ("MetaWorld", {"benchmark": "ML10", "reward_version": "v1", "end_on_success": True}),
    ("PettingZoo", {"id": f"{_RANDOM}:turns", "mode": "ego", "partners": [f"{_RANDOM}:first", "random"]}),
    ("PettingZoo", {"id": f"{_RANDOM}:turns", "mode": "joint", "task_by_seed": True}),
    ("PettingZoo", {"id": f"{_RANDOM}:at_once", "reward": "sum", "arguments": ["agents=2"]}),
]

# Games of others, which need the environment of requirements-partners.txt.
_GAMES_OF_PARTNERS: list[tuple[str, dict[str, Any]]] = [
    ("PettingZoo", {"id": one, "mode": mode, "arguments": arguments})
    for one, arguments in (
        ("mpe2/simple_push_v3", ["max_cycles=1000"]),
        ("mpe2/simple_spread_v3", ["max_cycles=1000", "continuous_actions=true"]),
        ("classic/tictactoe-v3", []),
        ("classic/connect_four-v3", []),
        ("classic/rps-v2", ["max_cycles=1000"]),
    )
    for mode in ("joint", "ego")
]


def _is_playable(variant: tuple[str, dict[str, Any]]) -> bool:
    kind = FAMILIES[variant[0]]
    return missing(kind, from_keywords(kind.Config, variant[0], variant[1])) is None


VARIANTS = [variant for variant in _VARIANTS if _is_playable(variant)]
GAMES_OF_PARTNERS = [variant for variant in _GAMES_OF_PARTNERS if _is_playable(variant)]


def variant_name(variant: tuple[str, dict[str, Any]]) -> str:
    """The test's name of one family with its options."""
    values = ("+".join(value) if isinstance(value, dict) else str(value) for value in variant[1].values())
    return "-".join([variant[0], *values])


def family_of(variant: tuple[str, dict[str, Any]]) -> TaskFamily:
    """The family of one entry of VARIANTS."""
    return make_family(variant[0], **variant[1])


def obs_parts(space: ObsSpace) -> tuple[spaces.Space[Any], ...]:
    """The space of each part of an observation."""
    return tuple(space.values()) if isinstance(space, spaces.Dict) else (space,)


class Played:
    """A shard bound to rows of its own, stepped as a backend would."""

    def __init__(self, family: TaskFamily, num_slots: int, threads: int = 1) -> None:
        self.shard: Shard = family.make_shard(num_slots, threads)
        self.rows: Rows = Layout(family.spec).allocate(num_slots)
        self.shard.bind(self.rows)

    def reset(self, slots: Any, tasks: Any, seeds: Any) -> Rows:
        chosen = np.asarray(slots, np.int64)
        self.rows.reward[chosen] = 0.0
        self.rows.terminated[chosen] = False
        self.rows.truncated[chosen] = False
        self.shard.reset(chosen, np.asarray(tasks, np.float64), np.asarray(seeds, np.uint64))
        return self.rows

    def step(self, slots: Any, actions: Any) -> Rows:
        self.shard.step(np.asarray(slots, np.int64), np.asarray(actions, self.rows.prev_action.dtype))
        return self.rows

    def bits(self, slot: int | np.integer[Any]) -> bytes:
        """Everything that the shard wrote into one slot's row."""
        rows = self.rows
        written = [*arrays_of(rows.obs), rows.reward, rows.terminated, rows.truncated, rows.info]
        return b"".join(part[slot].tobytes() for part in written)


def random_actions(rng: np.random.Generator, family: TaskFamily, *leading: int) -> NDArray[Any]:
    """Uniform actions [*leading, ...]."""
    drawn = uniform_actions(rng, family.spec.action_space, int(np.prod(leading)))
    return drawn.reshape(*leading, *drawn.shape[1:])


def play_alone(
    family: TaskFamily, task: NDArray[np.float64], seed: int, actions: NDArray[Any]
) -> list[bytes]:
    """The bits of every row of one episode on a shard of one slot."""
    played = Played(family, 1)
    played.reset([0], [task], [seed])
    bits = [played.bits(0)]
    for action in actions:
        played.step([0], action[None])
        bits.append(played.bits(0))
    played.shard.close()
    return bits
