"""Scripts that start workers: guarded or not, ended by their last line, by an error or by SIGKILL, they leave
no process behind.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

import envs.backends.workers.launch as launch_module
from envs.backends import BACKENDS
from envs.backends.base import BackendConfig, BackendError, Block
from envs.backends.workers.launch import HELPERS, check_memory, check_startable
from envs.layout import Layout
from tests.toys import CountingFamily

ROOT = Path(__file__).resolve().parents[4]
METHODS = ["forkserver", "spawn", "fork"]
PRELUDE = """
import weakref
# An exit handler older than multiprocessing's must not change the order of things.
weakref.finalize(weakref, int)
import json, os, signal, sys, threading
import numpy as np
from envs.backends.base import BackendConfig, OnFault, StartMethod
from envs.parallel_env_manager import ParallelEnvManager, WorkerError
from tests.toys import CountingConfig, CountingFamily
from tests.toys_faulty import FaultyFamily

print("top level")

def manage(family, **options):
    config = BackendConfig(name="process", start_method=StartMethod[sys.argv[1]], **options)
    return ParallelEnvManager(family, 4, num_workers=2, backend=config)
"""


def launch(folder: Path, text: str, *arguments: str) -> subprocess.Popen[str]:
    """Run a script in a session of its own."""
    script = folder / "script.py"
    script.write_text(PRELUDE + text)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)])}
    return subprocess.Popen(
        [sys.executable, str(script), *arguments],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def run(folder: Path, text: str, *arguments: str) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of a script."""
    with launch(folder, text, *arguments) as process:
        try:
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    return process.returncode, out, err


def wait_for_end(watched: dict[int, int], timeout: float) -> list[int]:
    """The processes (pid -> pidfd) that have not ended when the time is up."""
    poll, left, deadline = select.poll(), dict(watched), time.monotonic() + timeout
    for descriptor in left.values():
        poll.register(descriptor, select.POLLIN)
    while left and (rest := deadline - time.monotonic()) > 0:
        for descriptor, _ in poll.poll(rest * 1000):
            poll.unregister(descriptor)
            left = {pid: other for pid, other in left.items() if other != descriptor}
    return list(left)


def read_until(process: subprocess.Popen[str], wanted: set[str]) -> None:
    """Read its output until each of these words has come."""
    assert process.stdout is not None and process.stderr is not None
    while wanted:
        line = process.stdout.readline()
        assert line, f"the script ended before {wanted}: {process.stderr.read()}"
        wanted -= {word for word in wanted if word in line}


# -- limits --------------------------------------------------------------------------------------------------


def limit(monkeypatch: pytest.MonkeyPatch, which: int, allowed: int) -> None:
    """Pretend that so much is allowed."""
    real = resource.getrlimit
    monkeypatch.setattr(
        resource, "getrlimit", lambda asked: (allowed, allowed) if asked == which else real(asked)
    )


def test_too_few_processes_are_refused_with_both_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(launch_module, "_used_processes", lambda: 100 + HELPERS)
    limit(monkeypatch, resource.RLIMIT_NPROC, 105)
    check_startable(2)
    with pytest.raises(
        BackendError,
        match=r"^3 worker .* need 106 processes, but only 105 are allowed: "
        r"run `ulimit -u 106` before, or .*=2\)\.$",
    ):
        check_startable(3)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    check_startable(3)


def test_the_advice_for_a_run_that_trains_and_evaluates_is_a_number_that_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "listdir", lambda path: ["a file"] * 8)
    limit(monkeypatch, resource.RLIMIT_NOFILE, 60)
    with pytest.raises(
        BackendError, match=r"^12 worker processes to train and 12 to evaluate need 140 open files, .*=2\)\.$"
    ):
        check_startable(12, twice=True)
    check_startable(2, twice=True)
    with pytest.raises(
        BackendError, match=r"^3 worker processes to train and 3 to evaluate need 68 open files"
    ):
        check_startable(3, twice=True)
    limit(monkeypatch, resource.RLIMIT_NOFILE, 51)
    with pytest.raises(
        BackendError, match=r"run `ulimit -n 60` before, or step in this process \(backend=serial\)\.$"
    ):
        check_startable(2, twice=True)


def test_the_processes_of_a_user_are_counted_with_their_threads() -> None:
    stop, before = threading.Event(), launch_module._used_processes()
    threads = [threading.Thread(target=stop.wait) for _ in range(40)]
    for thread in threads:
        thread.start()
    try:
        assert launch_module._used_processes() - before > 20, "other processes come and go"
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_rows_that_do_not_fit_are_refused_with_both_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_module, "available_memory", lambda: 100 << 20)
    check_memory(100 << 20, 8)
    with pytest.raises(
        BackendError, match=r"^The rows of 8 slots need 101 MiB of memory, but only 100 MiB are free: "
    ):
        check_memory((100 << 20) + 1, 8)
    spent = psutil.Process().memory_info().vms
    limit(monkeypatch, resource.RLIMIT_AS, spent + (50 << 20))
    check_memory(10 << 20, 8)
    with pytest.raises(
        BackendError,
        match=r"^The rows of 8 slots need 90 MiB of memory, \d+ MiB with .*, "
        r"but only \d+ MiB of addresses are allowed",
    ):
        check_memory(90 << 20, 8)


@pytest.mark.parametrize("name", ["process", "pipe"])
def test_memory_is_looked_at_before_any_process_starts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envs.backends.workers.process.start_children", None)
    monkeypatch.setattr(launch_module, "available_memory", lambda: 0)
    family = CountingFamily()
    with pytest.raises(BackendError, match="0 MiB are free"):
        BACKENDS[name](
            [Block(lambda: family, 0, 2)], Layout(family.spec), num_workers=2, config=BackendConfig()
        )


# -- scripts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_a_script_without_a_guard_just_works(tmp_path: Path, method: str) -> None:
    text = """
class Own(CountingFamily):
    def sample_tasks(self, rng, n, split):
        return np.full((n, 2), OWN_TASK)
OWN_TASK = 0.75
with manage(Own(CountingConfig(falls=False))) as manager:
    print(manager.reset().obs[:, 0].tolist(), manager.step(np.zeros((4, 2), np.float32)).reward.tolist())
"""
    assert run(tmp_path, text, method) == (
        0,
        "top level\n[0.75, 0.75, 0.75, 0.75] [76.0, 76.0, 76.0, 76.0]\n",
        "",
    )


@pytest.mark.parametrize("method", METHODS)
def test_a_factory_of_the_script_reaches_the_workers_by_value(tmp_path: Path, method: str) -> None:
    text = """
if __name__ == "__main__":
    steps = 3
    class Shard(type(CountingFamily().make_shard(1))):
        def write(self, slots):
            super().write(slots)
            self.rows.obs[slots, 4] = steps
    class Own(CountingFamily):
        def make_shard(self, num_slots, threads=1):
            return Shard(num_slots, self.config)
    factories = [lambda: Own() for _ in range(2)]
    config = BackendConfig(name="process", start_method=StartMethod[sys.argv[1]])
    with ParallelEnvManager([factories[0], factories[1]], num_workers=2, backend=config) as manager:
        print(manager.reset().obs[:, 4].tolist())
"""
    assert run(tmp_path, text, method) == (0, "top level\n[3.0, 3.0]\n", "")


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_module_that_starts_workers_when_imported_is_told_so_in_one_sentence(
    tmp_path: Path, method: str
) -> None:
    (tmp_path / "careless.py").write_text(
        PRELUDE + "class Own(CountingFamily): pass\nmanage(Own()).close()\n"
    )
    code, out, err = run(tmp_path, "import careless", method)
    assert code == 1 and out.count("top level") <= 4, "no fork bomb"
    assert (
        "could not be built: raised BackendError: "
        "A worker process that imports this module would start workers of its own" in err
    )
    assert 'put the code that the module runs under `if __name__ == "__main__":`' in err


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "last_line", ["pass", "raise SystemExit(7)", "manager.remotes[0].send(('reset', {}))"]
)
def test_a_script_that_never_closes_ends_cleanly(tmp_path: Path, method: str, last_line: str) -> None:
    text = f"""
task_above = -1.0 if "send" in {last_line!r} else 5.0
manager = manage(FaultyFamily(fault="sleep", where="reset", task_above=task_above), close_timeout_s=0.2)
print(json.dumps(manager.pids))
{last_line}
"""
    code, out, err = run(tmp_path, text, method)
    assert (code, err) == (7 if "7" in last_line else 0, "")
    assert not any(psutil.pid_exists(pid) for pid in json.loads(out.splitlines()[1]))


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_the_secrets_of_the_shell_reach_no_worker(
    tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIRD_API_KEY", "canary")
    monkeypatch.setenv("MUJOCO_BIRD", "sparrow")
    text = """
from tests.envs.backends.troubles import DoingFamily, tell_the_birds
manager = manage(DoingFamily(tell_the_birds), on_fault=OnFault["raise"])
manager.reset()
try:
    for _ in range(3):
        manager.step(np.zeros((4, 2), np.float32))
except WorkerError as error:
    print(str(error).split("raised ValueError: ")[1].splitlines()[0], os.environ["BIRD_API_KEY"])
"""
    birds = '{"MUJOCO_BIRD": "sparrow"}'
    assert run(tmp_path, text, method) == (0, f"top level\n[{birds}, {birds}] canary\n", "")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_secrets_of_the_shell_reach_no_second_forkserver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forkserver that was killed is a zombie until the next one is started."""
    monkeypatch.setenv("BIRD_API_KEY", "canary")
    text = """
import psutil
from multiprocessing import forkserver
with manage(CountingFamily(CountingConfig(falls=False))) as manager:
    manager.reset()
    first = forkserver._forkserver._forkserver_pid
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    print(manager.step(np.zeros((4, 2), np.float32)).info[:, 0].tolist())
    second = forkserver._forkserver._forkserver_pid
    print(second != first, "BIRD_API_KEY" in psutil.Process(second).environ(), os.environ["BIRD_API_KEY"])
"""
    code, out, err = run(tmp_path, text, "forkserver")
    assert (code, out) == (0, "top level\n[1.0, 1.0, 1.0, 1.0]\nTrue False canary\n"), err


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux only")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("doing", ["idle", "sleep", "hold_gil", "stopped", "thread"])
def test_no_worker_survives_the_sigkill_of_its_trainer(tmp_path: Path, method: str, doing: str) -> None:
    text = """
doing = sys.argv[2]
made = []
def start():
    where = "reset" if doing in ("sleep", "hold_gil") else "nowhere"
    made.append(manage(FaultyFamily(fault=doing, where=where)))
    made.append(manage(CountingFamily()))
if doing == "thread":  # then the kernel cannot watch over workers, which are to end with their pipes
    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
else:
    start()
manager = made[0]
if doing in ("sleep", "hold_gil"):
    manager.remotes[0].send(("reset", {}))
if doing == "stopped":
    os.kill(manager.pids[0], signal.SIGSTOP)
print("ready", flush=True)
signal.pause()
"""
    watched: dict[int, int] = {}
    with launch(tmp_path, text, method, doing) as process:
        try:
            read_until(process, {"ready", "hanging"} if doing in ("sleep", "hold_gil") else {"ready"})
            watched |= {
                child.pid: os.pidfd_open(child.pid)
                for child in psutil.Process(process.pid).children(recursive=True)
            }
            assert len(watched) >= 4
            process.kill()
            assert wait_for_end(watched, 60.0) == []
        finally:
            process.kill()
            for pid, descriptor in watched.items():
                if wait_for_end({pid: descriptor}, 0.001):
                    os.kill(pid, signal.SIGKILL)
                os.close(descriptor)
