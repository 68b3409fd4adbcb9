"""The limit: how fast the bare environment is with every core busy.

This module imports no torch, since every busy core is a process that imports it. The time that other programs
take of the cores is not counted but reported: a run in which they took much is not worth reading.
"""

from __future__ import annotations

import statistics
from time import perf_counter, thread_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.parts.cases import CASES, HORIZON, Case
from benchmarks.parts.families import CHEETAH, Dot, ToyConfig
from benchmarks.parts.machine import on_every_core
from envs.layout import Layout
from envs.meta.locomotion.ant import ANT
from envs.meta.locomotion.mujoco_shard import load_model, mujoco_module
from utils.machine import available_cores

BODIES = {"ant": ANT, "cheetah": CHEETAH}
PUSHES = 1000


class Stint:
    """From its making on: which share of the time this thread was really running."""

    def __init__(self) -> None:
        self._wall, self._cpu = perf_counter(), thread_time()

    @property
    def seconds(self) -> float:
        """Seconds of the wall clock."""
        return perf_counter() - self._wall

    @property
    def share(self) -> float:
        """CPU over wall clock."""
        return min(1.0, (thread_time() - self._cpu) / (perf_counter() - self._wall))


def env_seconds(
    case: str, slots: int, states: NDArray[np.float64] | None, seconds: float
) -> tuple[float, float]:
    """CPU seconds of one bare env-step with every core busy, and the least share of a core that it had.

    The env-step is `mj_step` on these states; without states a call of the toy, or a shard's of all slots.
    """
    if not isinstance(CASES[case].family().config, ToyConfig) and states is None:
        found = on_every_core(_shard_steps, case, slots, seconds, timeout=60 + seconds)
    elif states is None:
        found = on_every_core(_pushing, case, seconds, timeout=60 + seconds)
    else:
        found = on_every_core(_physics, case, states, seconds, timeout=60 + seconds)
    return statistics.mean(step for step, _ in found), min(share for _, share in found)


def _pushing(case: str, seconds: float, ready: Any) -> tuple[float, float]:
    """CPU seconds of one call of the toy, and the share of the core."""
    config: Any = CASES[case].family().config
    dot, calls = Dot(config.cpu_s), 1 if config.cpu_s else PUSHES
    ready.wait()
    steps, stint = 0, Stint()
    while stint.seconds < seconds:
        for _ in range(calls):
            dot.push(0.5, -0.5)
        steps += calls
    share = stint.share
    return share * stint.seconds / steps, share


def _shard_steps(case: str, slots: int, seconds: float, ready: Any) -> tuple[float, float]:
    """CPU seconds of an env-step of a bare shard, and the share of the core."""
    bare = BareShard(CASES[case], slots)
    bare.reset()
    actions = np.zeros_like(bare.rows.prev_action)
    ready.wait()
    steps, stint = 0, Stint()
    while stint.seconds < seconds:
        bare.step(actions)
        steps += slots
    share = stint.share
    return share * stint.seconds / steps, share


class BareShard:
    """A case's own shard with nothing around it: no trials, no clock, no rows kept."""

    def __init__(self, case: Case, slots: int) -> None:
        family = case.family()
        self._shard = family.make_shard(slots, available_cores())
        self.rows = Layout(family.spec).allocate(slots)
        self._shard.bind(self.rows)
        self._slots, self._age, self._starts = np.arange(slots), np.zeros(slots, np.int64), 0
        self._tasks = family.sample_tasks(np.random.default_rng(0), slots, "train")

    def reset(self) -> None:
        """New episodes in all slots."""
        self._start(self._slots)

    def step(self, actions: NDArray[Any]) -> NDArray[np.bool_]:
        """One step of all slots; [slots] which of them have started another episode."""
        self._shard.step(self._slots, actions)
        self._age += 1
        done = self.rows.terminated | (self._age >= HORIZON)
        if done.any():
            self._start(np.flatnonzero(done))
        return done

    def _start(self, slots: NDArray[np.int64]) -> None:
        seeds = np.arange(self._starts, self._starts + len(slots), dtype=np.uint64)
        self._shard.reset(slots, self._tasks[slots], seeds)
        self._age[slots] = 0
        self._starts += len(slots)

    def close(self) -> None:
        """Free what the shard holds."""
        self._shard.close()


def _physics(case: str, states: NDArray[np.float64], seconds: float, ready: Any) -> tuple[float, float]:
    """CPU seconds that `mj_step` takes on these states, and the share of the core."""
    mujoco = mujoco_module()
    body = BODIES[case]
    model = load_model(body.file)
    data = mujoco.MjData(model)
    # The first coordinates (the place on the plane) are in no observation, since nothing depends on them.
    hidden = model.nq + model.nv + model.nu - states.shape[1]
    first = model.nq - hidden
    ready.wait()
    spent, steps, stint = 0.0, 0, Stint()
    while stint.seconds < seconds:
        row = states[steps % len(states)]
        mujoco.mj_resetData(model, data)
        data.qpos[hidden:] = row[:first]
        data.qvel[:] = row[first : first + model.nv]
        data.ctrl[:] = row[first + model.nv :]
        # A first step that is not timed leaves the warm start that the solver has in the midst of a run.
        mujoco.mj_step(model, data, body.frame_skip)
        before = perf_counter()
        mujoco.mj_step(model, data, body.frame_skip)
        spent += perf_counter() - before
        steps += 1
    share = stint.share
    return share * spent / steps, share
