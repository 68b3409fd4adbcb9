"""Workers see no secrets, their environments' noise does no harm, and what those start ends with them."""

from __future__ import annotations

import json
import os
import select
from pathlib import Path

import numpy as np
import pytest

from envs.backends.base import BackendConfig, Block, Commands, Fault, StartMethod
from envs.backends.workers.isolation import inside_worker, is_secret, kill_group
from envs.backends.workers.process import ProcessBackend
from envs.layout import Layout
from tests.envs.backends.troubles import DoingFamily, ForkAndDie, StartChildren, make_noise, tell_the_birds

METHODS = [StartMethod.forkserver, StartMethod.spawn, StartMethod.fork]


def two_steps(
    family: DoingFamily, method: StartMethod = StartMethod.auto, timeout: float = 20.0
) -> tuple[ProcessBackend, list[Fault]]:
    """A backend whose worker has done what the family does, and the faults of that; to be closed."""
    backend = ProcessBackend(
        [Block(lambda: family, 0, 2)],
        Layout(family.spec),
        num_workers=1,
        config=BackendConfig(start_method=method),
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


@pytest.mark.parametrize(
    "name",
    [
        *(
            "WANDB_API_KEY",
            "AWS_ACCESS_KEY_ID",
            "AWS_SESSION",
            "HF_TOKEN",
            "GITHUB_TOKENS",
            "GITHUBTOKEN",
            "MY_SECRET",
            "SECRETS",
            "DB_PASSWORD",
        ),
        *(
            "PGPASSWORD",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "OPENAI_API_KEY",
            "api-key",
            "db_passwd",
            "SSH_AUTH_SOCK",
        ),
    ],
)
def test_a_variable_to_log_in_with_is_a_secret(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "PATH",
        "HOME",
        "PWD",
        "OLDPWD",
        "TOKENIZERS_PARALLELISM",
        "PYTHONHASHSEED",
        "MUJOCO_GL",
        "KEYBOARD",
        "XAUTHORITY",
        "LD_LIBRARY_PATH",
    ],
)
def test_other_variables_are_none(name: str) -> None:
    assert not is_secret(name)


@pytest.mark.parametrize("method", METHODS)
def test_workers_see_no_secrets_and_ours_stay(method: StartMethod, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIRD_TOKEN", "canary")
    monkeypatch.setenv("BIRD", "sparrow")
    before = dict(os.environ)
    backend, faults = two_steps(DoingFamily(tell_the_birds), method)
    backend.close()
    own, started_with = json.loads(faults[0].sentence.removeprefix("raised ValueError: "))
    assert "BIRD_TOKEN" not in [*own, *started_with]
    assert own == ["BIRD"] or method is StartMethod.forkserver, (
        "the control: others are seen, if the forkserver is not older than they"
    )
    assert dict(os.environ) == before


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
