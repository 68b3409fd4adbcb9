"""A mistake in the code of an environment ends the run at its first step, with one traceback."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from envs.backends import BACKENDS
from envs.backends.base import BackendConfig
from envs.base import Shard, SlotError
from envs.manager.recovery import MISTAKE, MOST_NUMBERS
from envs.parallel_env_manager import EnvCrashLoopError, ParallelEnvManager, WorkerError
from tests.toys import CountingFamily, CountingShard

ONE_EACH = [(name, 1 if name in ("serial", "asyncio") else 2) for name in BACKENDS]
SLOTS = 5
ACTIONS = np.zeros((SLOTS, 2), np.float32)


class MistakenShard(CountingShard):
    """Uses a name that does not exist, from some step of an episode on."""

    first_bad_step = 1
    names_its_slot = False

    def step(self, slots: NDArray[np.int64], actions: NDArray[np.float32]) -> None:
        super().step(slots, actions)
        if self.time[slots[0]] >= self.first_bad_step:
            try:
                self.rows.reward[slots] = undefined_name  # pyright: ignore[reportUndefinedVariable]
            except NameError as error:
                if not self.names_its_slot:
                    raise
                raise SlotError(int(slots[0]), f"step raised NameError: {error}") from error


class NamingShard(MistakenShard):
    names_its_slot = True


class LateShard(MistakenShard):
    first_bad_step = 3


class MistakenFamily(CountingFamily):
    """Slots of one of these shards; its tasks have as many numbers as a test asks for."""

    kind: type[CountingShard] = MistakenShard

    def __init__(self, kind: type[CountingShard]) -> None:
        super().__init__()
        self.kind = kind

    def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
        return self.kind(num_slots, self.config)


def failing(kind: type[CountingShard], name: str = "serial", workers: int = 1) -> tuple[WorkerError, int]:
    """The error of a run with such environments, and the restarts before it."""
    config = BackendConfig(name=name, threads=1 if name in ("serial", "thread") else None)
    with ParallelEnvManager(
        MistakenFamily(kind), SLOTS, episodes_per_trial=1, num_workers=workers, backend=config
    ) as manager:
        manager.reset()
        with pytest.raises(WorkerError) as caught:
            for _ in range(4):
                manager.step(ACTIONS)
        return caught.value, manager.faults.restarts


@pytest.mark.parametrize("kind", [MistakenShard, NamingShard])
@pytest.mark.parametrize(("name", "workers"), ONE_EACH)
def test_a_mistake_in_the_first_step_is_one_traceback_and_tried_once(
    name: str, workers: int, kind: type[CountingShard]
) -> None:
    error, restarts = failing(kind, name, workers)
    text = str(error)
    assert restarts == 0 and text.count("Traceback (most recent call last)") == 1
    assert "NameError: name 'undefined_name'" in text.partition("\n")[0], "the cause comes first"
    assert text.endswith(MISTAKE) and "direct cause" not in text
    assert max(map(len, text.splitlines())) < 500, "three slots are named at most"


def test_the_same_error_in_a_later_step_is_tried_again_since_it_may_have_come_from_outside() -> None:
    error, restarts = failing(LateShard)
    assert isinstance(error, EnvCrashLoopError) and restarts and MISTAKE not in str(error)


class WideFamily(MistakenFamily):
    """Tasks of 40 numbers."""

    def __init__(self) -> None:
        super().__init__(MistakenShard)
        self.spec = type(self.spec)("Wide", self.spec.obs_space, self.spec.action_space, 40, ("t",))

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        return np.arange(40.0) + np.zeros((n, 40))


def test_of_a_long_task_the_first_numbers_are_shown() -> None:
    with (
        ParallelEnvManager(WideFamily(), SLOTS, backend=BackendConfig(name="serial")) as manager,
        pytest.raises(WorkerError) as caught,
    ):
        manager.reset()
        manager.step(ACTIONS)
    assert f"{MOST_NUMBERS - 1}.0, ...]" in str(caught.value)
