"""Layout: the shapes and types of a manager's rows, and which part of an observation belongs to whom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import EnvSpec, Obs, ObsSpace, Rows, Slots, map_obs


@dataclass(frozen=True)
class Layout:
    """The shapes and types of a manager's rows, and where a shard writes in them.

    The policy's observation is the family's, then the task (if `with_task`), then the new-episode flag (if
    `with_flag`). The manager writes the last two, so a family knows nothing of them and the agent has one
    observation.
    """

    spec: EnvSpec
    with_task: bool = False
    with_flag: bool = False

    TASK_KEY: ClassVar[str] = "task"
    FLAG_KEY: ClassVar[str] = "new_episode"

    def __post_init__(self) -> None:
        inner = self.spec.obs_space
        if isinstance(inner, spaces.Dict) or not self.extra:
            return  # a Dict takes further parts whatever its own look like
        if len(inner.shape) != 1:
            raise ValueError(
                f"{self.spec.name}: the task and the new-episode flag can stand beside a vector or in a Dict,"
                f" not in shape {inner.shape}."
            )
        if self.with_task and inner.dtype.kind != "f":
            raise ValueError(
                f"{self.spec.name}: a task cannot stand beside a vector of {inner.dtype}, "
                "which would cut its numbers: wrap it into floats."
            )

    @cached_property
    def extra(self) -> dict[str, int]:
        """The parts that the manager adds, with their sizes."""
        sizes: dict[str, int] = {}
        if self.with_task:
            sizes[self.TASK_KEY] = self.spec.task_dim
        if self.with_flag:
            sizes[self.FLAG_KEY] = 1
        return sizes

    @property
    def obs_space(self) -> ObsSpace:
        """The space of the policy's observation."""
        inner, bounds = self.spec.obs_space, {self.TASK_KEY: (-np.inf, np.inf), self.FLAG_KEY: (0.0, 1.0)}
        if isinstance(inner, spaces.Dict):
            added = {key: spaces.Box(*bounds[key], (size,), np.float32) for key, size in self.extra.items()}
            return spaces.Dict({**inner.spaces, **added})
        if not self.extra:
            return inner
        # A vector grows at its end, in the order of `extra`.
        low, high = [inner.low], [inner.high]
        for key, size in self.extra.items():
            low.append(np.full(size, bounds[key][0], inner.low.dtype))
            high.append(np.full(size, bounds[key][1], inner.high.dtype))
        return spaces.Box(np.concatenate(low), np.concatenate(high), dtype=inner.dtype.type)

    def allocate(
        self, num_slots: int, empty: Callable[[tuple[int, ...], Any], NDArray[Any]] = np.zeros
    ) -> Rows:
        """Rows of `num_slots` slots, all zero.

        `empty(shape, dtype)` makes each array that a shard writes: process backends place those in shared
        memory. What the clock and the manager write is memory that no worker can reach, so that whatever a
        worker does, a trial can be re-run from it.
        """

        def of_space(space: spaces.Space[Any]) -> NDArray[Any]:
            return empty((num_slots, *(space.shape or ())), space.dtype)

        # The order of these arrays is the order in which shared memory is laid out: the same in all workers.
        policy: Any = self.obs_space
        obs_spaces = policy.spaces if isinstance(policy, spaces.Dict) else policy
        obs: Obs = map_obs(of_space, obs_spaces)
        actions = self.spec.action_space
        return Rows(
            obs=obs,
            reward=empty((num_slots,), np.float64),
            terminated=empty((num_slots,), np.bool_),
            truncated=empty((num_slots,), np.bool_),
            info=empty((num_slots, len(self.spec.info_names)), np.float64),
            episode_start=np.zeros(num_slots, np.bool_),
            trial_start=np.zeros(num_slots, np.bool_),
            trial_end=np.zeros(num_slots, np.bool_),
            valid=np.zeros(num_slots, np.bool_),
            task=np.zeros((num_slots, self.spec.task_dim)),
            prev_action=np.zeros((num_slots, *(actions.shape or ())), actions.dtype),
            label=np.zeros(num_slots, np.int64),
        )

    def part(self, rows: Rows, start: int, stop: int) -> Rows:
        """Views of slots start..stop as one shard sees them, with the family's own observation only."""
        # A family sees neither task nor flag: they are left out of the dict, or cut off the vector's end.
        cut = rows.part(start, stop)
        if isinstance(cut.obs, dict):
            own: Any = self.spec.obs_space
            cut.obs = {key: cut.obs[key] for key in own.spaces}
        elif self.extra:
            cut.obs = cut.obs[:, : cut.obs.shape[1] - sum(self.extra.values())]
        return cut

    def write_extra(self, rows: Rows, slots: Slots) -> None:
        """Write the task and the new-episode flag into the observation of these slots."""
        if not self.extra:
            return
        # The flag tells the agent of a new episode, so it is up on the start rows of episodes 2..k only.
        flag = rows.episode_start[slots] & ~rows.trial_start[slots]
        values = {self.TASK_KEY: rows.task[slots], self.FLAG_KEY: flag[:, None]}
        if isinstance(rows.obs, dict):
            for key in self.extra:
                rows.obs[key][slots] = values[key]
            return
        # In a vector they are its last numbers, in the order of `extra`.
        start = rows.obs.shape[1] - sum(self.extra.values())
        for key, size in self.extra.items():
            rows.obs[slots, start : start + size] = values[key]
            start += size

    def raise_flag(self, obs: Obs) -> None:
        """Set the new-episode flag in one slot's observation, if it has one."""
        if not self.with_flag:
            return
        if isinstance(obs, dict):
            obs[self.FLAG_KEY][...] = 1.0
        else:
            obs[-1:] = 1.0  # the flag is the last number of a vector
