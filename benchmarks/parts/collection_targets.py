"""What the backends are to reach when they collect, and what they reached in the tables of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.parts.targets import Target

Tables = dict[str, dict[str, Any]]
# (what was reached, by which row)
Found = tuple[float | None, str]


def collection_targets(tables: Tables) -> list[Target]:
    """Every target of the benchmark `collect`, measured or not."""
    return [
        Target(name, wanted, reached, note=row)
        for name, wanted, (reached, row) in (
            *_speed(tables),
            *_waiting(tables),
            *_defence(tables),
            *_auto(tables),
        )
    ]


def _speed(tables: Tables) -> Iterator[tuple[str, float, Found]]:
    for case, slots, wanted in (
        ("ant", 12, 0.90),
        ("ant", 64, 0.95),
        ("cheetah", 12, 0.60),
        ("cheetah", 64, 0.75),
    ):
        yield (
            f"{case}, N = {slots}, best backend, of the limit",
            wanted,
            _ratio(tables, f"{case}/acting/{slots}", "Retrial", "limit"),
        )
    for slots in (12, 64):
        yield (
            f"ant, N = {slots}, best backend, x EnvPool",
            1.15,
            _ratio(tables, f"ant/acting/{slots}", "Retrial", "EnvPool"),
        )
    six = "Retrial process, 6 workers"
    yield (
        "ant, N = 12, six process workers, of the limit",
        0.75,
        _ratio(tables, "ant/acting/12", six, "limit"),
    )
    yield (
        "ant, N = 12, six process workers, x AsyncVectorEnv with 12",
        1.8,
        _ratio(tables, "ant/acting/12", six, "Gymnasium AsyncVectorEnv"),
    )
    yield (
        "ant, N = 12, our slots by make_vec, x AsyncVectorEnv with 12",
        1.8,
        _ratio(tables, "ant/acting/12", "make_vec of Retrial", "Gymnasium AsyncVectorEnv"),
    )
    yield (
        "ant, N = 12, our slots as SB3's VecEnv, x SubprocVecEnv with 12",
        1.8,
        _ratio(tables, "ant/acting/12", "SB3 VecEnv of Retrial", "SB3 SubprocVecEnv"),
    )
    two = "Retrial process, 2 workers"
    yield (
        "toy, N = 200, two workers, x one process each by pipes",
        17.0,
        _ratio(tables, "toy/env-only/200", two, "Retrial pipe, one process each"),
    )
    yield "5 ms of CPU, two workers, x serial", 1.9, _ratio(tables, "cpu/acting/12", two, "Retrial serial")


def _waiting(tables: Tables) -> Iterator[tuple[str, float, Found]]:
    one, _ = _best(tables.get("wait/env-only/1"), lambda name: name == "Retrial serial")
    for slots, wanted in ((2, 1.95), (4, 3.9), (8, 7.5), (16, 14.0)):
        rate, name = _best(
            tables.get(f"wait/env-only/{slots}"), lambda name: name.startswith("Retrial thread")
        )
        yield (
            f"10 ms of waiting, {slots} threads, x one environment",
            wanted,
            (rate / one if rate and one else None, name),
        )
    yield (
        "10 ms of waiting, 64 on asyncio, of the ideal",
        0.9,
        _ratio(tables, "wait/env-only/64", "Retrial asyncio", "limit"),
    )


def _defence(tables: Tables) -> Iterator[tuple[str, float, Found]]:
    for slots, bare, managed in ((200, 0.6e6, 0.5e6), (1000, 1.4e6, 1.0e6)):
        table = tables.get(f"cyber/env-only/{slots}")
        rate = 1e6 / table["env_us"] if table else None
        yield f"cyber, N = {slots}, bare shard, env-steps per CPU second", bare, (rate, "")
        own = table["own_cpu_us"].get("Retrial serial") if table else None
        rate = 1e6 / own if own else None
        yield f"cyber, N = {slots}, through the manager, env-steps per CPU second", managed, (rate, "")
    two, each = "Retrial process, 2 workers", "Retrial pipe, one process each"
    yield (
        "cyber, N = 200, two workers, x one process each by pipes",
        17.0,
        _ratio(tables, "cyber/env-only/200", two, each),
    )
    yield (
        "2 ms of CPU, N = 20, two workers, x serial",
        1.9,
        _ratio(tables, "cyber-slow/env-only/20", two, "Retrial serial"),
    )


def _auto(tables: Tables) -> Iterator[tuple[str, float, Found]]:
    """auto may choose the backend and the workers, never the groups: it is held against the rows with one
    group, of the same environment.
    """
    for key, table in tables.items():
        settings = table["settings"]
        for auto in (
            name
            for name, setting in settings.items()
            if setting["backend"] == "auto" and name in table["env_steps_per_s"]
        ):
            alike = {
                name
                for name, own in settings.items()
                if own["groups"] == 1 and own["coroutines"] == settings[auto]["coroutines"] and name != auto
            }
            rate, name = _best(table, alike.__contains__)
            reached = table["env_steps_per_s"][auto] / rate if rate else None
            yield (
                f"{key}, {auto.removeprefix('Retrial ')}, of the best row it may choose",
                0.9,
                (reached, f"best: {name}" if rate else ""),
            )


def _ratio(tables: Tables, key: str, ours: str, theirs: str) -> Found:
    table = tables.get(key)
    rate, name = _best(table, lambda name: name.startswith(ours))
    other = (
        table["limit"]
        if table and theirs == "limit"
        else _best(table, lambda name: name.startswith(theirs))[0]
    )
    return (rate / other, name) if rate and other else (None, "")


def _best(table: dict[str, Any] | None, chosen: Callable[[str], bool]) -> Found:
    """The best of these rows."""
    rates = {name: rate for name, rate in table["env_steps_per_s"].items() if chosen(name)} if table else {}
    if not rates:
        return None, ""
    name = max(rates, key=lambda name: rates[name])
    return rates[name], name
