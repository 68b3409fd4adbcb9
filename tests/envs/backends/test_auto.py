"""backend=auto: what it picks for which costs, and that it changes nothing but who steps."""

from __future__ import annotations

import pytest

from envs.backends.auto import Choice, Costs, choose, decide
from envs.backends.base import BackendConfig
from tests.toys import CountingFamily
from utils.machine import available_cores

CORES = available_cores()
SLOTS = 12


def decided(
    wall: float, cpu: float | None = None, threaded: float | None = None, *, act: float = 0.0, workers: int | None = None, **how: bool
) -> Choice:
    cpu, threaded = wall if cpu is None else cpu, wall if threaded is None else threaded
    return decide(Costs(wall, cpu, threaded, **how), BackendConfig(threads=3), SLOTS, num_workers=workers, num_groups=1, act=act)


@pytest.mark.skipif(CORES < 2, reason="one core has nothing to share out")
def test_each_kind_of_cost_has_its_backend() -> None:
    for choice, expected in (
        (decided(20e-6), ("serial", 1)),
        (decided(1.6e-3, threaded=1.6e-3 / CORES), ("serial", 1)),
        (decided(60e-3), ("process", min(CORES, SLOTS))),
        (decided(120e-3, cpu=1e-3), ("thread", SLOTS)),
        (decided(120e-3, cpu=1e-3, waits_in_coroutines=True), ("asyncio", 1)),
        (decided(20e-6, workers=6), ("process", 6)),
        (decided(60e-3, workers=1), ("serial", 1)),
        (decided(120e-3, cpu=1e-3, workers=4), ("thread", 4)),
    ):
        assert (choice.backend.name, choice.num_workers) == expected
        assert choice.reason.startswith(f"backend=auto: {expected[0]}, since ")


def test_first_ready_is_never_given_to_a_backend_that_cannot_have_it() -> None:
    choice = decide(Costs(1e-5, 1e-5, 1e-5), BackendConfig(min_ready=2), SLOTS, num_workers=None, num_groups=1, act=0.0)
    assert choice.backend.name == "process" and choice.backend.min_ready == 2


def test_every_other_setting_stays_as_it_was_given() -> None:
    given = BackendConfig(call_timeout_s=7.0, fault_budget=3)
    chosen = choose(CountingFamily(), given, SLOTS).backend
    assert (chosen.call_timeout_s, chosen.fault_budget) == (7.0, 3) and chosen.name != "auto"


def test_a_named_backend_is_not_measured() -> None:
    class Unbuildable(CountingFamily):
        def make_shard(self, num_slots: int, threads: int = 1) -> object:  # pyright: ignore[reportIncompatibleMethodOverride]
            raise AssertionError("nobody asked")

    for name, workers, expected in (
        ("serial", None, 1),
        ("process", None, min(CORES, SLOTS)),
        ("pipe", 5, 5),
        ("thread", 4, 4),
        ("asyncio", None, 1),
    ):
        assert choose(Unbuildable(), BackendConfig(name=name), SLOTS, num_workers=workers) == Choice(BackendConfig(name=name), expected, "")
