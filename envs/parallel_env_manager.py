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
from envs.backends.base import Backend, BackendConfig, Block, Factory, OnFault
from envs.base import ActionSpace, EnvSpec, Layout, Rows, TaskFamily
from envs.recovery import EnvCrashLoopError, FaultCounts, WorkerError
from envs.stepping import SlotGroup, Start, Stepper
from envs.trial import TrialClock

__all__ = ["EnvCrashLoopError", "ParallelEnvManager", "Remote", "SlotGroup", "Start", "WorkerError"]

_FLAGS = ("episode_start", "trial_start", "trial_end", "terminated", "truncated")


class Remote:
    """One slot, for scripts that want to talk to it alone.

    `send(("reset", {"task": task, "seed": seed}))` (both optional) starts a trial, `send(("step", action))` steps it; both return at once.
    Each is answered by one `recv()`: `(obs, reward, terminated, truncated, info)`, arrays of this slot alone. After the last row of an
    episode the next `step` ignores its action and is answered by the start row of the next episode (`info["episode_start"]`); after
    `info["trial_end"]` the slot waits for a reset.
    """

    def __init__(self, manager: ParallelEnvManager, slot: int) -> None:
        self._manager = manager
        self._slot = slot

    def send(self, command: tuple[str, Any]) -> None:
        """Post one command to the slot."""
        name, payload = command
        if name == "reset":
            unknown = set(payload or {}) - {"task", "seed"}
            if unknown:
                raise ValueError(f"A reset takes 'task' and 'seed', not {sorted(unknown)}.")
            self._manager._stepper.post_starts({self._slot: self._manager._start(**(payload or {}))})
        elif name == "step":
            self._manager._stepper.post_step(self._slot, _checked_actions(payload, self._manager.single_action_space, one=True))
        else:
            raise ValueError(f"A slot knows 'reset' and 'step', not {name!r}.")

    def recv(self) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Wait for the answer to the last `send`."""
        manager, slot = self._manager, self._slot
        manager._stepper.collect([slot])
        rows = manager.rows
        obs = {key: part[slot].copy() for key, part in rows.obs.items()} if isinstance(rows.obs, dict) else rows.obs[slot].copy()
        return obs, float(rows.reward[slot]), bool(rows.terminated[slot]), bool(rows.truncated[slot]), manager.info_of(slot)


class ParallelEnvManager:
    """N slots of one family, or of several factories, each reset with its own task; a context manager, for one thread at a time.

    `families` is one family, or one factory per slot (a slot's `rows.label` says which of the distinct factories made it). A trial is
    `episodes_per_trial` episodes of its task. `num_workers` of 1 steps in this process; more start worker processes with a shard of the
    slots each, uneven by one at most. What is collected depends on none of the backend's settings. `num_groups` of 2 lets one half of the
    slots step while the other's actions are computed (see `groups`); like N it is part of the experiment. `deterministic` refuses the
    settings that would let timing or faults change the data.

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
        self._layout = Layout(self._families[0].spec, with_task=oracle, with_flag=with_flag)
        self._config = backend or BackendConfig()
        self._rng = np.random.default_rng(seed)
        name = self._config.name if self._config.name != "auto" else "process" if num_workers > 1 else "serial"
        check_settings(self._config, name, self.num_envs, num_workers=num_workers, num_groups=num_groups, deterministic=deterministic)
        self._backend: Backend = BACKENDS[name](blocks, self._layout, num_workers=num_workers, num_groups=num_groups, config=self._config)
        self.rows: Rows = self._backend.rows
        for block, label in zip(blocks, _labels(blocks), strict=True):
            self.rows.label[block.start : block.stop] = label
        horizon = max_episode_steps or self._families[0].config.max_episode_steps
        self._clock = TrialClock(self.rows, episodes_per_trial=episodes_per_trial, max_episode_steps=horizon)
        self._stepper = Stepper(self._backend, self._layout, self._clock, self._config, num_groups=num_groups, strict=deterministic)
        self._finalizer = weakref.finalize(self, self._stepper.close)

    # -- what it is ----------------------------------------------------------------------------------------------------------------------

    @property
    def spec(self) -> EnvSpec:
        """What the family reports of itself."""
        return self._layout.spec

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
        return self._layout.obs_space

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
        """The slots in the groups that are posted and awaited one at a time: what a loop that wants to overlap acting and stepping works with."""
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
        """Every slot, to be spoken to alone (made anew at each look: kept here they would keep a forgotten manager alive)."""
        return [Remote(self, slot) for slot in range(self.num_envs)]

    # -- stepping ------------------------------------------------------------------------------------------------------------------------

    def sample_tasks(self, n: int, *, split: str = "train", rng: np.random.Generator | None = None) -> NDArray[np.float64]:
        """[n, task_dim] tasks of the (first) family."""
        return self.family.sample_tasks(rng or self._rng, n, split)

    def reset(self, tasks: ArrayLike | None = None, seeds: Sequence[int] | None = None, slots: Sequence[int] | None = None) -> Rows:
        """Start a trial in these slots (default: all), each of its own task and seed (default: drawn by the manager)."""
        order = _chosen_slots(
            slots, self.num_envs, tasks=None if tasks is None else len(np.asarray(tasks)), seeds=None if seeds is None else len(seeds)
        )
        drawn = self.sample_tasks(len(order)) if tasks is None else np.asarray(tasks, np.float64)
        starts = {int(slot): self._start(drawn[i], None if seeds is None else seeds[i]) for i, slot in enumerate(order)}
        self._stepper.post_starts(starts)
        self._stepper.collect(np.sort(order))
        return self.rows

    def step(self, actions: NDArray[Any], starts: Mapping[int, Start] | None = None) -> Rows:
        """One row further in every slot whose trial goes on, and a new trial in the slots of `starts`, all in the same message.

        The action at the last row of an episode is ignored: the next row starts the next episode. A slot whose trial has ended, or was given
        up after a fault (`dropped`), waits (`rows.valid` is False there) until it is started again.
        """
        if np.shape(actions) != self.action_space.shape:
            raise ValueError(f"step needs actions of shape {self.action_space.shape}, one per slot; it got {np.shape(actions)}.")
        actions = _checked_actions(actions, self.single_action_space)
        fresh = {int(slot): _checked(start, self.spec) for slot, start in (starts or {}).items()}
        _chosen_slots(list(fresh), self.num_envs)
        if not fresh and not self._clock.has_begun:
            raise RuntimeError("No trial has begun: reset() comes before step().")
        self._stepper.check_settled()
        for group in self.groups:
            inside = {slot - group.start: start for slot, start in fresh.items() if 0 <= slot - group.start < group.size}
            group.post(actions[group.start : group.start + group.size], inside)
        for group in self.groups:
            group.wait()
        return self.rows

    def abandon(self) -> None:
        """Forget all running trials: every slot waits for a start."""
        self._stepper.drain()

    def render(self, slot: int) -> NDArray[np.uint8]:
        """An RGB picture of one slot."""
        if not 0 <= slot < self.num_envs:
            raise ValueError(f"There is no slot {slot}; there are 0 to {self.num_envs - 1}.")
        return self._stepper.render(slot)

    def info_of(self, slot: int) -> dict[str, Any]:
        """What is known of one slot's row, as a dict."""
        rows = self.rows
        flags = {name: bool(getattr(rows, name)[slot]) for name in _FLAGS}
        own = {name: float(value) for name, value in zip(self.spec.info_names, rows.info[slot], strict=True)}
        return {"task": rows.task[slot].copy(), "episode": int(self._clock.episode[slot]), **flags, **own}

    def _start(self, task: ArrayLike | None = None, seed: int | None = None) -> Start:
        vector = self.sample_tasks(1)[0] if task is None else np.asarray(task, np.float64)
        return _checked(Start(vector, int(self._rng.integers(2**63)) if seed is None else int(seed)), self.spec)

    # -- the end -------------------------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop everything; may be called twice, and is called on exit and when the manager is forgotten."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_settings(config: BackendConfig, name: str, num_envs: int, *, num_workers: int, num_groups: int, deterministic: bool) -> None:
    """Refuse what cannot be, before anything is started."""
    if not 1 <= num_workers <= num_envs:
        raise ValueError(f"num_workers={num_workers} must be between 1 and the number of slots, {num_envs}.")
    if not 1 <= num_groups <= num_envs // num_workers:
        raise ValueError(
            f"num_groups={num_groups} needs a slot of every group in each of {num_workers} workers: {num_groups * num_workers} slots, not {num_envs}."
        )
    if config.max_worker_memory is not None and name in BACKENDS and not BACKENDS[name].has_processes:
        raise ValueError(f"max_worker_memory={config.max_worker_memory} is for worker processes, and backend={name} has none: leave it out.")
    if config.min_ready is not None:
        if deterministic:
            raise ValueError("min_ready takes slots as they come, so the data depends on timing: deterministic=true refuses it.")
        if name in BACKENDS and not BACKENDS[name].can_lag:
            able = [other for other, kind in BACKENDS.items() if kind.can_lag]
            raise ValueError(f"min_ready has no meaning on backend={name}; it works on {', '.join(able)}.")
        if num_groups > 1:
            raise ValueError(f"min_ready={config.min_ready} and num_groups={num_groups} exclude each other: both decide who waits for whom.")
        if config.min_ready > num_envs:
            raise ValueError(f"min_ready={config.min_ready} can never be reached with {num_envs} slots.")
    if deterministic and config.on_fault is OnFault.drop:
        raise ValueError("on_fault=drop gives trials up, so the data depends on faults: deterministic=true refuses it.")


def _checked(start: Start, spec: EnvSpec) -> Start:
    """The same start, if a trial can begin like that."""
    if start.task.shape != (spec.task_dim,):
        raise ValueError(f"A task of {spec.name} is a vector of {spec.task_dim} numbers; got shape {start.task.shape}.")
    if not np.isfinite(start.task).all() or not 0 <= start.seed < 2**64:
        raise ValueError(f"A trial needs a finite task and a seed from 0 to 2**64 - 1; got {start.task.tolist()} and {start.seed}.")
    return start


def _checked_actions(actions: Any, space: ActionSpace, *, one: bool = False) -> NDArray[Any]:
    """The same actions (of all slots, or of one), if the space has them."""
    given = np.asarray(actions)
    if one and given.shape != space.shape:
        raise ValueError(f"An action has shape {space.shape}; got {given.shape}.")
    if isinstance(space, spaces.Box):
        fine = (given >= space.low) & (given <= space.high)
    elif np.issubdtype(given.dtype, np.integer):
        low = space.start if isinstance(space, spaces.Discrete) else 0
        fine = (given >= low) & (given < low + (space.n if isinstance(space, spaces.Discrete) else space.nvec))
    else:
        raise ValueError(f"Actions of {space} are whole numbers, not {given.dtype}.")
    if not fine.all():
        place = np.argwhere(~fine)[0]
        where = "" if one else f" of slot {place[0]}"
        raise ValueError(f"The action{where} is not in {space}: {(given if one else given[place[0]]).tolist()}.")
    return given


def _chosen_slots(slots: Sequence[int] | None, num_envs: int, **lengths: int | None) -> NDArray[np.int64]:
    """The slots of a reset, in the order given; whatever else was given must be as many."""
    chosen = np.arange(num_envs) if slots is None else np.asarray(slots, np.int64)
    if len(set(chosen.tolist())) < len(chosen) or any(not 0 <= slot < num_envs for slot in chosen):
        raise ValueError(f"slots={chosen.tolist()} must be different numbers from 0 to {num_envs - 1}.")
    for name, length in lengths.items():
        if length is not None and length != len(chosen):
            raise ValueError(f"reset got {length} {name} for {len(chosen)} slots.")
    return chosen


def _blocks(families: TaskFamily | Sequence[Factory], num_envs: int | None) -> tuple[list[Block], list[TaskFamily]]:
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
                ours, theirs = (f"{family.spec.name} has {getattr(family.spec, name)}" for family in (made[0], one))
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
