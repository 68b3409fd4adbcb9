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
from envs.backends.base import Backend, BackendConfig, Block, Commands, Factory, Fault
from envs.base import EnvSpec, Layout, Rows, TaskFamily
from envs.trial import TrialClock

_FLAGS = ("episode_start", "trial_start", "trial_end", "terminated", "truncated")


class WorkerError(RuntimeError):
    """An environment failed: names slot, task, seed and step, and carries the original traceback as text. The manager is closed."""


@dataclass(frozen=True)
class Start:
    """The next trial of a slot."""

    task: NDArray[np.float64]
    seed: int


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
            self._manager._post_starts({self._slot: self._manager._start(**(payload or {}))})
        elif name == "step":
            self._manager._post_one_step(self._slot, payload)
        else:
            raise ValueError(f"A slot knows 'reset' and 'step', not {name!r}.")

    def recv(self) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Wait for the answer to the last `send`."""
        manager, slot = self._manager, self._slot
        manager._collect(np.array([slot]))
        rows = manager.rows
        obs = {key: part[slot].copy() for key, part in rows.obs.items()} if isinstance(rows.obs, dict) else rows.obs[slot].copy()
        return obs, float(rows.reward[slot]), bool(rows.terminated[slot]), bool(rows.truncated[slot]), manager.info_of(slot)


class ParallelEnvManager:
    """N slots of one family, or of several factories, each reset with its own task; a context manager.

    `families` is one family, or one factory per slot (a slot's `rows.label` says which of the distinct factories made it). A trial is
    `episodes_per_trial` episodes of its task. `num_workers` of 1 steps in this process; more start worker processes with a shard of the
    slots each, uneven by one at most. What is collected depends on none of the backend's settings.

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
        seed: int | None = None,
        oracle: bool = False,
        new_episode_flag: bool | None = None,
        backend: BackendConfig | None = None,
    ) -> None:
        blocks, self._families = _blocks(families, num_envs)
        self.num_envs = blocks[-1].stop
        if not 1 <= num_workers <= self.num_envs:
            raise ValueError(f"num_workers={num_workers} must be between 1 and the number of slots, {self.num_envs}.")
        with_flag = episodes_per_trial > 1 if new_episode_flag is None else new_episode_flag
        self._layout = Layout(self._families[0].spec, with_task=oracle, with_flag=with_flag)
        self._config = backend or BackendConfig()
        self._rng = np.random.default_rng(seed)
        name = self._config.name if self._config.name != "auto" else "process" if num_workers > 1 else "serial"
        self._backend: Backend = BACKENDS[name](blocks, self._layout, num_workers=num_workers, config=self._config)
        self._finalizer = weakref.finalize(self, self._backend.close)
        self.rows: Rows = self._backend.rows
        for block, label in zip(blocks, _labels(blocks), strict=True):
            self.rows.label[block.start : block.stop] = label
        horizon = max_episode_steps or self._families[0].config.max_episode_steps
        self._clock = TrialClock(self.rows, episodes_per_trial=episodes_per_trial, max_episode_steps=horizon)
        self._commands = Commands.empty(self.rows)
        self._pending = np.zeros(self.num_envs, np.bool_)

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
    def single_action_space(self) -> spaces.Box | spaces.Discrete:
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
    def pids(self) -> list[int]:
        """The worker processes."""
        return self._backend.pids()

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
        self._post_starts(starts)
        self._collect(np.sort(order))
        return self.rows

    def step(self, actions: NDArray[Any], starts: Mapping[int, Start] | None = None) -> Rows:
        """One row further in every slot whose trial goes on, and a new trial in the slots of `starts`, all in the same message.

        The action at the last row of an episode is ignored: the next row starts the next episode. A slot whose trial has ended waits
        (`rows.valid` is False there) until it is started again.
        """
        if np.shape(actions) != self.action_space.shape:
            raise ValueError(f"step needs actions of shape {self.action_space.shape}, one per slot; it got {np.shape(actions)}.")
        if self._pending.any():
            raise RuntimeError(f"Slots {np.flatnonzero(self._pending).tolist()} still owe an answer: recv() it before step().")
        running = self._clock.running
        resets = running & self.rows.ended
        self._commands.reset[:] = resets
        self._commands.action[:] = actions
        if resets.any():
            again = np.flatnonzero(resets)
            self._commands.seed[again] = self._clock.next_episode_seeds(again)
        if starts:
            fresh = np.array(sorted(starts))
            self._arm(fresh, starts)
            running[fresh] = True
        self.rows.valid[:] = running
        slots = np.flatnonzero(running)
        self._post(slots)
        self._collect(slots)
        return self.rows

    def abandon(self) -> None:
        """Forget all running trials: every slot waits for a start."""
        self.rows.valid[:] = False

    def render(self, slot: int) -> NDArray[np.uint8]:
        """An RGB picture of one slot."""
        return self._backend.render(slot, self._config.call_timeout_s)

    def info_of(self, slot: int) -> dict[str, Any]:
        """What is known of one slot's row, as a dict."""
        rows = self.rows
        flags = {name: bool(getattr(rows, name)[slot]) for name in _FLAGS}
        own = {name: float(value) for name, value in zip(self.spec.info_names, rows.info[slot], strict=True)}
        return {"task": rows.task[slot].copy(), "episode": int(self._clock.episode[slot]), **flags, **own}

    # -- the two halves of a step --------------------------------------------------------------------------------------------------------

    def _start(self, task: ArrayLike | None = None, seed: int | None = None) -> Start:
        vector = self.sample_tasks(1)[0] if task is None else np.asarray(task, np.float64)
        return _checked(Start(vector, int(self._rng.integers(2**63)) if seed is None else int(seed)), self.spec)

    def _arm(self, slots: NDArray[np.int64], starts: Mapping[int, Start]) -> None:
        """Write the starts of these slots into the commands."""
        order = [starts[int(slot)] for slot in slots]
        self._commands.reset[slots] = True
        self._commands.task[slots] = np.stack([start.task for start in order])
        self._clock.begin(slots, np.array([start.seed for start in order], np.uint64))
        self._commands.seed[slots] = self._clock.next_episode_seeds(slots)
        self.rows.task[slots] = self._commands.task[slots]

    def _post_starts(self, starts: Mapping[int, Start]) -> None:
        slots = np.fromiter(sorted(starts), np.int64, len(starts))
        self._refuse_pending(slots)
        self._arm(slots, starts)
        self._post(slots)

    def _post_one_step(self, slot: int, action: Any) -> None:
        slots = np.array([slot])
        self._refuse_pending(slots)
        if not self._clock.running[slot]:
            raise RuntimeError(f"Slot {slot} has no running trial: send it a reset first.")
        self._commands.reset[slot] = self.rows.ended[slot]
        self._commands.action[slot] = action
        self._commands.seed[slots] = self._clock.next_episode_seeds(slots)
        self._post(slots)

    def _refuse_pending(self, slots: NDArray[np.int64]) -> None:
        if self._pending[slots].any():
            raise RuntimeError(f"Slots {slots[self._pending[slots]].tolist()} still owe an answer: recv() it before the next send().")

    def _post(self, slots: NDArray[np.int64]) -> None:
        if not self._finalizer.alive:
            raise RuntimeError("The manager is closed.")
        self._pending[slots] = True
        self._backend.post(slots, self._commands)

    def _collect(self, slots: NDArray[np.int64]) -> None:
        """Wait for the rows of these slots, and let the clock mark them."""
        if not self._pending[slots].all():
            raise RuntimeError(f"Slots {slots[~self._pending[slots]].tolist()} were sent nothing to answer.")
        _, faults = self._backend.wait(slots, self._config.call_timeout_s)
        if faults:
            self._fail(faults)
        self._pending[slots] = False
        started = self._commands.reset[slots]
        self._clock.arrived(slots, started)
        rows = self.rows
        rows.prev_action[slots] = self._commands.action[slots]
        rows.prev_action[slots[started]] = 0
        self._layout.write_extra(rows)

    def _fail(self, faults: Sequence[Fault]) -> None:
        """Close everything and raise one error that names where it happened."""
        lines = [line for fault in faults for line in _report(fault, self._commands, self._clock)]
        self._pending[:] = False  # nobody owes an answer any more
        self.close()
        raise WorkerError("\n".join(lines))

    # -- the end -------------------------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop everything; may be called twice, and is called on exit and when the manager is forgotten."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _report(fault: Fault, commands: Commands, clock: TrialClock) -> list[str]:
    """A fault in words: which slots were doing what, what went wrong, and the original traceback."""
    where = []
    for slot in fault.slots[:3]:
        step = f"step {clock.time[slot]} of episode {clock.episode[slot]}"
        doing = f"reset of episode {clock.episode[slot] + 1}" if commands.reset[slot] else step
        where.append(f"slot {slot} (task {commands.task[slot].tolist()}, trial seed {clock.trial_seed[slot]}, {doing})")
    more = f" and {len(fault.slots) - 3} more slots" if len(fault.slots) > 3 else ""
    return [f"The environment of {', '.join(where)}{more} {fault.sentence}", *filter(None, [fault.traceback.rstrip()])]


def _checked(start: Start, spec: EnvSpec) -> Start:
    """The same start, if a trial can begin like that."""
    if start.task.shape != (spec.task_dim,):
        raise ValueError(f"A task of {spec.name} is a vector of {spec.task_dim} numbers; got shape {start.task.shape}.")
    if not np.isfinite(start.task).all() or not 0 <= start.seed < 2**64:
        raise ValueError(f"A trial needs a finite task and a seed from 0 to 2**64 - 1; got {start.task.tolist()} and {start.seed}.")
    return start


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
