"""The worker's side: a process that keeps to itself."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from envs.backends.base import BackendConfig, OnFault, StartMethod
from envs.parallel_env_manager import ParallelEnvManager, WorkerError
from tests.envs.backends.troubles import CutOff, DoingFamily, Leave
from tests.toys_faulty import FaultyFamily


@pytest.mark.parametrize("method", [StartMethod.forkserver, StartMethod.spawn, StartMethod.fork])
def test_a_worker_is_deaf_to_ctrl_c_single_threaded_and_light(method: StartMethod) -> None:
    manager = ParallelEnvManager(
        FaultyFamily(fault="tell", where="reset"),
        2,
        num_workers=2,
        backend=BackendConfig(name="process", start_method=method, on_fault=OnFault["raise"]),
    )
    with manager, pytest.raises(WorkerError) as caught:
        manager.reset()
    seen = json.loads(str(caught.value).split("raised ValueError: ", 1)[1].splitlines()[0])
    assert (seen["deaf_to"], seen["blocked"], seen["stdin"]) == (
        ["SIGHUP", "SIGINT", "SIGTERM"],
        [],
        "/dev/null",
    )
    assert seen["variables"] == {
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "WANDB_MODE": "disabled",
    }
    assert method is StartMethod.fork or seen["heavy"] == []


@pytest.mark.parametrize(
    ("do", "code", "told"),
    [
        (Leave(4), 4, ""),
        (Leave(None), 0, ""),
        (Leave(-1), 255, ""),
        (Leave("no more bread"), 1, "no more bread"),
        (CutOff(), 1, "OSError: [Errno 9] Bad file descriptor"),
    ],
    ids=["number", "nothing", "negative", "text", "error"],
)
def test_a_thread_of_the_environment_keeps_no_worker_alive(
    do: Callable[[], None], code: int, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    config = BackendConfig(
        name="process", start_method=StartMethod.spawn, on_fault=OnFault["raise"], call_timeout_s=20.0
    )
    still = np.zeros((2, 2), np.float32)
    with (
        ParallelEnvManager(DoingFamily(do), 2, num_workers=1, backend=config) as manager,
        pytest.raises(WorkerError) as caught,
    ):
        manager.reset()
        manager.step(still)
        manager.step(still)
    assert f"was lost: its worker process exited with code {code}" in str(caught.value)
    assert told in capfd.readouterr().err
