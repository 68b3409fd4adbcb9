"""The fault list (test_faults.py) off the default backend: its corners on every other one, and with `pytest
-m faults_full` all of it everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from envs.backends import BACKENDS
from envs.backends.base import OnFault, StartMethod
from envs.base import Shard
from envs.parallel_env_manager import EnvCrashLoopError
from tests.faults import DEADLINE_S, TOY, check_run, fault_free, faulty, happened, manage, played
from tests.toys_faulty import FINAL_ERRORS, HARMLESS, FaultyFamily

PROCESSES = ("process", "pipe")
# Faults that any backend lives through; but that on `serial` a KeyboardInterrupt ends the run.
RAISING = (
    "raise",
    "slot_error",
    "unpicklable",
    "speechless",
    "huge",
    "import",
    "nan_obs",
    "inf_obs",
    "nan_reward",
    "sys_exit",
    "final",
    *FINAL_ERRORS,
)
# Faults that cost the process.
DEADLY = (
    "kill",
    "segv",
    "bus",
    "abort",
    "exit",
    "exit_0",
    "half",
    "garbage",
    "close_pipes",
    "no_memory",
    "exec",
    "close_all",
    "write_everywhere",
    "stop",
    "sleep",
    "busy",
    "hold_gil",
)
HANGING = ("late", "stop", "sleep", "busy", "hold_gil")


def applies(fault: str, name: str) -> bool:
    """Whether a backend promises anything about a fault."""
    return (fault not in DEADLY or name in PROCESSES) and (fault, name) not in (
        ("interrupt", "serial"),
        ("late", "serial"),
    )


def options_of(fault: str) -> dict[str, Any]:
    """A short deadline, where one is waited for."""
    return {"call_timeout_s": DEADLINE_S, "close_timeout_s": 0.2} if fault in HANGING else {}


@pytest.mark.parametrize("policy", list(OnFault))
@pytest.mark.parametrize(
    ("name", "fault"),
    [
        (name, fault)
        for name in BACKENDS
        for fault in ("raise", "nan_obs", "sys_exit", "final", *FINAL_ERRORS, "late")
        if name != "process" and applies(fault, name)
    ],
)
def test_every_policy_holds_on_every_backend(name: str, fault: str, policy: OnFault, tmp_path: Path) -> None:
    """An environment that comes late to a thread or a loop is left behind, and nothing of what it then says
    is heard.
    """
    with manage(faulty(tmp_path, fault), name, on_fault=policy, **options_of(fault)) as manager:
        check_run(manager, policy)
        assert happened(tmp_path) == 1


@pytest.mark.parametrize("fault", HARMLESS)
@pytest.mark.parametrize("name", PROCESSES)
def test_what_an_environment_may_do_in_a_worker_costs_nothing(name: str, fault: str, tmp_path: Path) -> None:
    """It forks, starts threads that stay or fail, uses multiprocessing, and ends what it has started."""
    with manage(faulty(tmp_path, fault, times=2), name) as manager:
        assert played(manager) == fault_free()
        assert happened(tmp_path) == 2 and manager.faults.restarts == 0


@pytest.mark.parametrize("fault", ["multiprocessing", "end_children"])
@pytest.mark.parametrize("name", [name for name in BACKENDS if name not in PROCESSES])
def test_multiprocessing_works_on_the_other_backends_too(name: str, fault: str, tmp_path: Path) -> None:
    with manage(faulty(tmp_path, fault), name) as manager:
        assert played(manager) == fault_free()
        assert happened(tmp_path) == 1 and manager.faults.restarts == 0


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("where", ["make_shard", "step", "render", "close"])
def test_what_an_error_says_acts_on_no_terminal(
    name: str, where: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    # What a worker writes while it ends is seen here only if it was started by this process.
    method = StartMethod.spawn if where == "close" else StartMethod.auto
    said = ""
    try:
        family = faulty(tmp_path, "escapes", times=100, where=where)
        with manage(family, name, start_method=method) as manager:
            manager.reset()
            manager.render(0)
            played(manager)
    except RuntimeError as error:
        said = str(error)
    told = said + caplog.text + capfd.readouterr().err
    assert (
        happened(tmp_path) and r"ValueError: \x1b[2J\x1b]0;a title\x07\rgone" in told and "\x1b" not in told
    )


def test_ctrl_c_in_a_step_ends_a_serial_run(tmp_path: Path) -> None:
    with manage(faulty(tmp_path, "interrupt"), "serial") as manager, pytest.raises(KeyboardInterrupt):
        played(manager)


@pytest.mark.parametrize("name", [name for name in BACKENDS if name != "process"])
def test_what_cannot_be_built_anew_at_first_is_tried_once_more_on_every_backend(
    name: str, tmp_path: Path
) -> None:
    with manage(faulty(tmp_path, "raise", again="raise"), name) as manager:
        assert played(manager) == fault_free()
        assert happened(tmp_path) == happened(tmp_path, "again") == 1


class StickyFamily(FaultyFamily):
    """Fails once in a step, and whenever it is closed."""

    def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
        shard = super().make_shard(num_slots, threads)
        shard.close = self.refuse
        return shard

    def refuse(self) -> None:
        raise ValueError("stuck")


@pytest.mark.parametrize("name", BACKENDS)
def test_environments_that_cannot_close_stop_neither_a_restart_nor_the_end(name: str, tmp_path: Path) -> None:
    with manage(StickyFamily(**TOY, fault="raise", at=3, times=1, folder=str(tmp_path)), name) as manager:
        assert played(manager) == fault_free()
        assert happened(tmp_path) == 1


# -- everything everywhere -----------------------------------------------------------------------------------


def methods_of(name: str) -> list[StartMethod]:
    """The start methods by which a backend's workers can be started."""
    if name not in PROCESSES:
        return [StartMethod.auto]
    return [method for method in StartMethod if method is not StartMethod.auto]


@pytest.mark.parametrize("name", ["serial", "thread", "process"])
def test_the_error_of_faults_that_say_a_lot_can_be_read(name: str, tmp_path: Path) -> None:
    """Fifty million letters, three times; of slots that fail differently there may be several."""
    with (
        manage(faulty(tmp_path, "huge", times=99), name) as manager,
        pytest.raises(EnvCrashLoopError, match="It failed 3 times at this place") as caught,
    ):
        played(manager)
    assert "raised ValueError: xxx" in str(caught.value) and len(str(caught.value)) < 20_000


def cells() -> Iterator[Any]:
    """Every fault at every place, on every backend with every start method."""
    faults = (*RAISING, *DEADLY, "late")
    for name, fault, where in product(BACKENDS, faults, ("step", "reset")):
        # An import that fails at the first reset is a mistake in code: tests/envs/manager/test_mistakes.py.
        if applies(fault, name) and (fault, where) != ("import", "reset"):
            for method in methods_of(name):
                yield pytest.param(name, method, fault, where, id=f"{name}-{method.name}-{fault}-{where}")


@pytest.mark.faults_full
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("policy", list(OnFault))
@pytest.mark.parametrize(("name", "method", "fault", "where"), list(cells()))
def test_every_fault_at_every_place_on_every_backend_under_every_policy(
    name: str, method: StartMethod, fault: str, where: str, policy: OnFault, groups: int, tmp_path: Path
) -> None:
    with manage(
        faulty(tmp_path, fault, where=where),
        name,
        groups=groups,
        start_method=method,
        on_fault=policy,
        **options_of(fault),
    ) as manager:
        check_run(manager, policy)
        assert happened(tmp_path) >= 1


@pytest.mark.faults_full
@pytest.mark.parametrize("second", ["at the same place", "while it is built anew"])
@pytest.mark.parametrize(("name", "method", "fault", "where"), list(cells()))
def test_a_second_fault_at_once_is_lived_through(
    name: str, method: StartMethod, fault: str, where: str, second: str, tmp_path: Path
) -> None:
    again = ""
    if second == "while it is built anew":
        again = "exit" if name in PROCESSES else "raise"
    with manage(
        faulty(tmp_path, fault, 1 if again else 2, where=where, again=again),
        name,
        start_method=method,
        **options_of(fault),
    ) as manager:
        check_run(manager, OnFault.restart)
        assert happened(tmp_path) + happened(tmp_path, "again") == 2
