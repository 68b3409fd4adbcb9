"""Workers see no secrets, their environments' noise does no harm, and what those start ends with them."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from envs.backends.base import BackendConfig, BackendError, Block, Commands, Fault, StartMethod
from envs.backends.workers.isolation import inside_worker, kill_group
from envs.backends.workers.process import ProcessBackend
from envs.base import Shard
from envs.layout import Layout
from tests.envs.backends.troubles import DoingFamily, ForkAndDie, StartChildren, make_noise, tell_the_birds
from tests.toys import CountingFamily

ROOT = Path(__file__).parents[4]

METHODS = [StartMethod.forkserver, StartMethod.spawn, StartMethod.fork]


class Unlicensed(CountingFamily):
    """Cannot be built where a variable is not seen."""

    def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
        if "LICENCE_OF_BIRDS" not in os.environ:
            raise ValueError("no licence")
        return super().make_shard(num_slots, threads)


def two_steps(
    family: CountingFamily,
    method: StartMethod = StartMethod.auto,
    timeout: float = 120.0,
    keep: Sequence[str] = (),
) -> tuple[ProcessBackend, list[Fault]]:
    """A backend whose worker has done what the family does, and the faults of that; to be closed."""
    backend = ProcessBackend(
        [Block(lambda: family, 0, 2)],
        Layout(family.spec),
        num_workers=1,
        config=BackendConfig(start_method=method, keep_environment=list(keep)),
    )
    return backend, play(backend, timeout)


def play(backend: ProcessBackend, timeout: float = 20.0) -> list[Fault]:
    """Start an episode and go on until the family has done what it does; return the faults of that."""
    commands, slots, faults = Commands.empty(backend.rows), np.arange(2), list[Fault]()
    for number in range(4):
        commands.reset[:] = number == 0
        backend.post(slots, commands)
        faults = backend.wait(slots, timeout)[1]
        if faults:
            break
    return faults


@pytest.mark.parametrize("method", METHODS)
def test_workers_see_what_is_passed_on_and_ours_stays(
    method: StartMethod, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A name that says nothing, one that is known, a proxy, and one that the user asks for.
    monkeypatch.setenv("DATABASE_OF_BIRDS", "canary")
    monkeypatch.setenv("MUJOCO_BIRD", "sparrow")
    monkeypatch.setenv("BIRD_TOKEN", "owl")
    monkeypatch.setenv("https_proxy", "http://wren:canary@bird:1")
    before = dict(os.environ)
    backend, faults = two_steps(DoingFamily(tell_the_birds), method, keep=["BIRD_TOKEN"])
    backend.close()
    own, started_with = json.loads(faults[0].sentence.removeprefix("raised ValueError: "))
    # The same under all start methods, whenever the forkserver was started.
    assert own == {"BIRD_TOKEN": "owl", "MUJOCO_BIRD": "sparrow", "https_proxy": "http://bird:1"}
    if method is not StartMethod.fork:  # whose block is that of its trainer
        assert "BIRD_TOKEN" not in started_with and "canary" not in str(started_with)
    assert dict(os.environ) == before


@pytest.mark.skipif(not Path("/proc").exists(), reason="reads /proc")
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_no_helper_of_ours_is_started_with_secrets(method: str) -> None:
    """The resource tracker and the forkserver live as long as the trainer, and any worker may read them."""
    text = """
from envs.backends.base import BackendConfig, StartMethod
from envs.parallel_env_manager import ParallelEnvManager
from tests.toys import CountingFamily
import psutil, sys
if __name__ == "__main__":
    config = BackendConfig(start_method=StartMethod(sys.argv[1]), keep_environment=["KEPT_BIRD"])
    with ParallelEnvManager(CountingFamily(), num_envs=2, num_workers=2, backend=config):
        children = psutil.Process().children(recursive=True)
        print(len(children) >= 4, [name for child in children for name in child.environ() if "BIRD" in name])
"""
    done = subprocess.run(
        [sys.executable, "-c", text, method],
        env=os.environ | {"BIRD_PAT": "canary", "KEPT_BIRD": "canary", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    # Two workers, the resource tracker, and the warden or the forkserver.
    assert (done.stdout, done.stderr) == ("True []\n", "")


def test_an_error_of_building_names_what_the_worker_could_not_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LICENCE_OF_BIRDS", "canary")
    with pytest.raises(BackendError, match=r"no licence") as caught:
        two_steps(Unlicensed())
    last = str(caught.value).splitlines()[-1]
    assert "LICENCE_OF_BIRDS" in last and "canary" not in last
    assert last.endswith("(backend.keep_environment=[NAME] passes a variable on).")
    backend, faults = two_steps(Unlicensed(), keep=["LICENCE_OF_BIRDS"])
    backend.close()
    assert not faults


def test_noise_and_closed_streams_do_no_harm(capfd: pytest.CaptureFixture[str]) -> None:
    backend, faults = two_steps(DoingFamily(make_noise), StartMethod.spawn)
    backend.close()
    assert not faults
    out, err = capfd.readouterr()
    assert out.count("noise") >= 33_000 and err.count("noise") >= 33_000, "it was only printed"


def gone(pid: int, timeout: float = 5.0) -> bool:
    """Whether a process ends in time."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    ended = bool(poll.poll(timeout * 1000))
    os.close(descriptor)
    return ended


def only_number(folder: Path) -> int:
    (name,) = os.listdir(folder)
    return int(name)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux only")
@pytest.mark.parametrize("how", ["close", "kill"])
def test_what_an_environment_starts_ends_with_its_worker(tmp_path: Path, how: str) -> None:
    backend, faults = two_steps(DoingFamily(StartChildren(tmp_path)))
    try:
        assert not faults
        if how == "kill":
            os.kill(next(iter(backend.processes())), 9)
            slots = np.arange(2)
            backend.post(slots, Commands.empty(backend.rows))
            assert backend.wait(slots, 10.0)[1]
            assert gone(only_number(tmp_path))
    finally:
        backend.close()
    assert gone(only_number(tmp_path))


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux only")
@pytest.mark.parametrize("method", METHODS)
def test_a_worker_whose_fork_holds_its_descriptors_is_seen_to_die_all_the_same(
    tmp_path: Path, method: StartMethod
) -> None:
    backend, faults = two_steps(DoingFamily(ForkAndDie(tmp_path)), method, timeout=30.0)
    backend.close()
    assert faults[0].sentence == "was lost: its worker process exited with code 5"
    assert gone(only_number(tmp_path))


def test_a_number_that_somebody_else_may_have_by_now_is_left_alone() -> None:
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        os.kill(os.getpid(), 19)
        os._exit(7)
    os.waitpid(child, os.WUNTRACED)
    kill_group(child, reaped=True)
    os.kill(child, 18)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_this_process_is_no_worker() -> None:
    assert not inside_worker()
