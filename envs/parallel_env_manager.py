"""ParallelEnvManager: N slots, each with its own task, stepped together by a backend."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from envs.backends import BACKENDS
from envs.backends.base import Backend, BackendConfig, Block, Factory, OnFault
from envs.base import ActionSpace, EnvSpec, ObsSpace, Rows, TaskFamily, map_obs
from envs.layout import Layout
from envs.manager.blocks import blocks_of, labels_of
from envs.manager.checks import (
    TrialDroppedError,
    backend_name,
    check_settings,
    checked_action,
    checked_actions,
    checked_command,
    checked_seeds,
    checked_slot,
    checked_starts,
    checked_tasks,
    chosen_slots,
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
    """One slot, for scripts that command it alone.

    `send(("reset", {"task": task, "seed": seed}))` (both optional) starts a trial, `send(("step", action))`
    steps it; both return at once. Each is answered by one `recv()`: `(obs, reward, terminated, truncated,
    info)`, arrays of this slot alone. After the last row of an episode the next `step` ignores its action and
    is answered by the start row of the next episode (`info["episode_start"]`); after `info["trial_end"]` the
    slot waits for a reset.
    """

    def __init__(self, manager: ParallelEnvManager, slot: int) -> None:
        self._manager, self._slot = manager, slot

    def send(self, command: tuple[str, Any]) -> None:
        """Post one command to the slot."""
        manager = self._manager
        name, payload = checked_command(command)
        # A remote shares the Stepper with `step`, so both may be used in turn.
        if name == "reset":
            task, seed = payload.get("task"), payload.get("seed")
            tasks = None if task is None else [task]
            seeds = None if seed is None else [seed]
            manager._stepper.post_starts(manager._starts([self._slot], tasks, seeds))
        else:
            action = checked_action(payload, manager.single_action_space)
            manager._stepper.post_step(self._slot, action)

    def recv(self) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Wait for the answer to the last `send`.

        A `TrialDroppedError` means that the trial was given up after a fault.
        """
        manager, slot = self._manager, self._slot
        # The fault of another slot may have ended this trial already, and then no answer is owed.
        manager.check_not_dropped(slot)
        manager._stepper.collect([slot])
        manager.check_not_dropped(slot)
        rows = manager.rows
        return (
            map_obs(lambda array: array[slot].copy(), rows.obs),
            float(rows.reward[slot]),
            bool(rows.terminated[slot]),
            bool(rows.truncated[slot]),
            manager.info_of(slot),
        )


class ParallelEnvManager:
    """N slots of one family, or of several factories, each reset with its own task.

    It is a context manager, for one thread at a time. `families` is one family, or one factory per slot (its
    number is the slot's `rows.label`). A trial is `episodes_per_trial` episodes of its task. `num_workers`
    workers have a shard of the slots each, uneven by one at most; unless `backend` says otherwise they are
    processes, and a single one is this process. The data depends on none of the backend's settings.
    `num_groups` of 2 lets half of the slots step while actions of the other half are computed; like N it is
    part of the experiment. `deterministic` refuses what would let timing or faults change the data.

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
        # What there is: slots in blocks of one factory each.
        blocks, self._families = _prepared(*blocks_of(families, num_envs))
        self.num_envs = blocks[-1].stop
        with_flag = episodes_per_trial > 1 if new_episode_flag is None else new_episode_flag
        # What stands where in an observation.
        self.layout = Layout(self._families[0].spec, with_task=oracle, with_flag=with_flag)
        # What steps the slots. Everything is checked before the first worker is started.
        self._config = _fitting(backend or BackendConfig(), self._families, deterministic)
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
        for block, label in zip(blocks, labels_of(blocks), strict=True):
            self.rows.label[block.start : block.stop] = label
        # What makes trials of episodes, and rows of commands; an H that is given is that of all tasks.
        horizon = max_episode_steps or self._families[0].config.max_episode_steps
        self._clock = TrialClock(self.rows, episodes_per_trial=episodes_per_trial, max_episode_steps=horizon)
        self._stepper = Stepper(
            self._backend, self.layout, self._clock, self._config, num_groups=num_groups, strict=deterministic
        )
        self._stepper.horizons = None if max_episode_steps else self._families[0].horizons
        # Workers are stopped when the manager is forgotten; the Stepper must not hold it for that to happen.
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
    def single_observation_space(self) -> ObsSpace:
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
        """The groups of slots: a loop that overlaps acting and stepping posts and awaits one at a time."""
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
        """Every slot, to be commanded alone."""
        # They are made anew each time: a Remote holds its manager, so one stored here would keep it alive.
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
        """Start a trial in these slots (default: all), each of its own task and seed (default: drawn)."""
        order = chosen_slots(slots, self.num_envs)
        self._stepper.post_starts(self._starts(order.tolist(), tasks, seeds))
        self._stepper.collect(np.sort(order))
        return self.rows

    def step(self, actions: NDArray[Any], starts: Mapping[int, Start] | None = None) -> Rows:
        """One row further in every slot whose trial goes on, and a new trial in the slots of `starts`.

        The action at the last row of an episode is ignored: the next row starts the next episode. A slot
        whose trial has ended, or was given up after a fault (`dropped`), waits (`rows.valid` is False there)
        until it is started again.
        """
        actions = checked_actions(actions, self.single_action_space, self.num_envs)
        fresh = checked_starts(starts, self.spec, self.num_envs) if starts else {}
        if not fresh and not self._clock.has_begun:
            raise RuntimeError("No trial has begun: reset() comes before step().")
        self._stepper.check_nothing_pending()
        # All groups are posted before the first is awaited: they step at the same time.
        for group in self.groups:
            starts_here = {slot: fresh[slot] for slot in fresh if slot in group.slots}
            self._stepper.post_round(group.part, actions[group.part], starts_here)
        for group in self.groups:
            group.wait()
        return self.rows

    def abandon(self) -> None:
        """Forget all running trials: every slot waits for a start."""
        self._stepper.abandon()

    def render(self, slot: int) -> NDArray[np.uint8]:
        """An RGB picture of one slot."""
        return self._stepper.render(checked_slot(slot, self.num_envs))

    def infos(self) -> dict[str, NDArray[Any]]:
        """What is known of all slots' rows, by name: [N] or [N, ...] live arrays."""
        rows = self.rows
        known: dict[str, NDArray[Any]] = {"task": rows.task, "episode_index": self._clock.episode}
        known |= {name: getattr(rows, name) for name in _FLAGS}
        known["dropped"] = self.dropped
        return known | dict(zip(self.spec.info_names, rows.info.T, strict=True))

    def info_of(self, slot: int) -> dict[str, Any]:
        """What is known of one slot's row, as a dict; if `valid` is False it is an old row."""
        slot = checked_slot(slot, self.num_envs)
        return {
            name: values[slot].item() if values.ndim == 1 else values[slot].copy()
            for name, values in self.infos().items()
        }

    def check_not_dropped(self, slot: int) -> None:
        """A `TrialDroppedError` if the trial of this slot was given up after a fault and none has begun."""
        if self.dropped[slot]:
            raise TrialDroppedError(slot)

    def _starts(
        self, slots: list[int], tasks: ArrayLike | None, seeds: Sequence[int] | None
    ) -> dict[int, Start]:
        """Starts of these tasks and seeds (None: drawn), by slot."""
        # All that was given is checked before anything is drawn, so that a refused call changes nothing.
        count = len(slots)
        vectors, numbers = checked_tasks(tasks, self.spec, count), checked_seeds(seeds, count)
        # What was left out is drawn, in the order of `slots`: all tasks in one draw, then the seeds.
        vectors = vectors or checked_tasks(self.sample_tasks(count), self.spec, count)
        numbers = numbers or [int(self._rng.integers(2**63)) for _ in slots]
        return {slot: Start(task, seed) for slot, task, seed in zip(slots, vectors, numbers, strict=True)}

    # -- the end ---------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop everything; may be called twice, and is called on exit and when the manager is forgotten."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _prepared(blocks: list[Block], families: list[TaskFamily]) -> tuple[list[Block], list[TaskFamily]]:
    """The same, after each family has checked what it needs for all of the slots."""
    for family in families:
        family.prepare(blocks[-1].stop)
    return blocks, families


def _fitting(config: BackendConfig, families: Sequence[TaskFamily], deterministic: bool) -> BackendConfig:
    """The settings, with `on_fault=drop` where a re-run of a trial would come out differently.

    A run that promises the same data in spite of faults is left to stop at the first one.
    """
    repeats = all(family.spec.deterministic for family in families)
    if repeats or deterministic or config.on_fault is not OnFault.restart:
        return config
    return replace(config, on_fault=OnFault.drop)
