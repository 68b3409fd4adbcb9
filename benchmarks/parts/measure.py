"""All rows of one table, side by side: opened together, taking turns, medians."""

from __future__ import annotations

import os
import statistics
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter, process_time
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.parts.cases import ACTING, Table
from benchmarks.parts.limit import env_seconds
from benchmarks.parts.peers import Peer, PeerBench, peers_of
from benchmarks.parts.policy import inference_seconds, make_agent
from benchmarks.parts.retrial_rows import WARM_UP_S, Bench, Setting, breakdown, make_replay, settings_of
from buffers.replay import Replay
from buffers.stored_rows import RowFlags
from envs.backends.base import BackendConfig
from envs.parallel_env_manager import ParallelEnvManager
from policies.agents.agent import Agent
from policies.collection.actors import AgentActor
from policies.collection.wave import WavePlan, run_wave
from utils.machine import available_cores
from utils.seeding import Phase

PROFILE_S = 1.5
STATES = 2000
# About what it costs to start a process and its environment.
PROCESS_S = 0.05


class Running(Protocol):
    """A row that is open."""

    note: str

    def run(self, seconds: float) -> float:
        """Run for so many seconds; env-steps per second."""
        ...

    def worker_mib(self) -> float:
        """MiB that its worker processes have of their own, where they can be asked; 0: there are none."""
        ...

    def close(self) -> None:
        """Stop its workers."""
        ...


@dataclass
class Row:
    """One way to step, and how it is opened."""

    name: str
    open: Callable[[], Running]
    # How Retrial steps, where it is Retrial.
    setting: Setting | None = None
    processes: int = 0


def table_rows(table: Table, agent: Agent | None, replay: Replay | None, only: Sequence[str]) -> list[Row]:
    """The rows of a table whose names have one of `only` in them, or all.

    The peers come first, since they fork: later there are threads.
    """

    def peer(make: Callable[[], Peer], count: int) -> Running:
        return PeerBench(make(), table, count, agent)

    rows = [
        Row(name, partial(peer, make, count), None, table.slots if "processes" in name else 0)
        for name, make, count in peers_of(table)
    ]
    for setting in settings_of(table):
        processes = setting.workers if setting.backend in ("process", "pipe") else 0
        rows.append(Row(setting.name, partial(Bench, table, setting, agent, replay), setting, processes))
    return [row for row in rows if not only or any(part.lower() in row.name.lower() for part in only)]


def expected_seconds(table: Table, seconds: float, repeats: int, only: Sequence[str]) -> float:
    """About how long a table takes."""
    rows = table_rows(table, None, None, only)
    ours = sum(row.setting is not None for row in rows)
    started = PROCESS_S * sum(row.processes * (2 if row.setting is not None else 1) for row in rows)
    return (
        len(rows) * repeats * (seconds + WARM_UP_S)
        + ours * (min(PROFILE_S, seconds) + WARM_UP_S + 0.3)
        + started
        + repeats * (0.75 * seconds + 3)
    )


def measure_table(
    table: Table, seconds: float, repeats: int, only: Sequence[str], say: Callable[[str], None]
) -> dict[str, Any]:
    """Measure one table, as plain data; a row that fails is reported and stops no other row."""
    family = table.case.family()
    agent = make_agent(family) if table.mode == ACTING else None
    replay = make_replay(family, table.slots) if agent is not None else None
    states = visited_states(table, agent or make_agent(family)) if table.case.mujoco else None
    rows = table_rows(table, agent, replay, only)
    failed: dict[str, str] = {}
    running: dict[str, Running] = {}
    try:
        for row in rows:
            _guarded(row, failed, lambda row=row: running.update({row.name: row.open()}))
        found = _take_turns(table, agent, states, rows, running, failed, seconds, repeats, say)
        memory = {name: mib for name, one in running.items() if (mib := one.worker_mib())}
    finally:
        for one in running.values():
            one.close()
    found["worker_mib"] = memory
    found["notes"] = {name: one.note for name, one in running.items() if one.note}
    found["breakdown"] = shares = dict[str, dict[str, float]]()
    for row in rows:
        setting = row.setting
        if setting is not None and row.name in found["env_steps_per_s"] and setting.backend != "auto":
            call = partial(breakdown, table, setting, agent, replay, min(PROFILE_S, seconds))
            _guarded(row, failed, lambda name=row.name, call=call: shares.update({name: call()}))
    found["failed"] = failed
    found["settings"] = {row.name: vars(row.setting) for row in rows if row.setting is not None}
    return found


def _take_turns(
    table: Table,
    agent: Agent | None,
    states: NDArray[np.float64] | None,
    rows: list[Row],
    running: dict[str, Running],
    failed: dict[str, str],
    seconds: float,
    repeats: int,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """The rates and the limit."""
    rates: dict[str, list[float]] = {row.name: [] for row in rows}
    own: dict[str, list[float]] = {row.name: [] for row in rows}
    env, shares, inference = list[float](), list[float](), list[float]()
    for turn in range(repeats):
        start = perf_counter()
        for values, value in zip(
            (env, shares, inference), _indispensable(table, agent, states, seconds), strict=True
        ):
            values.append(value)
        for row in rows:
            if row.name not in failed:
                turn_of = partial(_turn, running[row.name], rates[row.name], own[row.name], seconds)
                _guarded(row, failed, turn_of)
        say(f"  {table.key}: turn {turn + 1} of {repeats} took {perf_counter() - start:.0f} s")
    step, act = statistics.median(env), statistics.median(inference)
    limit = available_cores() / (step + act)
    limit_is = "cores / (CPU s of the bare env-step + CPU s of inference per env-step)"
    if table.case.wait_s:
        limit, limit_is = table.slots / step, "slots / latency"
    return {
        "title": table.title,
        "load": os.getloadavg()[0],
        "slots": table.slots,
        "env_us": step * 1e6,
        "inference_us": act * 1e6,
        "share_of_cores": min(shares),
        "limit": limit,
        "limit_is": limit_is,
        "env_steps_per_s": {
            name: statistics.median(values) for name, values in rates.items() if values and name not in failed
        },
        "own_cpu_us": {name: 1e6 * statistics.median(values) for name, values in own.items() if values},
        "repeats": {name: values for name, values in rates.items() if values},
    }


def _indispensable(
    table: Table, agent: Agent | None, states: NDArray[np.float64] | None, seconds: float
) -> tuple[float, float, float]:
    """What an env-step cannot do without: seconds of the bare environment (and the share of a core that was
    ours meanwhile), and those of the policy where one acts.
    """
    bare, share, acting = table.case.wait_s, 1.0, 0.0
    if not table.case.wait_s:
        bare, share = env_seconds(table.case.name, table.slots, states, seconds / 2)
    if agent is not None:
        acting = inference_seconds(agent, table.case.family(), table.slots, seconds / 4)
    return bare, share, acting


def _turn(running: Running, rates: list[float], own: list[float], seconds: float) -> None:
    """Note the env-steps per second, and the CPU seconds of this process for each of them."""
    running.run(WARM_UP_S)
    clock, cpu = perf_counter(), process_time()
    rate = running.run(seconds)
    own.append((process_time() - cpu) / max(1.0, rate * (perf_counter() - clock)))
    rates.append(rate)


def _guarded(row: Row, failed: dict[str, str], call: Callable[[], object]) -> None:
    """Make the call, and write down what goes wrong as the failure of this row."""
    try:
        call()
    except ModuleNotFoundError as error:
        peer = row.setting is None
        failed[row.name] = f"not installed ({error.name}): pip install .[peers]" if peer else str(error)
    except Exception as error:  # noqa: BLE001 - a library that breaks is a line in the table
        traceback.print_exc()
        first_line = str(error).partition("\n")[0]
        failed[row.name] = f"failed: {type(error).__name__}: {first_line}"


def visited_states(table: Table, agent: Agent) -> NDArray[np.float64]:
    """[STATES, observation + action] what the policy saw and did, in a run of its own."""
    family, trials = table.case.family(), 24
    replay = make_replay(family, 1)
    width = (family.spec.obs_space.shape or (0,))[0]
    with ParallelEnvManager(
        family, 12, episodes_per_trial=2, max_episode_steps=200, backend=BackendConfig(name="serial")
    ) as manager:
        tasks = manager.sample_tasks(trials, rng=np.random.default_rng(0))
        run_wave(
            manager, AgentActor(agent, device="cpu"), WavePlan.of_tasks(0, Phase.TRAIN, 0, tasks), sink=replay
        )
    stored = replay.export(0, trials)
    alive = stored["flags"] & RowFlags.ENDED == 0
    together = np.concatenate([stored["obs"][alive][:, :width], stored["action"][alive]], axis=1)
    return together[np.random.default_rng(0).permutation(len(together))[:STATES]].astype(np.float64)
