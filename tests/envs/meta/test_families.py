"""The promises of a family, tested over the registry: a family that is added to it is tested by these."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import warnings
from dataclasses import fields
from operator import itemgetter
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from envs.base import Shard, Shelf, SlotError, Split, TaskFamily, map_obs
from envs.meta import FAMILIES
from envs.meta.agents.grid_world_multi_agent import HeldOut
from envs.meta.make_env import make_env
from tests.envs.meta.played import (
    GAMES_OF_PARTNERS,
    PLAYABLE,
    VARIANTS,
    Played,
    family_of,
    obs_parts,
    play_alone,
    random_actions,
    variant_name,
)

# Families of ours that draw something visible at the start of an episode. Whether another does is its affair.
STARTS_DIFFER = {
    "AntDir",
    "AntGoal",
    "BodyParams",
    "CheetahDir",
    "CheetahDirSparse",
    "DelayedCatch",
    "Gymnasium",
    "HalfCheetahVel",
    "HopperRandParams",
    "HumanoidDir",
    "KeyToDoor",
    "PassiveVisualMatch",
    "PointRobot",
    "TMazeNoise",
    "Walker2DRandParams",
}

# Families that have a single task: all that differs is the seed of the episode.
ONE_TASK = {"DelayedCatch", "Gymnasium", "PettingZoo"}

EVERY = [
    *(pytest.param(one, id=variant_name(one)) for one in VARIANTS),
    *(pytest.param(one, id=variant_name(one), marks=pytest.mark.peers) for one in GAMES_OF_PARTNERS),
]


@pytest.fixture(params=EVERY)
def family(request: pytest.FixtureRequest) -> TaskFamily:
    return family_of(request.param)


def task_of(family: TaskFamily, seed: int = 0) -> np.ndarray:
    return family.sample_tasks(np.random.default_rng(seed), 1, "train")[0]


def choices_of(family: TaskFamily) -> Any:
    """How many choices an action of a family has, or each of its parts."""
    space = family.spec.action_space
    return space.n if isinstance(space, spaces.Discrete) else getattr(space, "nvec", None)


def test_every_family_is_registered_under_the_name_it_reports():
    for name, kind in FAMILIES.items():
        config = kind.Config()
        assert (config.family, kind(config).spec.name) == (name, name)


def test_every_family_and_every_option_explains_itself():
    for kind in FAMILIES.values():
        assert kind.__doc__
        assert kind.Config.__doc__
        for item in fields(kind.Config):
            assert item.name == "family" or item.metadata["help"]


def test_what_a_family_reports_is_consistent(family: TaskFamily):
    spec = family.spec
    assert spec.success is None or spec.success in spec.info_names
    assert len(set(spec.info_names)) == len(spec.info_names)
    if isinstance(spec.action_space, spaces.Box):
        assert (
            (spec.action_space.low == -1).all()
            and (spec.action_space.high == 1).all()
            and spec.action_space.dtype == np.float32
        )
    else:
        assert isinstance(spec.action_space, (spaces.Discrete, spaces.MultiDiscrete))
        assert not np.any(spec.action_space.start)
    for part in obs_parts(spec.obs_space):
        assert part.dtype in (np.float32, np.uint8, np.int8)
        assert part.dtype != np.uint8 or len(part.shape or ()) == 3, "whole numbers are for pictures"


def test_every_family_says_on_which_shelf_it_stands_and_in_which_version():
    for name, kind in FAMILIES.items():
        assert isinstance(kind.shelf, Shelf) and kind.version >= 1
        assert f"Retrial/{name}-v{kind.version}" in gymnasium.registry


def test_the_folder_of_a_family_is_its_shelf():
    for name, kind in FAMILIES.items():
        assert kind.__module__.split(".")[:-1] == ["envs", "meta", kind.shelf.name], name


def test_every_family_explains_its_definition():
    for kind in FAMILIES.values():
        text = inspect.getdoc(kind) or ""
        for word in ("Task:", "Observation", "Action", "Reward", r"\bH( = |=|: )", r"\bk( = |=)\d"):
            assert re.search(word, text), f"{kind.__name__} does not tell its {word}"


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("n", [0, 1, 7])
def test_tasks_are_rows_of_float64(family: TaskFamily, split: str, n: int):
    tasks = family.sample_tasks(np.random.default_rng(0), n, split)
    assert tasks.shape == (n, family.spec.task_dim)
    assert tasks.dtype == np.float64
    assert np.array_equal(tasks, family.sample_tasks(np.random.default_rng(0), n, split))


def test_an_unknown_split_is_refused(family: TaskFamily):
    with pytest.raises(ValueError, match="'validation'"):
        family.sample_tasks(np.random.default_rng(0), 1, "validation")


def test_splits_are_disjoint_or_reported_as_shared(family: TaskFamily):
    # The same stream for both, which is where two continuous distributions would give the same tasks.
    train, test = (
        {task.tobytes() for task in family.sample_tasks(np.random.default_rng(0), 2000, split)}
        for split in ("train", "test")
    )
    if family.spec.split is Split.disjoint:
        assert not train & test
        few = family.package or getattr(family.config, "held_out", HeldOut.none) is not HeldOut.none
        assert len(train) > 1000 or few, (
            "the most likely of many maps come up again, Meta-World has 50 places for a task, "
            "and a type of partner that is held out meets as many places as others"
        )
    else:
        assert train == test


def test_the_same_task_and_seed_give_the_same_episode(family: TaskFamily):
    actions = random_actions(np.random.default_rng(1), family, 40)
    task = task_of(family)
    first = play_alone(family, task, 5, actions)
    assert play_alone(family, task, 5, actions) == first
    other = actions.copy()
    if not isinstance(family.spec.action_space, spaces.Box):
        other = (other + 1) % choices_of(family)
    else:
        other[0] += np.where(other[0] < 0, 0.5, -0.5)
    assert play_alone(family, task, 5, other) != first


def test_another_task_gives_another_episode(family: TaskFamily):
    scripted = family.has_oracle
    first = task_of(family, 0)
    others = {task.tobytes(): task for task in (task_of(family, seed) for seed in range(1, 50))}
    others.pop(first.tobytes(), None)
    if not others:
        assert family.spec.name in ONE_TASK
        return  # there is one task
    # A few others: two opponents may answer alike to what one of them is best played with.
    tasks = np.stack([first, *list(others.values())[:3]])
    slots, played = np.arange(len(tasks)), Played(family, len(tasks))
    rows = played.reset(slots, tasks, [5] * len(tasks))
    rng, bits = np.random.default_rng(2), [b""] * len(tasks)
    for _ in range(family.config.max_episode_steps):
        one = (
            family.oracle_action(rows.obs, tasks, rows.info)[:1]
            if scripted
            else random_actions(rng, family, 1)
        )
        played.step(slots, np.concatenate([one] * len(tasks)))
        bits = [before + played.bits(slot) for slot, before in enumerate(bits)]
    assert any(other != bits[0] for other in bits[1:])


@pytest.mark.parametrize("name", sorted(STARTS_DIFFER.intersection(PLAYABLE)))
def test_another_seed_gives_another_start_where_starts_differ(name: str):
    family = family_of((name, {}))
    starts = {
        play_alone(family, task_of(family), seed, random_actions(np.random.default_rng(0), family, 0))[0]
        for seed in range(8)
    }
    assert len(starts) > 1


@pytest.mark.parametrize("threads", [1, 2])
def test_slot_i_of_many_equals_a_shard_of_one_slot_bit_for_bit(family: TaskFamily, threads: int):
    rng = np.random.default_rng(3)
    count, episodes = 5, [[] for _ in range(5)]
    played = Played(family, count, threads)

    def begin(slots: np.ndarray) -> None:
        tasks = family.sample_tasks(rng, len(slots), "train")
        seeds = rng.integers(2**63, size=len(slots)).astype(np.uint64)
        played.reset(slots, tasks, seeds)
        for i, slot in enumerate(slots.tolist()):
            episodes[slot].append(
                {"task": tasks[i], "seed": int(seeds[i]), "actions": [], "bits": [played.bits(slot)]}
            )

    begin(np.arange(count))
    for _ in range(50):
        slots = np.arange(count) if rng.random() < 0.4 else np.flatnonzero(rng.random(count) < 0.6)
        actions = random_actions(rng, family, len(slots))
        if len(slots):
            played.step(slots, actions)
        for slot, action in zip(slots, actions, strict=True):
            episodes[slot][-1]["actions"].append(action)
            episodes[slot][-1]["bits"].append(played.bits(slot))
        over = np.flatnonzero(rng.random(count) < 0.05)
        if len(over):
            begin(over)
    assert sum(len(own) for own in episodes) > count, "some slot must have been reset while others went on"
    for own in episodes:
        for one in own:
            actions = np.array(one["actions"])
            assert play_alone(family, one["task"], one["seed"], actions) == one["bits"]


def test_slots_that_are_not_stepped_are_left_alone(family: TaskFamily):
    rng = np.random.default_rng(4)
    played = Played(family, 4)
    tasks = family.sample_tasks(rng, 4, "train")
    played.reset(np.arange(4), tasks, np.arange(4))
    played.step(np.arange(4), random_actions(rng, family, 4))
    before = [played.bits(slot) for slot in range(4)]
    moved = set()
    for _ in range(20):  # more than once: a step may lead nowhere, into a wall
        played.step([1, 3], random_actions(rng, family, 2))
        moved |= {slot for slot in range(4) if played.bits(slot) != before[slot]}
    assert moved == {1, 3}
    after = [played.bits(slot) for slot in range(4)]
    played.reset([0], tasks[:1], [99])
    assert played.bits(2) == before[2]
    assert played.bits(3) == after[3]


def test_spaces_contain_what_is_emitted_and_all_numbers_are_finite(family: TaskFamily):
    rng = np.random.default_rng(5)
    played = Played(family, 3)
    rows = played.reset(np.arange(3), family.sample_tasks(rng, 3, "test"), np.arange(3))
    for _ in range(100):
        for slot in range(3):
            assert family.spec.obs_space.contains(map_obs(itemgetter(slot), rows.obs))
        assert np.isfinite(rows.reward).all() and np.isfinite(rows.info).all()
        if family.spec.name != "PettingZoo":  # whose games have limits of their own
            assert not rows.truncated.any(), "the horizon is the trial clock's"
        if family.spec.success:
            assert np.isin(rows.info[:, family.spec.info_names.index(family.spec.success)], (0.0, 1.0)).all()
        rows = played.step(
            np.arange(3),
            random_actions(rng, family, 3) * (3 if isinstance(family.spec.action_space, spaces.Box) else 1),
        )


def test_an_oracle_does_not_mind_what_the_manager_adds_to_an_observation(family: TaskFamily):
    """The manager adds the new-episode flag, and the task where it is shown.

    So an oracle can read the rows of `make_parallel_env`.
    """
    if not family.has_oracle or not isinstance(family.spec.obs_space, spaces.Box):
        return  # no oracle, or the flag has a key of its own
    played, tasks = Played(family, 4), family.sample_tasks(np.random.default_rng(0), 4, "train")
    rows = played.reset(np.arange(4), tasks, np.arange(4))
    for step in range(20):
        assert isinstance(rows.obs, np.ndarray)
        more = np.concatenate(
            [rows.obs, tasks.astype(np.float32), np.full((4, 1), step == 0, np.float32)], axis=1
        )
        actions = family.oracle_action(rows.obs, tasks, rows.info)
        assert np.array_equal(family.oracle_action(more, tasks, rows.info), actions)
        played.step(np.arange(4), actions)


def test_an_action_beyond_its_bounds_acts_as_the_bound(family: TaskFamily):
    if not isinstance(family.spec.action_space, spaces.Box):
        return  # choices have no bounds to be clipped to
    actions = np.sign(random_actions(np.random.default_rng(6), family, 20))
    task = task_of(family)
    assert play_alone(family, task, 1, np.float32(7.0) * actions) == play_alone(family, task, 1, actions)
    assert play_alone(family, task, 1, np.float32(0.5) * actions) != play_alone(family, task, 1, actions)


def test_an_action_that_is_none_is_refused_by_its_slot(family: TaskFamily):
    played = Played(family, 4)
    played.reset(np.arange(4), family.sample_tasks(np.random.default_rng(0), 4, "train"), np.arange(4))
    actions = random_actions(np.random.default_rng(0), family, 2)
    if not isinstance(family.spec.action_space, spaces.Box):
        actions[1] = choices_of(family)
        says = rf"the action \[?{np.max(choices_of(family))}.* is none of"
    else:
        actions[1, 0], says = np.nan, "nan"
    with pytest.raises(SlotError, match=says) as caught:
        played.step([0, 2], actions)
    assert caught.value.slot == 2


def test_a_family_travels_by_cloudpickle_and_plays_the_same(family: TaskFamily):
    sent = cloudpickle.dumps(family)
    # Spaces have bounds for each number that is seen.
    seen = sum(int(np.prod(part.shape or ())) for part in obs_parts(family.spec.obs_space))
    assert len(sent) < 5000 * max(len(family.spec.parts), 1) + 16 * seen
    copy = cloudpickle.loads(sent)
    actions = random_actions(np.random.default_rng(7), family, 10)
    assert play_alone(copy, task_of(family), 3, actions) == play_alone(family, task_of(family), 3, actions)


def checked_settings() -> list[tuple[str, dict[str, Any]]]:
    return [
        (name, settings)
        for name in PLAYABLE
        for settings in (
            {},
            {"episodes_per_task": 3, "oracle": True},
            {"boundary": "legacy", "episodes_per_task": 2},
        )
    ]


@pytest.mark.parametrize("name, settings", checked_settings(), ids=str)
def test_the_single_environment_passes_gymnasiums_check(name: str, settings: dict[str, Any]):
    arguments: dict[str, Any] = {"episodes_per_task": None, "seed": 0, "max_episode_steps": 5, **settings}
    with make_env(name, **arguments) as env, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(infinity|not have a.*spec|different render modes).*")
        check_env(env, skip_render_check=True)


def test_importing_the_families_imports_no_simulator_and_no_torch():
    code = (
        "import sys, envs.meta; "
        "print([name for name in ('mujoco', 'torch', 'hydra', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", sorted(PLAYABLE))
def test_every_family_is_a_registered_gymnasium_environment(name: str):
    with (
        gymnasium.make(f"Retrial/{name}-v{FAMILIES[name].version}", episodes_per_task=2, horizon=3) as env,
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", message=".*(infinity|not have a.*spec|different render modes).*")
        obs, _ = env.reset(seed=0)
        again, _ = env.reset(seed=0)
        assert str(obs) == str(again)
        env.action_space.seed(0)
        over, steps, starts = False, 0, 0
        while not over:
            _, _, terminated, truncated, info = env.step(env.action_space.sample())
            over, steps, starts = terminated or truncated, steps + 1, starts + info["episode_start"]
        assert starts == 1 and 3 <= steps <= 7, (
            "two episodes of at most three steps, and the start row between them"
        )


def test_a_picture_has_colours(family: TaskFamily):
    played = Played(family, 2)
    if family.spec.name == "Gymnasium" or type(played.shard).render is Shard.render:
        played.shard.close()
        pytest.skip("whether it draws is its own affair: without pictures there is no film")
    tasks = family.sample_tasks(np.random.default_rng(0), 2, "train")
    played.reset([0, 1], tasks, [0, 1])
    try:
        picture = played.shard.render(0)
    except RuntimeError as error:
        assert "MUJOCO_GL" in str(error)
        pytest.skip("no OpenGL here")
    finally:
        played.shard.close()
    assert (
        picture.dtype == np.uint8
        and picture.ndim == 3
        and picture.shape[2] == 3
        and len(np.unique(picture.reshape(-1, 3), axis=0)) > (1 if family.shelf is Shelf.third_party else 2)
    )
