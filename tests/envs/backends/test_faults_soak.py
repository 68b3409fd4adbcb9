"""The chaos soak: workers are killed and stopped at random for a given time, and nothing grows and no number
changes.

`pytest -m soak` takes a minute; `SOAK_SECONDS=3600 pytest -m soak` an hour.
"""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import signal
import threading
import time
from contextlib import suppress
from typing import Any

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

import envs.manager.recovery
from envs.backends.base import BackendConfig
from envs.parallel_env_manager import ParallelEnvManager
from policies.collection.actors import RandomActor
from policies.collection.wave import Sink, WavePlan, run_wave
from tests.toys import CountingConfig, DelayedFamily
from utils.seeding import Phase

SECONDS = float(os.environ.get("SOAK_SECONDS", "60"))
SLOTS, WORKERS, TRIALS = 12, 4, 48
SIGNALS = [signal.SIGKILL, signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP]


class Hasher(Sink):
    """A sink that keeps one hash of all that it is given, in the order of the trials."""

    def __init__(self) -> None:
        self.text = ""

    def reserve(self, n: int) -> None:
        self._trials = [hashlib.sha256() for _ in range(n)]

    def write(
        self,
        trials: NDArray[np.int64],
        times: NDArray[np.int64],
        rows: Any,
        slots: NDArray[np.int64],
        actions: NDArray[Any],
        extras: Any,
    ) -> None:
        for trial, when, slot in zip(trials.tolist(), times.tolist(), slots.tolist(), strict=True):
            parts = (rows.obs, rows.reward, rows.terminated, rows.truncated, rows.info, actions)
            self._trials[trial].update(
                b"".join([when.to_bytes(4, "little"), *(part[slot].tobytes() for part in parts)])
            )

    def commit(self, lengths: NDArray[np.int64]) -> None:
        self.text = "".join(trial.hexdigest() for trial in self._trials)

    def discard(self) -> None: ...


def wave(manager: ParallelEnvManager, number: int) -> str:
    """The hash of a wave, a function of its number."""
    kept = Hasher()
    plan = WavePlan.of_tasks(
        0, Phase.TRAIN, number * TRIALS, np.random.default_rng(number).uniform(size=(TRIALS, 2))
    )
    run_wave(manager, RandomActor(manager.single_action_space), plan, sink=kept)
    return kept.text


class Chaos(threading.Thread):
    """Every half second to two seconds, something happens to one or several workers."""

    def __init__(self, manager: ParallelEnvManager) -> None:
        super().__init__()
        self._manager, self._rng = manager, np.random.default_rng(0)
        self.over, self.calm, self.strikes = threading.Event(), threading.Lock(), 0

    def run(self) -> None:
        while not self.over.wait(self._rng.uniform(0.5, 2.0)):
            for pid in self._rng.permutation(self._manager.pids)[: self._rng.integers(1, 3)].tolist():
                with suppress(ProcessLookupError), self.calm:
                    watched = os.pidfd_open(pid)
                    try:
                        signal.pidfd_send_signal(watched, self._rng.choice(SIGNALS))
                        self.strikes += 1
                    finally:
                        os.close(watched)


@pytest.mark.soak
@pytest.mark.timeout(SECONDS + 240)
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux only")
def test_nothing_grows_and_no_number_changes_while_workers_are_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        logging.getLogger(envs.manager.recovery.__name__), "disabled", True
    )  # pytest keeps every record, which would grow
    family, me = DelayedFamily(CountingConfig(max_episode_steps=20)), psutil.Process()
    memory, files, most, waves, deadline = list[int](), set[int](), 0, 0, time.monotonic() + SECONDS
    config = BackendConfig(name="process", call_timeout_s=0.5, fault_budget=10**9)
    with (
        ParallelEnvManager(
            family, SLOTS, episodes_per_trial=2, num_workers=WORKERS, backend=config
        ) as manager,
        ParallelEnvManager(family, SLOTS, episodes_per_trial=2) as quiet,
    ):
        chaos = Chaos(manager)
        chaos.start()
        try:
            while time.monotonic() < deadline:
                assert wave(manager, waves) == wave(quiet, waves)
                waves += 1
                gc.collect()
                memory.append(me.memory_info().rss)
                with chaos.calm:
                    files.add(len(os.listdir("/dev/fd")))
                most = max(most, len(me.children(recursive=True)))
        finally:
            chaos.over.set()
            chaos.join()
        assert manager.faults.restarts >= chaos.strikes > SECONDS / 3 and not manager.faults.dropped
    assert len(files) == 1 and most <= WORKERS + 2, (
        "the forkserver and the resource tracker, and nothing else"
    )
    quarter = len(memory) // 4
    growth = np.median(memory[-quarter:]) - np.median(memory[quarter : 2 * quarter])
    assert growth < 2e6, f"{growth / 1e6:.1f} MB in {waves} waves"
