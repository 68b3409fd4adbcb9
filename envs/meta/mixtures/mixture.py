"""Mixture: a family of families, so that one agent meets the tasks of several environments."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from operator import itemgetter
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Obs, Shelf, Split, TaskFamily, map_obs
from envs.meta.kernels import check_split
from envs.meta.mixtures.mixture_shard import MixtureShard, PartShards
from envs.meta.mixtures.named_parts import checked_parts, family_of_part, lacking, named_parts, of_part
from envs.meta.mixtures.shared_spaces import SharedActions, SharedObs
from utils.options import option

# The info of the mixture that each part's own success stands in.
SUCCESS = "success"


@dataclass
class MixtureConfig(EnvConfig):
    """Options of Mixture; those of a part are the options of its family."""

    family: str = "Mixture"
    max_episode_steps: int = option(
        0, "H: the longest episode of any part, which cuts longer ones; 0: each part's own H", low=0
    )
    # A list, or options by the name of a part: OmegaConf knows no type for that.
    parts: Any = option(
        None,
        "env.parts.NAME.family=GridNavi adds a part, env.parts.NAME.weight=4 says how often (1), "
        "and any other name is an option of its family; [GridNavi,Wind]: one part of each; null: an example",
    )
    show_part: bool = option(
        True, "show which part is played, as a one-hot; false: the agent has to find out"
    )

    def resolved(self) -> Self:
        """The parts by their names, whatever they were given as."""
        return replace(self, parts=named_parts(self.parts))

    def waits(self) -> dict[str, float]:
        """Those of every part; slots wait at the same time, so they do not add up."""
        return {
            f"parts.{part.name}.{option_name}": seconds
            for part in checked_parts(named_parts(self.parts))
            for option_name, seconds in part.config.waits().items()
        }

    def for_pictures(self) -> Self:
        """Each part gets the options that it needs to draw."""
        drawing: dict[str, dict[str, Any]] = {}
        options = named_parts(self.parts)
        for part in checked_parts(options):
            config = part.config.for_pictures()
            changed = {
                item.name: value
                for item in fields(config)
                if (value := getattr(config, item.name)) != getattr(part.config, item.name)
            }
            drawing[part.name] = options[part.name] | changed
        return replace(self, parts=drawing)


class Mixture(TaskFamily):
    """This family draws its tasks from several families, its parts, by their weights.

    Task: the number of the part, from 0 in the order of `parts`, and the part's own task, padded with zeros.
    Of n tasks drawn together each part has its share, up to one. Observation: the part's, padded with zeros
    to one shape, and the part's one-hot unless show_part=false; vectors of all parts become one vector,
    anything else a Dict. Action: the part's; of continuous actions it reads the first numbers, and choices
    that it lacks are masked. Discrete and continuous parts cannot be mixed. Reward: the part's. H=0: each
    part's own; a number cuts the longer ones. k=2, for all parts. Terminated: as in the part. Info: that of
    all parts, 0 where a part lacks it; success where all parts know it.

    Without any part it is an example: `easy`, GridNavi, and `hard`, GridNavi with size=7.
    """

    Config = MixtureConfig
    shelf = Shelf.mixtures
    # As far as its parts are; those that are not are refused when they are built.
    is_declared = True
    config: MixtureConfig

    def __init__(self, config: MixtureConfig) -> None:
        super().__init__(config)
        parts = checked_parts(self.config.parts)
        self.families = [family_of_part(part) for part in parts]
        specs = [family.spec for family in self.families]
        self.names = tuple(part.name for part in parts)
        # A task is of the part in whose interval of [0, 1) a uniform draw falls.
        weights = np.array([part.weight for part in parts])
        self._upper = np.cumsum(weights / weights.sum())

        # Each part keeps its H, so the longest one is that of the mixture.
        lengths = np.array([family.config.max_episode_steps for family in self.families])
        self._lengths = np.minimum(lengths, config.max_episode_steps or lengths.max())
        self.config = replace(self.config, max_episode_steps=int(self._lengths.max()))

        self._actions = SharedActions(self.names, specs)
        self._obs = SharedObs(specs, self._actions, show_part=config.show_part)
        info_names, self._info_columns, all_succeed = _shared_info(specs)
        self.spec = EnvSpec(
            name="Mixture",
            obs_space=self._obs.space,
            action_space=self._actions.space,
            task_dim=1 + max(spec.task_dim for spec in specs),
            info_names=info_names,
            deterministic=all(spec.deterministic for spec in specs),
            split=Split.disjoint if all(spec.split is Split.disjoint for spec in specs) else Split.shared,
            success=SUCCESS if all_succeed else None,
            parts=self.names,
        )

    @classmethod
    def lacks(cls, config: EnvConfig) -> str | None:
        """What a part lacks."""
        assert isinstance(config, MixtureConfig)
        return lacking(checked_parts(named_parts(config.parts)))

    def prepare(self, num_slots: int) -> None:
        """Let each part check what it needs; a slot keeps its seat there while it plays another part."""
        for name, family in zip(self.names, self.families, strict=True):
            # Parts that are played on the same servers take seats beside each other.
            sharing = sum(not family.servers().isdisjoint(other.servers()) for other in self.families)
            with of_part(name):
                family.prepare(num_slots * max(sharing, 1))
        repeats = all(family.spec.deterministic for family in self.families)
        self.spec = replace(self.spec, deterministic=repeats)

    def servers(self) -> frozenset[str]:
        return frozenset().union(*(family.servers() for family in self.families))

    def measured(self) -> dict[str, float]:
        """What the parts have measured; parts on the same server tell the same of it."""
        return {name: value for family in self.families for name, value in family.measured().items()}

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        check_split(split)
        # One offset for n evenly spaced points: each part gets its share of them, up to one, and a single
        # point is uniform.
        points = (rng.random() + np.arange(n)) / max(n, 1)
        part = rng.permutation(np.searchsorted(self._upper[:-1], points, side="right"))
        tasks = np.zeros((n, self.spec.task_dim))
        tasks[:, 0] = part
        for number, family in enumerate(self.families):
            chosen = np.flatnonzero(part == number)
            own = family.sample_tasks(rng, len(chosen), split)
            tasks[chosen, 1 : 1 + family.spec.task_dim] = own
        return tasks

    def horizons(self, tasks: NDArray[np.float64]) -> NDArray[np.int64]:
        return self._lengths[self.spec.parts_of(tasks)]

    def make_shard(self, num_slots: int, threads: int = 1) -> PartShards:
        kind = MixtureShard
        if any(family.waits_in_coroutines for family in self.families):
            from envs.meta.mixtures.async_mixture_shard import AsyncMixtureShard  # asyncio is for services

            kind = AsyncMixtureShard
        return kind(self.families, num_slots, threads, self._obs, self._actions, self._info_columns)

    @property
    def has_oracle(self) -> bool:
        return all(family.has_oracle for family in self.families)

    def oracle_action(self, obs: Obs, task: NDArray[np.float64], info: NDArray[np.float64]) -> NDArray[Any]:
        space = self._actions.space
        actions = np.zeros((len(task), *(space.shape or ())), space.dtype)
        part = self.spec.parts_of(task)
        for number in np.unique(part).tolist():
            family, chosen = self.families[number], np.flatnonzero(part == number)
            own_obs = self._obs.read(map_obs(itemgetter(chosen), obs), number)
            own_task = task[chosen, 1 : 1 + family.spec.task_dim]
            own_info = info[chosen][:, self._info_columns[number]]
            actions[chosen] = self._actions.from_part(family.oracle_action(own_obs, own_task, own_info))
        return actions


def _shared_info(specs: list[EnvSpec]) -> tuple[tuple[str, ...], list[NDArray[np.int64]], bool]:
    """All infos by name, for each part the columns in which its own stand, and whether all know success."""
    # What one part calls `solved` and another `success` is one info, where all parts know it.
    all_succeed = all(
        spec.success and (spec.success == SUCCESS or SUCCESS not in spec.info_names) for spec in specs
    )
    own_names = [
        [SUCCESS if all_succeed and name == spec.success else name for name in spec.info_names]
        for spec in specs
    ]
    names = tuple(dict.fromkeys(name for own in own_names for name in own))
    columns = [np.array([names.index(name) for name in own], np.int64) for own in own_names]
    return names, columns, all_succeed
