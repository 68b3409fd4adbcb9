"""ParallelEnvManager: N slots, each with its own task, stepped together by a backend."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from envs.backends import BACKENDS
from envs.backends.base import Backend, BackendConfig, Block, Factory
from envs.base import ActionSpace, EnvSpec, Layout, Rows, TaskFamily
from envs.manager.checks import (
    TrialDroppedError,
    backend_name,
    check_settings,
    checked_actions,
    checked_command,
    checked_seed,
    checked_slot,
    checked_starts,
    checked_task,
    chosen_slots,
    listed,
)
from envs.manager.recovery import EnvCrashLoopError, FaultCounts, WorkerError
from envs.manager.stepping import SlotGroup, Start, Stepper
from envs.trial import TrialClock

__all__ = [
    "EnvCrashLoopError",
    "ParallelEnvManager",
    "Remote",
    "SlotGroup",
    "Start",
    "TrialDroppedError",
    "WorkerError",
    "check_settings",
]

_FLAGS = ("valid", "episode_start", "trial_start", "trial_end", "terminated", "truncated")


class Remote:
    """One slot, for scripts that want to talk to it alone.

    `send(("reset", {"task": task, "seed": seed}))` (both optional) starts a trial, `send(("step", action))`
    steps it; both return at once. Each is answered by one `recv()`: `(obs, reward, terminated, truncated,
    info)`, arrays of this slot alone. After the last row of an episode the next `step` ignores its action and
    is answered by the start row of the next episode (`info["episode_start"]`); after `info["trial_end"]` the
    slot waits for a reset.
    """

    def __init__(self, manager: ParallelEnvManager, slot: int) -> None:
        self._manager = manager
        self._slot = slot

    def send(self, command: tuple[str, Any]) -> None:
        """Post one command to the slot."""
        name, payload = checked_command(command)
        if name == "reset":
            self._manager._stepper.post_starts({self._slot: self._manager._start(**payload)})
        else:
            self._manager._stepper.post_step(
                self._slot, checked_actions(payload, self._manager.single_action_space)
            )

    def recv(self) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Wait for the answer to the last `send`; a `TrialDroppedError` where the trial was given up after a
        fault.
        """
        manager, slot = self._manager, self._slot
        manager.check_kept(slot)  # another's fault may have told already, and then nothing is owed
        manager._stepper.collect([slot])
        manager.check_kept(slot)
        rows = manager.rows
        obs = (
            {key: part[slot].copy() for key, part in rows.obs.items()}
            if isinstance(rows.obs, dict)
            else rows.obs[slot].copy()
        )
        return (
            obs,
            float(rows.reward[slot]),
            bool(rows.terminated[slot]),
            bool(rows.truncated[slot]),
            manager.info_of(slot),
        )


class ParallelEnvManager:
    """N slots of one family, or of several factories, each reset with its own task; a context manager, for
    one thread at a time.

    `families` is one family, or one factory per slot (a slot's `rows.label` says which of the distinct
    factories made it). A trial is `episodes_per_trial` episodes of its task. `num_workers` workers have a
    shard of the slots each, uneven by one at most; unless `backend` says otherwise they are processes, and a
    single one is this process. What is collected depends on none of the backend's settings. `num_groups` of 2
    lets one half of the slots step while the other's actions are computed (see `groups`); like N it is part
    of the experiment. `deterministic` refuses the settings that would let timing or faults change the data.

        with ParallelEnvManager(family, num_envs=12, num_workers=6, episodes_per_trial=2) as manager:
            rows = manager.reset()
            while manager.running.any():
                rows = manager.step(policy(rows))
    """

    def __init__(
        self,
        families: TaskFamily | Sequence[Factory],
        num_envs: int | None = None,
        *,
        episodes_per_trial: int = 1,
        max_episode_steps: int | None = None,
        num_workers: int = 1,
        num_groups: int = 1,
        seed: int | None = None,
        oracle: bool = False,
        new_episode_flag: bool | None = None,
        deterministic: bool = False,
        backend: BackendConfig | None = None,
    ) -> None:
        blocks, self._families = _blocks(families, num_envs)
        self.num_envs = blocks[-1].stop
        with_flag = episodes_per_trial > 1 if new_episode_flag is None else new_episode_flag
        self.layout = Layout(self._families[0].spec, with_task=oracle, with_flag=with_flag)
        """What stands where in an observation."""
        self._config = backend or BackendConfig()
        self._rng = np.random.default_rng(seed)
        name = backend_name(self._config.name, num_workers)
        check_settings(
            self._config,
            name,
            self.num_envs,
            num_workers=num_workers,
            num_groups=num_groups,
            deterministic=deterministic,
        )
        self._backend: Backend = BACKENDS[name](
            blocks, self.layout, num_workers=num_workers, num_groups=num_groups, config=self._config
        )
        self.rows: Rows = self._backend.rows
        for block, label in zip(blocks, _labels(blocks), strict=True):
            self.rows.label[block.start : block.stop] = label
        horizon = max_episode_steps or self._families[0].config.max_episode_steps
        self._clock = TrialClock(self.rows, episodes_per_trial=episodes_per_trial, max_episode_steps=horizon)
        self._stepper = Stepper(
            self._backend, self.layout, self._clock, self._config, num_groups=num_groups, strict=deterministic
        )
        self._finalizer = weakref.finalize(self, self._stepper.close)

    # -- what it is ------------------------------------------------------------------------------------------

    @property
    def spec(self) -> EnvSpec:
        """What the family reports of itself."""
        return self.layout.spec

    @property
    def family(self) -> TaskFamily:
        """The (first) family."""
        return self._families[0]

    @property
    def episodes_per_trial(self) -> int:
        """k."""
        return self._clock.episodes_per_trial

    @property
    def max_episode_steps(self) -> int:
        """H."""
        return self._clock.max_episode_steps

    @property
    def rows_per_trial(self) -> int:
        """The most rows a trial can have: k(H+1)."""
        return self.episodes_per_trial * (self.max_episode_steps + 1)

    @property
    def single_observation_space(self) -> spaces.Box | spaces.Dict:
        """One slot's observation: the family's, the task when `oracle`, the new-episode flag when k > 1."""
        return self.layout.obs_space

    @property
    def single_action_space(self) -> ActionSpace:
        """One slot's action."""
        return self.spec.action_space

    @cached_property
    def observation_space(self) -> spaces.Space[Any]:
        """All slots' observations."""
        return batch_space(self.single_observation_space, self.num_envs)

    @cached_property
    def action_space(self) -> spaces.Space[Any]:
        """All slots' actions."""
        return batch_space(self.single_action_space, self.num_envs)

    @property
    def description(self) -> str:
        """What steps the slots, and how."""
        return self._backend.description

    @property
    def running(self) -> NDArray[np.bool_]:
        """[N] slots whose trial goes on after this row."""
        return self._clock.running

    @property
    def episode(self) -> NDArray[np.int64]:
        """[N] the episode of its trial that a slot is in, from 0."""
        return self._clock.episode

    @property
    def groups(self) -> list[SlotGroup]:
        """The slots in the groups that are posted and awaited one at a time: what a loop that wants to
        overlap acting and stepping works with.
        """
        return self._stepper.groups

    @property
    def dropped(self) -> NDArray[np.bool_]:
        """[N] slots whose trial was given up after a fault, until they begin another."""
        return self._stepper.recovery.dropped

    @property
    def faults(self) -> FaultCounts:
        """What faults have cost so far."""
        return self._stepper.recovery.counts

    @property
    def may_lag(self) -> bool:
        """Whether a running slot's row may be missing from a step (`min_ready`)."""
        return self._config.min_ready is not None

    @property
    def pids(self) -> list[int]:
        """The worker processes."""
        return list(self._backend.processes())

    @property
    def remotes(self) -> list[Remote]:
        """Every slot, to be spoken to alone (made anew at each look: kept here they would keep a forgotten
        manager alive).
        """
        return [Remote(self, slot) for slot in range(self.num_envs)]

    # -- stepping --------------------------------------------------------------------------------------------

    def sample_tasks(
        self, n: int, *, split: str = "train", rng: np.random.Generator | None = None
    ) -> NDArray[np.float64]:
        """[n, task_dim] tasks of the (first) family."""
        return self.family.sample_tasks(rng or self._rng, n, split)

    def reset(
        self,
        tasks: ArrayLike | None = None,
        seeds: Sequence[int] | None = None,
        slots: Sequence[int] | None = None,
    ) -> Rows:
        """Start a trial in these slots (default: all), each of its own task and seed (default: drawn by the
        manager).
        """
        order = chosen_slots(slots, self.num_envs)
        count = len(order)
        if not count:
            raise ValueError(
                "reset got no slots: name at least one in slots=, or leave it out for all of them."
            )
        vectors = (
            None
            if tasks is None
            else [checked_task(task, self.spec) for task in listed(tasks, "tasks", count)]
        )
        numbers = None if seeds is None else [checked_seed(seed) for seed in listed(seeds, "seeds", count)]
        drawn = self.sample_tasks(count) if vectors is None else vectors
        starts = {
            slot: self._start(drawn[i], None if numbers is None else numbers[i])
            for i, slot in enumerate(order.tolist())
        }
        self._stepper.post_starts(starts)
        self._stepper.collect(np.sort(order))
        return self.rows

    def step(self, actions: NDArray[Any], starts: Mapping[int, Start] | None = None) -> Rows:
        """One row further in every slot whose trial goes on, and a new trial in the slots of `starts`, all in
        the same message.

        The action at the last row of an episode is ignored: the next row starts the next episode. A slot
        whose trial has ended, or was given up after a fault (`dropped`), waits (`rows.valid` is False there)
        until it is started again.
        """
        actions = checked_actions(actions, self.single_action_space, self.num_envs)
        fresh = checked_starts(starts, self.spec, self.num_envs) if starts else {}
        if not fresh and not self._clock.has_begun:
            raise RuntimeError("No trial has begun: reset() comes before step().")
        self._stepper.check_settled()
        for group in self.groups:
            inside = {
                slot - group.start: start
                for slot, start in fresh.items()
                if 0 <= slot - group.start < group.size
            }
            group.post(actions[group.start : group.start + group.size], inside)
        for group in self.groups:
            group.wait()
        return self.rows

    def abandon(self) -> None:
        """Forget all running trials: every slot waits for a start."""
        self._stepper.drain()

    def render(self, slot: int) -> NDArray[np.uint8]:
        """An RGB picture of one slot."""
        return self._stepper.render(checked_slot(slot, self.num_envs))

    def info_of(self, slot: int) -> dict[str, Any]:
        """What is known of one slot's row, as a dict; without `valid` it is an old one."""
        rows, slot = self.rows, checked_slot(slot, self.num_envs)
        flags = {name: bool(getattr(rows, name)[slot]) for name in _FLAGS}
        own = {name: float(value) for name, value in zip(self.spec.info_names, rows.info[slot], strict=True)}
        flags["dropped"] = bool(self.dropped[slot])
        return {
            "task": rows.task[slot].copy(),
            "episode_index": int(self._clock.episode[slot]),
            **flags,
            **own,
        }

    def check_kept(self, slot: int) -> None:
        """A `TrialDroppedError` if the trial of this slot was given up after a fault, and no other has begun."""
        if self.dropped[slot]:
            raise TrialDroppedError(slot)

    def _start(self, task: ArrayLike | None = None, seed: int | None = None) -> Start:
        given = None if task is None else checked_task(task, self.spec)
        number = None if seed is None else checked_seed(seed)
        vector = checked_task(self.sample_tasks(1)[0], self.spec) if given is None else given
        return Start(vector, int(self._rng.integers(2**63)) if number is None else number)

    # -- the end ---------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop everything; may be called twice, and is called on exit and when the manager is forgotten."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _blocks(
    families: TaskFamily | Sequence[Factory], num_envs: int | None
) -> tuple[list[Block], list[TaskFamily]]:
    """Consecutive slots of the same factory become one block; all factories must agree on their spaces."""
    if isinstance(families, TaskFamily):
        if num_envs is None or num_envs < 1:
            raise ValueError("num_envs must be given, and at least 1, with a single family.")
        return [Block(_Constant(families), 0, num_envs)], [families]
    factories = list(families)
    if not factories or num_envs not in (None, len(factories)):
        raise ValueError(f"num_envs={num_envs} does not fit {len(factories)} factories, one per slot.")
    blocks: list[Block] = []
    for slot, factory in enumerate(factories):
        if blocks and blocks[-1].factory is factory:
            blocks[-1] = Block(factory, blocks[-1].start, slot + 1)
        else:
            blocks.append(Block(factory, slot, slot + 1))
    made = [block.factory() for block in blocks]
    for one in made[1:]:
        for name in ("obs_space", "action_space", "task_dim", "info_names"):
            if getattr(one.spec, name) != getattr(made[0].spec, name):
                ours, theirs = (
                    f"{family.spec.name} has {getattr(family.spec, name)}" for family in (made[0], one)
                )
                raise ValueError(f"The factories disagree on {name}: {ours}, {theirs}.")
    return blocks, made


def _labels(blocks: Sequence[Block]) -> list[int]:
    distinct: list[Callable[[], TaskFamily]] = []
    for block in blocks:
        if not any(block.factory is factory for factory in distinct):
            distinct.append(block.factory)
    return [next(i for i, factory in enumerate(distinct) if factory is block.factory) for block in blocks]


@dataclass(frozen=True)
class _Constant:
    """The factory of a family that is there already."""

    family: TaskFamily

    def __call__(self) -> TaskFamily:
        return self.family
