"""The contract of an environment: EnvSpec, Rows, TaskFamily, Shard.

Words: step < episode < trial < task. A *row* is an observation and everything that happened since the
previous one. A *slot* is one copy of an environment. A *shard* is the slots that are stepped together.

    row            0      1     ...   H       H+1            ...   2H+1
    what it is     start  step        end     start of ep 2        end of trial
    episode_start  1      0           0       1                    0
    trial_start    1      0           0       0                    0      <- only here the memory forgets
    ended          0      0           1       0                    1
    trial_end      0      0           0       0                    1
    action counts  yes    yes         no      yes                  no

The last observation of an episode is an ordinary row: it carries the last reward, and the action chosen there
is ignored.

Slots are numbered three times, always from 0, and each number is shifted in one place only:

    slot of the manager   0..N-1        what `ParallelEnvManager`, `TrialClock`, backends and faults mean
    slot of a group       0..size-1     what `SlotGroup` means; `SlotGroup.post` adds its `start`
    slot of a shard       0..n-1        what `Shard` and `SlotError` mean; `ShardHost` subtracts its start
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from utils.options import option

Obs = NDArray[Any] | dict[str, NDArray[Any]]
ObsSpace = spaces.Box | spaces.Dict
ActionSpace = spaces.Box | spaces.Discrete | spaces.MultiDiscrete
# Some slots: consecutive ones, or sorted indices.
Slots = slice | NDArray[np.int64]

T = TypeVar("T")
U = TypeVar("U")


def map_obs(change: Callable[[T], U], obs: T | dict[str, T]) -> U | dict[str, U]:
    """Change every array of an observation, which is one array or a flat dict of arrays."""
    if isinstance(obs, dict):
        return {key: change(part) for key, part in obs.items()}
    return change(obs)


def arrays_of(obs: T | dict[str, T]) -> list[T]:
    """The arrays of an observation: the one that it is, or those of its dict in their order."""
    return list(obs.values()) if isinstance(obs, dict) else [obs]


def paired_arrays(first: T | dict[str, T], second: U | dict[str, U]) -> list[tuple[T, U]]:
    """The arrays of two observations of one space: each of the first with that of the same name."""
    if isinstance(first, dict) and isinstance(second, dict):
        return [(part, second[key]) for key, part in first.items()]
    assert not isinstance(first, dict) and not isinstance(second, dict), "two spaces"
    return [(first, second)]


class Split(Enum):
    """Whether a test task can be a training task: only `disjoint` may be reported as held-out."""

    disjoint = "disjoint"
    shared = "shared"


@dataclass
class EnvConfig:
    """Options that every family has; a family adds its own in a subclass (`family` is the registry name)."""

    family: str = option("???", "the family's name in the registry")
    max_rollouts_per_task: int = option(2, "k: episodes of one task in a trial", low=1)
    max_episode_steps: int = option(200, "H: environment steps in an episode", low=1)
    num_train_tasks: int | None = option(
        None, "size of the fixed list of training tasks; null draws a new task for every trial", low=1
    )
    num_eval_tasks: int = option(20, "tasks in each evaluation list", low=1)
    oracle: bool = option(False, "show the task to the agent, as part of its observation")

    def resolved(self) -> Self:
        """This config, where each 0 that stands for a value of the task is replaced by that value."""
        return self

    def for_pictures(self) -> Self:
        """This config for environments that have to draw; a family may need an option for that."""
        return self

    def waits(self) -> dict[str, float]:
        """Options by which one call may take so many seconds: the backend's deadline has to be longer."""
        return {}


class Shelf(Enum):
    """The shelves on which families are listed."""

    locomotion = "Locomotion on MuJoCo"
    toy = "Toy control"
    grid = "Grid and memory"
    cyber = "Cyber defence"
    agents = "Several agents"
    mixtures = "Mixtures"
    third_party = "Third-party environments"


@dataclass(frozen=True)
class Reference:
    """Known returns of one episode, to draw beside a learner's, and the options that they hold under.

    `benchmarks.scores` measures them: over `tasks` tasks of the test split, drawn and played from `seed`, one
    first episode each.
    """

    # Of `oracle_action`; None where no scripted policy exists.
    oracle: float | None
    # Of uniform actions.
    random: float
    # The options that it was measured under, where they differ from the defaults of the family's Config.
    options: dict[str, Any] = field(default_factory=dict)
    tasks: int = 20_000
    seed: int = 0


@dataclass(frozen=True)
class EnvSpec:
    """What a family reports of itself, known before any environment is built."""

    name: str
    obs_space: ObsSpace
    action_space: ActionSpace
    task_dim: int
    info_names: tuple[str, ...] = ()
    deterministic: bool = True
    split: Split = Split.shared
    reference: Reference | None = None
    # The name of the info that is above 0 in a row if the episode has succeeded by then.
    success: str | None = None
    # The names of the parts that its tasks fall into, each of which is evaluated by itself. Where there are
    # any, the first number of a task says of which part it is, counted from 0.
    parts: tuple[str, ...] = ()

    def parts_of(self, tasks: NDArray[np.float64]) -> NDArray[np.int64]:
        """[n] the part of each task [n, task_dim]."""
        parts = tasks[:, 0].astype(np.int64)
        for task in tasks[(parts != tasks[:, 0]) | (parts < 0) | (parts >= len(self.parts))]:
            raise ValueError(
                f"{self.name}: a task begins with the number of its part, one of 0 to {len(self.parts) - 1}, "
                f"and not with {task[0]:g}."
            )
        return parts


@dataclass
class Rows:
    """One row of every slot: arrays with a leading [N]; live buffers, overwritten by the next step.

    A shard writes obs, reward, terminated, truncated and info; the trial's clock and the manager write the
    rest.
    """

    obs: Obs
    # What a shard writes: `reward` is the consequence of the action before this row.
    reward: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    # One number for each of info_names: [N, len(info_names)].
    info: NDArray[np.float64]
    # What the clock marks: the table above.
    episode_start: NDArray[np.bool_]
    trial_start: NDArray[np.bool_]
    trial_end: NDArray[np.bool_]
    # False in a slot that has no trial now.
    valid: NDArray[np.bool_]
    # What the manager adds. Whether the agent sees the task is another question (`Layout.with_task`).
    # The task of each slot: [N, task_dim].
    task: NDArray[np.float64]
    # The action that led to this row; 0 on the start row of an episode.
    prev_action: NDArray[Any]
    # Which of the manager's factories made the slot.
    label: NDArray[np.int64]

    @property
    def ended(self) -> NDArray[np.bool_]:
        """[N] the last row of an episode."""
        return self.terminated | self.truncated

    @property
    def of_shard(self) -> list[NDArray[Any]]:
        """The arrays that a shard writes, all others being the clock's or the manager's."""
        return [*arrays_of(self.obs), self.reward, self.terminated, self.truncated, self.info]

    def part(self, start: int, stop: int) -> Rows:
        """Views of slots start..stop."""
        return self._map(lambda array: array[start:stop])

    def copy(self) -> Rows:
        """Rows that later steps do not overwrite."""
        return self._map(lambda array: array.copy())

    def _map(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Rows:
        changed: dict[str, Any] = {
            item.name: map_obs(change, getattr(self, item.name)) for item in fields(self)
        }
        return Rows(**changed)


def uniform_actions(rng: np.random.Generator, space: ActionSpace, n: int) -> NDArray[Any]:
    """[n, ...] uniform draws from an action space."""
    # Not `space.sample()`: that draws one at a time, and from a stream of the space's own.
    if isinstance(space, spaces.Discrete):
        return space.start + rng.integers(space.n, size=n)
    if isinstance(space, spaces.MultiDiscrete):
        return rng.integers(space.nvec, size=(n, *space.shape))
    return rng.uniform(space.low, space.high, (n, *space.shape)).astype(np.float32)


class SlotError(RuntimeError):
    """One slot of a shard failed; a shard raises it from the original error where it knows the slot.

    `slot` is the slot of the shard; `ShardHost` turns it into that of the manager.
    """

    def __init__(self, slot: int, message: str) -> None:
        super().__init__(message)
        self.slot = slot


class Shard(ABC):
    """Slots of one family, stepped together. A shard knows neither trials nor processes nor the horizon H.

    `slots` are sorted slots of this shard. Slot i of many must equal a shard of one slot, bit for bit: write
    kernels elementwise with explicit small sums, since matmul and reductions over strided arrays give other
    last bits at other sizes.
    """

    rows: Rows
    # What the manager calls slot 0 of this shard, for what is shared out by slots, such as servers.
    first_slot: int = 0

    def bind(self, rows: Rows) -> None:
        """Write into these arrays from now on (called once, before the first reset)."""
        self.rows = rows

    @abstractmethod
    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        """Start an episode of `tasks[i]` with `seeds[i]` in `slots[i]`: write obs and info.

        The backend has zeroed reward, terminated and truncated before.
        """

    @abstractmethod
    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        """Step those slots only: write obs, reward, terminated, truncated and info in place.

        An action beyond its bounds acts as the bound; one that is not a number is a `SlotError`
        (`envs/meta/kernels.py` does both).
        """

    def render(self, slot: int) -> NDArray[np.uint8]:
        """An RGB picture [height, width, 3] of one slot."""
        raise NotImplementedError(f"{type(self).__name__} draws no picture")

    def close(self) -> None:
        """Free what the shard holds; called once."""
        return


# Options of every family that say which tasks are played how often; they change no episode's return.
OPTIONS_OF_REGIME = ("family", "max_rollouts_per_task", "num_train_tasks", "num_eval_tasks", "oracle")


class TaskFamily(ABC):
    """A distribution over tasks, and the environments that play them.

    A family is cheap to build and to pickle; all that is heavy is in its shards.
    """

    Config: ClassVar[type[EnvConfig]] = EnvConfig
    shelf: ClassVar[Shelf] = Shelf.toy
    # Grows when the same task, seed and actions give other rows; the v of `Retrial/<Name>-v<version>`.
    version: ClassVar[int] = 1
    # The package that requirements-<package>.txt installs; only this family's shards import it.
    package: ClassVar[str | None] = None
    # Whether the options alone say what an agent sees and does: it can be loaded where nothing can be played.
    is_declared: ClassVar[bool] = False
    # Whether its shards are `AsyncShard`s, whose slots wait for something outside at the same time.
    waits_in_coroutines: ClassVar[bool] = False
    # Known scores, each with the options that it was measured under.
    references: ClassVar[tuple[Reference, ...]] = ()
    # Options that change neither the oracle's return nor that of uniform actions.
    options_without_effect: ClassVar[tuple[str, ...]] = ()
    spec: EnvSpec

    def __init__(self, config: EnvConfig) -> None:
        # From here on only this config is read, so that each option has one value.
        self.config = config.resolved()

    @classmethod
    def lacks(cls, config: EnvConfig) -> str | None:
        """What has to be on this machine for this config and is not, as a sentence; None: nothing."""
        return None

    def measured_reference(self) -> Reference | None:
        """The reference that was measured under the options of this family, if there is one.

        Every option counts unless it is declared to be without effect. So an option that is added later and
        forgotten leads to no reference, and never to a wrong one.
        """
        # Both sides are resolved, so that an option left at 0 equals the value that the 0 stands for.
        for reference in self.references:
            measured = self.Config(**reference.options).resolved()
            if self.options_of_return(measured) == self.options_of_return(self.config):
                return reference
        return None

    @classmethod
    def options_of_return(cls, config: EnvConfig) -> dict[str, Any]:
        """The options of a config that can change the return of an episode, and their values."""
        without_effect = {*OPTIONS_OF_REGIME, *cls.options_without_effect}
        return {
            item.name: getattr(config, item.name)
            for item in fields(config)
            if item.name not in without_effect
        }

    @abstractmethod
    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        """[n, task_dim] tasks of the split ("train" or "test"; anything else is a ValueError).

        They are plain vectors, which are cheap to send, to save and to plot.
        """

    def horizons(self, tasks: NDArray[np.float64]) -> NDArray[np.int64]:
        """[n] H of an episode of each of these tasks, none of which is above `max_episode_steps`."""
        return np.full(len(tasks), self.config.max_episode_steps)

    def difficulty(self, tasks: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """[n] how hard each task is beside the others, for curricula; None where nobody knows."""
        return None

    @abstractmethod
    def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
        """A shard of `num_slots` slots; `threads` for families that can use them."""

    @property
    def has_oracle(self) -> bool:
        """Whether `oracle_action` is there."""
        return type(self).oracle_action is not TaskFamily.oracle_action

    def prepare(self, num_slots: int) -> None:
        """Check what lies outside of this process before environments are built for so many slots.

        It is called once or more before a run, and may complete `spec`. A refusal is an `OptionError`.
        """
        return

    def servers(self) -> frozenset[str]:
        """What takes a seat for each slot, by names that two families share where they share the seats."""
        return frozenset()

    def measured(self) -> dict[str, float]:
        """What the family has measured of its environments in this process so far, as metrics by name."""
        return {}

    def oracle_action(self, obs: Obs, task: NDArray[np.float64], info: NDArray[np.float64]) -> NDArray[Any]:
        """[N, ...] actions of a policy that knows the task, as a function of these rows.

        It is analytic or scripted; a family without such a policy leaves this method as it is.
        """
        raise NotImplementedError(f"{type(self).__name__} has no oracle policy")
