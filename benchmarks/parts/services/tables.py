"""Tables of services: which sessions are measured side by side on one server, and what they are to reach."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from time import perf_counter, process_time
from typing import Any

from benchmarks.parts.cases import ENV_ONLY, HORIZON, Case, Table
from benchmarks.parts.measure import Row, Running
from benchmarks.parts.retrial_rows import WARM_UP_S, Bench, Setting
from benchmarks.parts.services.rows import CollectorRow, LoopRow, ThreadRow, bare, official, session
from benchmarks.parts.targets import Target
from envs.base import TaskFamily
from envs.meta.make_env import make_family
from envs.remote.serving import ServedApp

NAME = "openenv"
ECHO = "envs.remote.servers.echo:app"
# (milliseconds that a step waits, sessions, the least share of the ideal that is wanted, with min_ready)
SESSIONS = ((10, 1, 0.93, None), (10, 8, 0.88, None), (20, 64, 0.78, 0.88))
MIN_READY = 8
# (clients, times one that is wanted) of collect_with_stats, at so many milliseconds.
CLIENTS, CLIENTS_MS = ((2, 1.95), (4, 3.8), (8, 7.2), (16, 13.0)), 20
CPU_OF_BARE = 1.6
OURS, FIRST_READY = "Retrial asyncio", f"Retrial asyncio, min_ready={MIN_READY}"
BARE, SESSION = "bare websockets and JSON, one loop", "Retrial's session, one loop"


@dataclass(frozen=True)
class ServiceTable:
    """Rows that are measured side by side on one server."""

    key: str
    title: str
    rows: list[Row]
    # Steps per second that waiting alone would allow.
    ideal: float


def service_tables(url: str) -> Iterator[ServiceTable]:
    """All tables, over this server."""
    for ms, sessions, _, _ in SESSIONS:
        title = f"Echo that waits {ms} ms, {sessions} sessions on one server, nothing kept"
        yield ServiceTable(
            _key(ms, sessions), title, list(_stepping(url, ms / 1000, sessions)), 1000 * sessions / ms
        )
    title = f"collect_with_stats, Echo that waits {CLIENTS_MS} ms, episodes of 20 steps"
    yield ServiceTable(f"{NAME}/collect", title, list(_collecting(url)), 1000 * CLIENTS[-1][0] / CLIENTS_MS)


def _stepping(url: str, wait_s: float, sessions: int) -> Iterator[Row]:
    case = Case(NAME, "Echo", partial(_family, url, wait_s), _no_peer, {}, wait_s=wait_s)
    table = Table(case, ENV_ONLY, sessions)
    settings = [Setting(OURS, "asyncio")]
    if sessions > MIN_READY:
        settings.append(Setting(FIRST_READY, "asyncio", min_ready=MIN_READY))
    for setting in settings:
        yield Row(setting.name, partial(Bench, table, setting, None, None), setting)
    for name, opener in ((BARE, bare), (SESSION, session), ("OpenEnv's client, one loop", official)):
        yield Row(name, partial(LoopRow, opener, url, wait_s, sessions))
    yield Row("OpenEnv's client, a thread each", partial(ThreadRow, url, wait_s, sessions))


def _collecting(url: str) -> Iterator[Row]:
    wait_s = CLIENTS_MS / 1000
    for count in (1, *(count for count, _ in CLIENTS)):
        yield Row(_clients(count), partial(CollectorRow, url, wait_s, count, "thread", True))
    most = CLIENTS[-1][0]
    yield Row(f"{most} of our clients, async", partial(CollectorRow, url, wait_s, most, "async", True))
    for count in (1, most):
        yield Row(
            f"{count} of OpenEnv's clients, threads",
            partial(CollectorRow, url, wait_s, count, "thread", False),
        )
    yield Row(f"{most} of OpenEnv's clients, async", partial(CollectorRow, url, wait_s, most, "async", False))


def measure_services(seconds: float, repeats: int, only: list[str], say: Callable[[str], None]) -> Any:
    """Measure all tables over one server that is started for them, as plain data by their keys."""
    server = ServedApp(ECHO)
    server.start()
    try:
        server.wait()
        return {
            table.key: _measured(table, seconds, repeats, only, say) for table in service_tables(server.url)
        }
    finally:
        server.end()


def _measured(
    table: ServiceTable, seconds: float, repeats: int, only: list[str], say: Callable[[str], None]
) -> dict[str, Any]:
    """All rows of a table, open at the same time and taking turns."""
    rows = [row for row in table.rows if not only or any(part.lower() in row.name.lower() for part in only)]
    rates: dict[str, list[float]] = {row.name: [] for row in rows}
    cpu: dict[str, list[float]] = {row.name: [] for row in rows}
    running: dict[str, Running] = {}
    start = perf_counter()
    try:
        for row in rows:
            running[row.name] = row.open()
        for _ in range(repeats):
            for row in rows:
                rate, own = _turn(running[row.name], seconds)
                rates[row.name].append(rate)
                cpu[row.name].append(own)
    finally:
        for one in running.values():
            one.close()
    say(f"  {table.key}: took {perf_counter() - start:.0f} s, load {os.getloadavg()[0]:.1f}")
    return {
        "title": table.title,
        "load": os.getloadavg()[0],
        "limit": table.ideal,
        "limit_is": "sessions / latency",
        "env_steps_per_s": {name: statistics.median(values) for name, values in rates.items()},
        "own_cpu_us": {name: 1e6 * statistics.median(values) for name, values in cpu.items()},
        "repeats": rates,
    }


def _turn(row: Running, seconds: float) -> tuple[float, float]:
    """(steps per second, CPU seconds of this process for each step)."""
    row.run(WARM_UP_S)
    clock, cpu = perf_counter(), process_time()
    rate = row.run(seconds)
    return rate, (process_time() - cpu) / max(1.0, rate * (perf_counter() - clock))


def services_text(table: dict[str, Any]) -> str:
    """One table."""
    lines = [
        "",
        f"{table['title']}; load {table['load']:.1f}",
        f"{'':46}{'steps/s':>10}{'of ideal':>10}{'CPU us':>9}",
    ]
    for name, rate in table["env_steps_per_s"].items():
        lines.append(f"{name:46}{rate:10,.1f}{rate / table['limit']:10.2f}{table['own_cpu_us'][name]:9.0f}")
    return "\n".join([*lines, f"{'ideal (' + table['limit_is'] + ')':46}{table['limit']:10,.0f}"])


def service_targets(tables: dict[str, Any]) -> list[Target]:
    """What is wanted of the tables, and what was reached."""
    found: list[Target] = []
    for ms, sessions, wanted, wanted_first in SESSIONS:
        table = tables[_key(ms, sessions)]
        for name, least in ((OURS, wanted), (FIRST_READY, wanted_first)):
            rate = table["env_steps_per_s"].get(name)
            if least is not None:
                what = f"{ms} ms, {sessions} sessions, {name}, of the ideal"
                found.append(Target(what, least, rate and rate / table["limit"], note=_load(table)))
    collected = tables[f"{NAME}/collect"]
    rates = collected["env_steps_per_s"]
    one = rates.get(_clients(1))
    for count, wanted in CLIENTS:
        rate = rates.get(_clients(count))
        what = f"collect_with_stats, {count} threads, x one"
        found.append(Target(what, wanted, rate / one if rate and one else None, note=_load(collected)))
    ms, sessions = SESSIONS[-1][:2]
    table = tables[_key(ms, sessions)]
    own, least = (table["own_cpu_us"].get(name) for name in (SESSION, BARE))
    what = f"CPU of a step, {sessions} sessions, x bare websockets"
    ratio = own / least if own and least else None
    found.append(Target(what, CPU_OF_BARE, ratio, at_most=True, note=_load(table)))
    return found


def _key(ms: int, sessions: int) -> str:
    return f"{NAME}/{ms}ms/{sessions}"


def _clients(count: int) -> str:
    return f"{count} of our clients, threads"


def _load(table: dict[str, Any]) -> str:
    return f"load {table['load']:.1f}"


def _family(url: str, wait_s: float) -> TaskFamily:
    return make_family(
        "OpenEnv",
        urls=[url],
        observation=["step", "seed"],
        action_kind="text",
        actions=["message"],
        texts=["hello", "again"],
        arguments=[f"wait_s={wait_s}", "length=1000000000"],
        max_episode_steps=HORIZON,
    )


def _no_peer() -> Any:
    raise NotImplementedError("a service is stepped by clients alone")
