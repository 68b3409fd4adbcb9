"""PettingZoo: games of several agents, in turns or at once, played by one policy or beside partners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any, Self

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import ActionSpace, EnvConfig, EnvSpec, ObsSpace, Shelf, Split, TaskFamily
from envs.interop.gymnasium_shard import GymnasiumShard, MakeEnv, TaskSetter, close_env, error_text
from envs.interop.pettingzoo.actions import own_mask
from envs.interop.pettingzoo.ego import EgoWrapper, Partner, random_partner
from envs.interop.pettingzoo.flatten import FlattenMultiAgentWrapper
from envs.interop.pettingzoo.slot_env import SlotEnv
from envs.interop.spaces import ActionWriter, ObsReader, SpaceError
from envs.meta.kernels import check_split, split_choices
from envs.meta.third_party.petting_zoo_maker import Api, environment_maker, lacking_package
from envs.meta.third_party.registered_env import imported
from utils.options import OptionError, from_keywords, near, option

# Seeds are below this number, because simulators written in C keep them in a signed int.
SEEDS = 2**31
RANDOM = "random"


class Mode(Enum):
    """Who learns: all agents as one (joint), or one of them beside partners of an unknown type (ego)."""

    joint = "joint"
    ego = "ego"


class TeamReward(Enum):
    """What all agents together are paid in mode=joint."""

    mean = "mean"
    sum = "sum"


@dataclass
class PettingZooConfig(EnvConfig):
    """Options of PettingZoo; k=1, since a game without partners or worlds to know has nothing to adapt to."""

    family: str = "PettingZoo"
    max_rollouts_per_task: int = option(1, "k: episodes of one task in a trial", low=1)
    max_episode_steps: int = option(
        25, "H: steps of the policy in an episode; the game's own limit, as in arguments, may be lower", low=1
    )
    id: str = option(
        "mpe2/simple_spread_v3", "a module, or a registered id (classic/tictactoe-v3), or module:function"
    )
    arguments: list[str] = option([], 'arguments of its constructor: ["max_cycles=50","N=4"]')
    api: Api = option(Api.auto, "PettingZoo's interface: parallel or aec; auto: parallel where there is one")
    mode: Mode = option(Mode.joint, "joint: one policy plays all agents; ego: one agent, beside partners")
    reward: TeamReward = option(TeamReward.mean, "with mode=joint: the mean of all rewards, or the sum")
    seat: str | None = option(None, "with mode=ego: the agent that learns; null: the first one")
    partners: list[str] = option(
        [RANDOM], "with mode=ego: who plays the others: random, or module:function(obs, space, rng)"
    )
    test_partners: list[str] = option([], "with mode=ego: partners that only tests have, and no others")
    task_by_seed: bool = option(False, "the task is the seed of every reset of its trial, too")


class PettingZoo(TaskFamily):
    """This family plays PettingZoo environments, in turns (AEC) or at once (Parallel).

    Task: with mode=ego the number of the partner, counted over `partners` and then `test_partners`, which
    plays all other agents and is kept for the trial; with `task_by_seed` (then) the seed of every reset; or
    else 0. Splits are disjoint by seed, and where there are `test_partners`.

    mode=joint: Observation: what each agent sees, flattened and side by side, zeros once it is out, and then
    whose choice counts. Action: a choice for each agent, or the numbers of all; what does not count is
    ignored, and choices are masked then. Reward: the agents' mean, or their sum. Info: reward_AGENT, its own.
    A step is a cycle, or one turn in an AEC game that says it is not parallelizable. The episode ends when
    all agents have, and is truncated if a limit cut one of the last.

    mode=ego: a row is the agent's own turn. Observation: its own, flattened unless it is a picture. Reward:
    all that it was paid since its turn before. Partners play in between, with draws of the episode's seed.
    The episode ends when the agent is out of the game, or the game is over.

    Both: `action_mask` where the game says what is allowed, in what an agent sees or in its info. The game
    judges a move against it; a partner must not make one. Actions that are numbers are stretched from [-1, 1]
    to their bounds. H=25 steps of the policy, k=1. In scripts `from_factory` takes a factory in place of an
    id, and functions as partners.
    """

    Config = PettingZooConfig
    shelf = Shelf.third_party
    config: PettingZooConfig

    def __init__(
        self,
        config: PettingZooConfig,
        factory: MakeEnv | None = None,
        partners: Sequence[Partner] = (),
    ) -> None:
        if partners:
            config = replace(config, partners=[getattr(one, "__name__", repr(one)) for one in partners])
        super().__init__(config)
        self._check_options()
        if factory is None and lacking_package(config.id) is not None:
            # It is only described, by env=list and by tests; `lacks` refuses to play it.
            self._describe(spaces.Box(-np.inf, np.inf, (1,)), spaces.MultiDiscrete([2]), ())
            return
        self._make = factory or environment_maker(config.id, config.api, config.arguments)
        self._partners = (*(partners or map(_partner, config.partners)), *map(_partner, config.test_partners))
        self._read(config.id if factory is None else getattr(factory, "__name__", type(factory).__name__))

    @classmethod
    def from_factory(cls, factory: MakeEnv, *, partners: Sequence[Partner] = (), **options: Any) -> Self:
        """The family of the AECEnvs or ParallelEnvs that `factory()` makes, beside these partners."""
        return cls(from_keywords(PettingZooConfig, "PettingZoo", options), factory, partners)

    @classmethod
    def lacks(cls, config: EnvConfig) -> str | None:
        """The package of the environment."""
        assert isinstance(config, PettingZooConfig)
        return lacking_package(config.id)

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        check_split(split)
        columns: list[NDArray[np.float64]] = []
        if self.config.mode is Mode.ego:
            known, later = len(self.config.partners), len(self.config.test_partners)
            of_split = range(known, known + later) if split == "test" and later else range(known)
            columns.append(split_choices(rng, n, tuple(map(float, of_split)), split))
        if self.config.task_by_seed:
            # Even seeds are for training and odd ones for tests, so the splits never meet.
            columns.append((2 * rng.integers(SEEDS // 2, size=n) + (split == "test")).astype(np.float64))
        return np.stack(columns or [np.zeros(n)], axis=1)

    def make_shard(self, num_slots: int, threads: int = 1) -> GymnasiumShard:
        if self.config.mode is Mode.ego:
            task = TaskSetter("options", partial(np.asarray, dtype=np.int64))
        else:
            task = TaskSetter("seed" if self.config.task_by_seed else "none")
        return GymnasiumShard(
            self._slot_env,
            num_slots,
            self._reader,
            self._writer,
            task=task,
            info_names=self.spec.info_names,
        )

    # -- what the game is ------------------------------------------------------------------------------------

    def _check_options(self) -> None:
        config, default = self.config, PettingZooConfig()
        for name, mode in (
            *((name, Mode.ego) for name in ("seat", "partners", "test_partners")),
            ("reward", Mode.joint),
        ):
            if config.mode is not mode and getattr(config, name) != getattr(default, name):
                raise OptionError(f"{name}= is for mode={mode.name}, and mode={config.mode.name} is chosen.")
        both = set(config.partners) & set(config.test_partners)
        if both:
            raise OptionError(f"{min(both)} is among partners= and test_partners=: it is for one of them.")
        if not config.partners:
            raise OptionError("partners= is empty: name at least one, such as random.")

    def _inner_env(self) -> EgoWrapper | FlattenMultiAgentWrapper:
        """A new environment, played by one policy."""
        if self.config.mode is Mode.ego:
            return EgoWrapper(self._make(), self.config.seat, self._partners)
        return FlattenMultiAgentWrapper(self._make(), self.config.reward.value)

    def _slot_env(self) -> SlotEnv:
        return SlotEnv(self._inner_env(), self._masked)

    def _read(self, name: str) -> None:
        """Build the game once, and begin an episode, to see what it is."""
        try:
            env = self._inner_env()
        except ValueError as error:
            raise OptionError(f"{name}: {error}") from error
        except Exception as error:
            raise OptionError(f"{name} cannot be played: {error_text(error)}") from error
        try:
            first = env.reset(seed=0)
            # In mode=joint, the choices of those who are out are masked; beside partners, the game has masks.
            if self.config.mode is Mode.joint:
                self._masked = isinstance(env.action_space, spaces.MultiDiscrete)
            else:
                self._masked = own_mask(*first) is not None
            slot = SlotEnv(env, self._masked)
            self._writer = ActionWriter(slot.action_space)
            self._reader = ObsReader(slot.observation_space, slot.action_space)
            infos = [f"reward_{agent}" for agent in getattr(env, "possible_agents", ())]
        except SpaceError as error:
            raise OptionError(f"{name} {error}.") from None
        except Exception as error:
            raise OptionError(f"{name} cannot be played: {error_text(error)}") from error
        finally:
            close_env(env)
        self._describe(self._reader.space, self._writer.space, tuple(infos))

    def _describe(self, obs: ObsSpace, actions: ActionSpace, info_names: tuple[str, ...]) -> None:
        config, is_ego = self.config, self.config.mode is Mode.ego
        disjoint = config.task_by_seed or bool(config.test_partners)
        self.spec = EnvSpec(
            name="PettingZoo",
            obs_space=obs,
            action_space=actions,
            task_dim=max(1, is_ego + config.task_by_seed),
            info_names=info_names,
            split=Split.disjoint if disjoint else Split.shared,
        )


def _partner(name: str) -> Partner:
    """The partner of this name: random, or what module:function names."""
    if name == RANDOM:
        return random_partner
    module, colon, function = name.rpartition(":")
    if not colon or not module or not function.isidentifier():
        raise OptionError(f"partners: {name!r} should be random, or module:function.{near(name, [RANDOM])}")
    partner = getattr(imported(module, f"partners: {name}"), function, None)
    if not callable(partner):
        raise OptionError(f"partners: {module} has no {function!r} to call.")
    return partner
