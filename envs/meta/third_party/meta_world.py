"""MetaWorld: a robot arm and fifty things to do with it, in the benchmarks of the package metaworld."""

from __future__ import annotations

import functools
import importlib
import itertools
import pickle
import warnings
from collections import defaultdict
from dataclasses import dataclass
from enum import Enum
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Obs, Reference, Shelf, Split, TaskFamily
from envs.interop.gymnasium_shard import GymnasiumShard, TaskSetter, close_env
from envs.interop.spaces import ActionWriter, ObsReader
from envs.meta.kernels import check_split
from utils.options import OptionError, nearest, option

OBS_SPACE = spaces.Box(-np.inf, np.inf, (39,), np.float32)
ACTION_SPACE = spaces.Box(-1.0, 1.0, (4,), np.float32)
# Where Meta-World's observation contains the goal; the observation here has zeros there.
GOAL = slice(36, 39)

# The size of a task of Meta-World, which is where things stand: three numbers, or six.
PLACES = 6

INFO_NAMES = ("success", "near_object", "grasp_success", "obj_to_target", "goal_x", "goal_y", "goal_z")


class Benchmark(Enum):
    """What is trained on and what is tested.

    ML1: one environment, tested in other places; ML10: ten environments to train on and five others to test;
    ML45: forty-five environments, and five others.
    """

    ML1 = "ML1"
    ML10 = "ML10"
    ML45 = "ML45"


class RewardVersion(Enum):
    """v1: the rewards of the first release, up to some 1200 a step; v2: rewritten, between 0 and 10."""

    v1 = "v1"
    v2 = "v2"


@dataclass
class MetaWorldConfig(EnvConfig):
    """Options of MetaWorld; the defaults are ML1 on reach with today's rewards and ten episodes."""

    family: str = "MetaWorld"
    max_rollouts_per_task: int = option(10, "k: episodes of one task in a trial", low=1)
    max_episode_steps: int = option(
        500,
        "H: environment steps in an episode; Meta-World's environments end after 500",
        low=1,
        high=500,
    )
    benchmark: Benchmark = option(Benchmark.ML1, "ML1, ML10 or ML45: what is trained on and what is tested")
    ml1_env_name: str = option(
        "reach-v3", "Meta-World's environment of ML1; ML10 and ML45 have their own lists"
    )
    reward_version: RewardVersion = option(
        RewardVersion.v2,
        "v1 (up to some 1200 a step) or v2 (0 to 10); results of the two are not comparable",
    )
    places_seed: int = option(
        0, "the seed by which the benchmark draws its 50 places for each environment", low=0
    )
    end_on_success: bool = option(
        False, "end an episode at its first success, as Meta-World's evaluation does"
    )


class MetaWorld(TaskFamily):
    """A robot arm has to find out what to do, and where, in Meta-World's ML1, ML10 and ML45.

    Task: 7 numbers. The first is the number of the environment among Meta-World's fifty in alphabetical
    order; the other six place its objects and its goal (an environment that needs three has zeros behind
    them). They come from the benchmark object that the package builds with `places_seed`: 50 places for each
    environment, trained and tested on as its own lists say. ML1 tests other places, ML10 and ML45 test five
    other environments, so the splits are disjoint. Tasks are drawn without repetition until all have been
    drawn: a list of 250 test tasks of ML10 is all of them. Everything in an episode follows from task and
    actions; Meta-World draws nothing more, and ignores seeds.

    Observation, 39 numbers: the gripper's position and opening, position and quaternion of two objects, all
    this at the step before, and three zeros where Meta-World shows the goal to agents that may know it.
    Action: four numbers in [-1, 1], the hand's movement and the fingers' force. Reward: the environment's
    own, by `reward_version`. Never terminated (with `end_on_success`: by a success). H=500, k=10. Info:
    success (now), near_object, grasp_success, obj_to_target; and the goal's position, for the record and the
    oracle, and not for the agent. Start rows have no info but the goal.

    Published as ML1, ML10 and ML45 of Meta-World, here in its v3 environments for Gymnasium. The official
    protocol adapts for ten episodes of one task and then evaluates three, which count as solved where success
    was ever 1: `evaluation.episodes_per_trial=13`, and the mean of success_episode_11 to 13. It cuts the
    evaluated three at their first success. Here they are played on; this changes what a memory sees
    afterwards, and the success of no episode. `end_on_success` cuts all of them, the adaptation included.

    Oracle: Meta-World's scripted policies, which know the environment and the goal. No quantity is added, and
    none is read from before the step. The family needs the package metaworld, which needs an older MuJoCo
    than other families: `requirements-metaworld.txt`.
    """

    Config = MetaWorldConfig
    shelf = Shelf.third_party
    package = "metaworld"
    config: MetaWorldConfig
    # On all 50 test tasks.
    references = (Reference(oracle=4834.9, random=797.6, tasks=50),)

    def __init__(self, config: MetaWorldConfig) -> None:
        super().__init__(config)
        self.spec = EnvSpec(
            name="MetaWorld",
            obs_space=OBS_SPACE,
            action_space=ACTION_SPACE,
            task_dim=1 + PLACES,
            info_names=INFO_NAMES,
            split=Split.disjoint,
            reference=self.measured_reference(),
            success="success",
        )

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        check_split(split)
        config = self.config
        tasks = tasks_of(config.benchmark, config.ml1_env_name, config.places_seed)[split]
        # As many shuffles of all tasks as n needs; the empty array is for n = 0.
        shuffles = [rng.permutation(len(tasks)) for _ in range(-(-n // len(tasks)))]
        return tasks[np.concatenate([np.zeros(0, np.int64), *shuffles])[:n]]

    def make_shard(self, num_slots: int, threads: int = 1) -> GymnasiumShard:
        # The slots of a shard share their environments: one that a slot gives back is taken by the next.
        idle: dict[str, list[Any]] = defaultdict(list)
        version, end = self.config.reward_version.value, self.config.end_on_success
        # Every slot is a Gymnasium environment that changes what it plays by `set_task`.
        return GymnasiumShard(
            lambda: AnyTaskEnv(idle, version, end),
            num_slots,
            ObsReader(OBS_SPACE, ACTION_SPACE),
            ActionWriter(ACTION_SPACE),
            task=TaskSetter("set_task"),
            info_names=INFO_NAMES,
        )

    def oracle_action(self, obs: Obs, task: NDArray[np.float64], info: NDArray[np.float64]) -> NDArray[Any]:
        assert isinstance(obs, np.ndarray)
        # The scripted policies read the goal in the observation.
        with_goal = obs[:, : OBS_SPACE.shape[0]].astype(np.float64)
        with_goal[:, GOAL] = info[:, INFO_NAMES.index("goal_x") :]
        names = env_names()
        policies = importlib.import_module("metaworld.policies").ENV_POLICY_MAP
        with warnings.catch_warnings():
            # The warning that an action lies beyond its bounds; it is clipped below.
            warnings.filterwarnings("ignore", message="Constant")
            actions = [
                policies[names[int(number)]]().get_action(row)
                for number, row in zip(task[:, 0], with_goal, strict=True)
            ]
        return np.clip(np.array(actions), -1.0, 1.0).astype(np.float32)


class AnyTaskEnv(gymnasium.Env[Any, Any]):
    """One slot, which plays any task in the environment that the task names.

    Environments are borrowed from those of the shard that are `idle`, since each weighs 20 MB. A borrowed one
    shows nothing of what it has played: Meta-World sets up its world anew at every reset.
    """

    observation_space = OBS_SPACE
    action_space = ACTION_SPACE

    def __init__(self, idle: dict[str, list[Any]], reward_version: str, end_on_success: bool) -> None:
        self._module = metaworld()
        self._idle, self._reward_version, self._end_on_success = idle, reward_version, end_on_success
        self._name, self._env = "", None

    def set_task(self, task: NDArray[np.float64]) -> None:
        """Play this task from the next reset on."""
        name = env_names()[int(task[0])]
        env_class = self._module.env_dict.ALL_V3_ENVIRONMENTS[name]
        if name != self._name:
            # Another environment is needed: give this one back, and take an idle one or build one.
            self._give_back()
            if self._idle[name]:
                self._env = self._idle[name].pop()
            else:
                self._env = env_class(reward_function_version=self._reward_version, render_mode="rgb_array")
            self._name = name
        # Meta-World takes a task as pickled bytes. Partially observable: the goal is hidden.
        places = task[1 : 1 + self._playing._random_reset_space.low.size].copy()
        packed = pickle.dumps({"rand_vec": places, "env_cls": env_class, "partially_observable": True})
        self._playing.set_task(self._module.Task(name, packed))

    @property
    def _playing(self) -> Any:
        assert self._env is not None, "a task is set before anything else"
        return self._env

    def _with_goal(self, info: dict[str, Any]) -> dict[str, Any]:
        return info | dict(
            zip(("goal_x", "goal_y", "goal_z"), self._playing._target_pos.tolist(), strict=True)
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float64], dict[str, Any]]:
        """The start of the task; there is nothing to seed."""
        obs, info = self._playing.reset()
        return obs, self._with_goal(info)

    def step(
        self, action: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        """One step; the time limit is the trial clock's, so nothing is truncated here."""
        obs, reward, _, _, info = self._playing.step(action)
        return obs, float(reward), self._end_on_success and info["success"] > 0, False, self._with_goal(info)

    def render(self) -> Any:
        """What the environment's camera sees."""
        return self._playing.render()

    def close(self) -> None:
        """Give back the environment, and close all that are idle."""
        self._give_back()
        for envs in self._idle.values():
            while envs:
                close_env(envs.pop())

    def _give_back(self) -> None:
        if self._env is not None:
            self._idle[self._name].append(self._env)
        self._name, self._env = "", None


def metaworld() -> Any:
    """The package, imported when it is first needed."""
    try:
        return importlib.import_module("metaworld")
    except ImportError as error:
        raise OptionError(
            f"MetaWorld needs the package metaworld: pip install -r requirements-metaworld.txt ({error})."
        ) from error


@functools.cache
def env_names() -> tuple[str, ...]:
    """The names of Meta-World's environments; a task holds the index of one of them."""
    return tuple(sorted(metaworld().env_dict.ALL_V3_ENVIRONMENTS))


@functools.cache
def tasks_of(benchmark: Benchmark, env_name: str, seed: int) -> dict[str, NDArray[np.float64]]:
    """[n, 7] all tasks of a benchmark by split.

    To build a benchmark takes a while (ML10 7 s, ML45 25 s), since it resets each environment 50 times.
    """
    module, names = metaworld(), env_names()
    if benchmark is Benchmark.ML1:
        if env_name not in names:
            hint = nearest(env_name, names)
            raise OptionError(f"MetaWorld: ml1_env_name={env_name!r} is not one of its environments.{hint}")
        # ML1 has a name of an environment; ML10 and ML45 have their own lists.
        built = module.ML1(env_name, seed=seed)
    else:
        built = getattr(module, benchmark.value)(seed=seed)
    return {split: _vectors(getattr(built, f"{split}_tasks"), names) for split in ("train", "test")}


def _vectors(tasks: list[Any], names: tuple[str, ...]) -> NDArray[np.float64]:
    """[n, 7] Meta-World's tasks as vectors; only an environment can unpack them."""
    vectors = np.zeros((len(tasks), 1 + PLACES))
    # The tasks of one environment follow each other, so each environment is built once.
    for name, group in itertools.groupby(enumerate(tasks), key=lambda item: item[1].env_name):
        env = metaworld().env_dict.ALL_V3_ENVIRONMENTS[name]()
        for row, task in group:
            env.set_task(task)
            # The environment has unpacked the task; this is where it keeps the places.
            places = env._last_rand_vec
            vectors[row, 0], vectors[row, 1 : 1 + len(places)] = names.index(name), places
        close_env(env)
    return vectors
