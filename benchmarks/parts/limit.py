"""The limit: how fast the bare environment is with every core busy; imports no torch, since every busy core
is a process.

What other programs take of the cores meanwhile is not counted, and told: a run in which they took much is not
worth reading.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
from time import perf_counter, thread_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.parts.cases import CASES
from benchmarks.parts.families import CHEETAH, Dot
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


def env_seconds(case: str, states: NDArray[np.float64] | None, seconds: float) -> tuple[float, float]:
    """CPU seconds of one bare env-step, with every core busy: of `mj_step` on these states, or of the toy.
    And the least share of a core it had.
    """
    context = multiprocessing.get_context("spawn")
    cores: list[int | None] = (
        sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [None] * available_cores()
    )  # pyright: ignore[reportAssignmentType]
    ready, answers = context.Barrier(len(cores)), context.Queue()
    workers = [
        context.Process(target=_busy_core, args=(core, case, states, seconds, ready, answers))
        for core in cores
    ]
    for worker in workers:
        worker.start()
    found = [answers.get(timeout=60 + seconds) for _ in workers]
    for worker in workers:
        worker.join()
    return statistics.mean(step for step, _ in found), min(share for _, share in found)


def _busy_core(
    core: int | None, case: str, states: NDArray[np.float64] | None, seconds: float, ready: Any, answers: Any
) -> None:
    if core is not None:
        os.sched_setaffinity(0, {core})
    answers.put(_pushing(case, seconds, ready) if states is None else _physics(case, states, seconds, ready))


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


def _physics(case: str, states: NDArray[np.float64], seconds: float, ready: Any) -> tuple[float, float]:
    """CPU seconds that `mj_step` takes on these states, and the share of the core."""
    mujoco = mujoco_module()
    body = BODIES[case]
    model = load_model(body.file)
    data = mujoco.MjData(model)
    hidden = (
        model.nq + model.nv + model.nu - states.shape[1]
    )  # the coordinates that no observation has, since they move nothing
    first = model.nq - hidden
    ready.wait()
    spent, steps, stint = 0.0, 0, Stint()
    while stint.seconds < seconds:
        row = states[steps % len(states)]
        mujoco.mj_resetData(model, data)
        data.qpos[hidden:], data.qvel[:], data.ctrl[:] = (
            row[:first],
            row[first : first + model.nv],
            row[first + model.nv :],
        )
        mujoco.mj_step(
            model, data, body.frame_skip
        )  # settles the warm start, as a step before this one would have
        before = perf_counter()
        mujoco.mj_step(model, data, body.frame_skip)
        spent += perf_counter() - before
        steps += 1
    share = stint.share
    return share * spent / steps, share
