"""Every registered backend, however many workers it has and however they start, gives the rows of the serial
one, bit for bit.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from envs.backends import BACKENDS
from envs.backends.base import (
    Backend,
    BackendConfig,
    BackendError,
    Block,
    Commands,
    OnFault,
    StartMethod,
    cut_blocks,
    segments_of,
    split_evenly,
)
from envs.base import Rows, TaskFamily
from envs.layout import Layout
from envs.meta import FAMILIES
from envs.parallel_env_manager import ParallelEnvManager, WorkerError
from tests.envs.meta.played import PLAYABLE
from tests.streams import Tamper, stream_hash, trial_streams
from tests.toys import (
    ACTION_DIM,
    CountingConfig,
    CountingFamily,
    DelayedFamily,
    DictCountingFamily,
    fall_step,
    noise_of,
    obs_of,
    reward_of,
)
from tests.toys_faulty import FaultyFamily
from utils.seeding import episode_seeds

NUM_SLOTS = 9
NUM_TRIALS = 17
# Backends that take no workers.
IN_ONE_THREAD = ("serial", "asyncio")


def settings() -> Iterator[Any]:
    """Every backend, with every number of workers and start method that it can have."""
    for name in BACKENDS:
        for workers in (1, 2, 3, 8):
            for method in (
                StartMethod if name in ("process", "pipe") and workers == 3 else (StartMethod.auto,)
            ):
                if name not in IN_ONE_THREAD or workers == 1:
                    yield pytest.param(name, workers, method, id=f"{name}-{workers}-{method.name}")


SETTINGS = list(settings())
ONE_EACH = [(name, 1 if name in IN_ONE_THREAD else 3) for name in BACKENDS]


def manage(
    family: TaskFamily,
    name: str = "serial",
    workers: int = 1,
    method: StartMethod = StartMethod.auto,
    *,
    on_fault: OnFault = OnFault["raise"],
    **options: Any,
) -> ParallelEnvManager:
    """A manager of nine slots and two episodes per trial, which stops at a fault."""
    config = BackendConfig(
        name=name,
        threads=None if name in ("process", "pipe") else 1,
        start_method=method,
        on_fault=on_fault,
        fault_budget=20,
    )
    options.setdefault("episodes_per_trial", 2)
    return ParallelEnvManager(family, NUM_SLOTS, num_workers=workers, backend=config, **options)


def hash_of(
    family: TaskFamily, *setting: Any, seed: int = 0, tamper: Tamper | None = None, **options: Any
) -> str:
    """The stream hash of more trials than slots."""
    with manage(family, *setting, **options) as manager:
        return stream_hash(manager, NUM_TRIALS, seed=seed, tamper=tamper)


@pytest.fixture(scope="module")
def reference() -> str:
    return hash_of(CountingFamily())


@pytest.mark.parametrize(("name", "workers", "method"), SETTINGS)
def test_every_backend_gives_the_rows_of_serial(
    name: str, workers: int, method: StartMethod, reference: str
) -> None:
    assert hash_of(CountingFamily(), name, workers, method) == reference


@pytest.mark.parametrize(("name", "workers"), ONE_EACH)
def test_dict_observations_with_task_and_flag_are_the_rows_of_serial(name: str, workers: int) -> None:
    options = {"oracle": True, "episodes_per_trial": 3}
    assert hash_of(DictCountingFamily(), name, workers, **options) == hash_of(DictCountingFamily(), **options)


@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize(("name", "workers"), ONE_EACH)
def test_every_backend_gives_the_rows_of_serial_in_groups_too(name: str, workers: int, groups: int) -> None:
    assert hash_of(CountingFamily(), name, workers, num_groups=groups) == hash_of(
        CountingFamily(), num_groups=groups
    )


@pytest.mark.parametrize("family_name", PLAYABLE)
@pytest.mark.parametrize(("name", "workers"), [setting for setting in ONE_EACH if setting[0] != "serial"])
def test_every_family_gives_the_same_rows_on_every_backend(family_name: str, name: str, workers: int) -> None:
    family = FAMILIES[family_name](FAMILIES[family_name].Config(family=family_name))
    options: dict[str, Any] = {"max_episode_steps": 25}
    assert hash_of(family, name, workers, **options) == hash_of(family, **options)


@pytest.mark.parametrize(("name", "workers"), ONE_EACH)
def test_delays_change_nothing(name: str, workers: int, reference: str) -> None:
    assert hash_of(DelayedFamily(), name, workers) == reference


ON_ONE_CORE = """
import os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from tests.envs.backends.test_backends import CountingFamily, hash_of
if __name__ == "__main__":
    print(hash_of(CountingFamily(), sys.argv[1], int(sys.argv[2])))
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system ties no process to a core")
@pytest.mark.parametrize(("name", "workers"), [setting for setting in ONE_EACH if setting[0] != "serial"])
def test_one_core_and_another_hash_seed_change_nothing(
    name: str, workers: int, reference: str, tmp_path: Path
) -> None:
    script = tmp_path / "on_one_core.py"
    script.write_text(ON_ONE_CORE)
    environment = os.environ | {"PYTHONPATH": os.getcwd(), "PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, script, name, str(workers)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == reference


@pytest.mark.parametrize("name", ["process", "pipe"])
@pytest.mark.parametrize("groups", [1, 2])
def test_workers_killed_on_the_way_change_nothing(name: str, groups: int) -> None:
    deaths = {(2, 3): 0, (5, 1): 1, (9, 4): 0, (9, 5): 2, (14, 2): 1}
    killed = []

    def kill(trial: int, row: int, rows: Rows, action: NDArray[np.float32]) -> None:
        if (trial, row) in deaths:
            killed.append(manager.pids[deaths[trial, row]])
            os.kill(killed[-1], signal.SIGKILL)

    with manage(CountingFamily(), name, 3, on_fault=OnFault.restart, num_groups=groups) as manager:
        found = stream_hash(manager, NUM_TRIALS, tamper=kill)
        assert not set(killed) & set(manager.pids)
    assert len(set(killed)) == len(deaths) and found == hash_of(CountingFamily(), num_groups=groups)


def test_the_trials_of_the_reference_are_staggered() -> None:
    with manage(CountingFamily()) as manager:
        lengths = [len(stream) for stream in trial_streams(manager, NUM_TRIALS)]
    assert len(set(lengths)) > 4, "equal streams of equal lengths would prove little"


def changed_reward(trial: int, row: int, rows: Rows, action: NDArray[np.float32]) -> None:
    if (trial, row) == (5, 3):
        rows.reward[:] = np.nextafter(rows.reward, np.inf)


def changed_action(trial: int, row: int, rows: Rows, action: NDArray[np.float32]) -> None:
    if (trial, row) == (5, 3):
        action[0] = np.nextafter(action[0], np.float32(2))


@pytest.mark.parametrize("tamper", [changed_reward, changed_action])
def test_one_changed_number_changes_the_hash(tamper: Tamper, reference: str) -> None:
    assert hash_of(CountingFamily(), tamper=tamper) != reference


def test_another_seed_changes_the_hash(reference: str) -> None:
    assert hash_of(CountingFamily(), seed=1) != reference


@pytest.mark.parametrize(("name", "workers", "method"), SETTINGS)
def test_every_row_is_what_its_coordinates_say(name: str, workers: int, method: StartMethod) -> None:
    family = CountingFamily(CountingConfig(max_episode_steps=5))
    rng = np.random.default_rng(0)
    tasks, seeds = family.sample_tasks(rng, NUM_SLOTS, "train"), list(range(100, 100 + NUM_SLOTS))
    with manage(family, name, workers, method, episodes_per_trial=1) as manager:
        own = episode_seeds(np.array(seeds, np.uint64), np.zeros(NUM_SLOTS, np.int64))
        noise, fall = noise_of(own), fall_step(tasks, own, 5)
        rows = manager.reset(tasks, seeds)
        position, actions = np.zeros(NUM_SLOTS), np.zeros((NUM_SLOTS, ACTION_DIM), np.float32)
        for t in range(6):
            alive = [slot for slot in range(NUM_SLOTS) if t <= min(5, fall[slot])]
            assert np.flatnonzero(rows.valid).tolist() == alive
            assert isinstance(rows.obs, np.ndarray)
            for slot in alive:
                np.testing.assert_array_equal(
                    rows.obs[slot], obs_of(tasks[slot], noise[slot], t, position[slot])
                )
                assert rows.info[slot, 0] == t
                assert rows.reward[slot] == (reward_of(tasks[slot], t, actions[slot]) if t else 0.0)
                assert bool(rows.terminated[slot]) == (t == fall[slot])
                assert bool(rows.truncated[slot]) == (t == 5 and fall[slot] != 5)
            actions = rng.uniform(-1, 1, (NUM_SLOTS, ACTION_DIM)).astype(np.float32)
            position += actions[:, 0]
            rows = manager.step(actions)


@pytest.mark.parametrize(("name", "workers"), ONE_EACH)
def test_slots_of_several_factories_keep_their_own_family(name: str, workers: int) -> None:
    short, long = CountingFamily(CountingConfig(falls=False)), CountingFamily(CountingConfig(falls=True))
    factories = [lambda: short, lambda: long]
    chosen = [factories[i] for i in (0, 0, 1, 0, 1, 1, 0)]
    with ParallelEnvManager(chosen, num_workers=workers, backend=BackendConfig(name=name)) as manager:
        assert manager.rows.label.tolist() == [0, 0, 1, 0, 1, 1, 0]
        manager.reset(np.full((7, 2), 0.25), [3] * 7)
        while manager.running.any():
            manager.step(np.zeros((7, ACTION_DIM), np.float32))
        assert manager.rows.truncated.tolist() == [True, True, False, True, False, False, True]


@pytest.mark.parametrize(("name", "workers"), ONE_EACH)
def test_remotes_talk_to_their_slots_independently(name: str, workers: int) -> None:
    with manage(CountingFamily(CountingConfig(falls=False)), name, workers) as manager:
        task = np.array([0.5, 0.25])
        for slot in (4, 0, 5, 1):
            manager.remotes[slot].send(("reset", {"task": task + slot, "seed": slot}))
        for slot in (1, 5):
            obs, reward, _, _, info = manager.remotes[slot].recv()
            assert (obs[:2].tolist(), reward, info["trial_start"]) == ((task + slot).tolist(), 0.0, True)
        manager.remotes[5].send(("step", np.array([0.5, 0.125])))
        manager.remotes[1].send(("step", np.array([0.25, 0.125])))
        assert manager.remotes[4].recv()[0][:2].tolist() == (task + 4).tolist()
        assert manager.remotes[1].recv()[1] == reward_of(task + 1, 1, np.array([0, 0.125]))
        assert manager.remotes[5].recv()[0][3:5].tolist() == [1.0, 0.5]
        assert manager.remotes[0].recv()[4]["t"] == 0.0


@pytest.mark.parametrize(("name", "workers"), ONE_EACH)
def test_render_draws_the_slot_asked_for(name: str, workers: int) -> None:
    with manage(CountingFamily(CountingConfig(falls=False)), name, workers) as manager:
        manager.reset()
        manager.step(np.zeros((NUM_SLOTS, ACTION_DIM), np.float32))
        manager.reset(slots=[5])
        np.testing.assert_array_equal(manager.render(4), np.full((4, 6, 3), 1, np.uint8))
        np.testing.assert_array_equal(manager.render(5), np.full((4, 6, 3), 0, np.uint8))


@pytest.mark.parametrize(("name", "workers", "method"), SETTINGS)
def test_an_error_names_slot_task_seed_step_and_traceback_and_closes(
    name: str, workers: int, method: StartMethod
) -> None:
    family = FaultyFamily(fault="slot_error", at=3, task_above=5.0)
    manager = manage(family, name, workers, method)
    tasks = np.full((NUM_SLOTS, 2), 0.5)
    tasks[4, 0] = 7.5
    manager.reset(tasks, list(range(50, 50 + NUM_SLOTS)))
    with pytest.raises(WorkerError) as caught:
        for _ in range(5):
            manager.step(np.zeros((NUM_SLOTS, ACTION_DIM), np.float32))
    text = str(caught.value)
    assert (
        "slot 4 (task [7.5, 0.5], trial seed 54, step 2 of episode 0) raised SlotError: the toy is broken"
        in text
    )
    assert "slot 3" not in text
    assert "in go_wrong" in text and 'raise ValueError("the toy is broken")' in text, "the original traceback"
    assert manager.pids == []
    with pytest.raises(RuntimeError, match="closed"):
        manager.step(np.zeros((NUM_SLOTS, ACTION_DIM), np.float32))


@pytest.mark.parametrize(("name", "workers"), ONE_EACH)
def test_min_ready_returns_some_slots_and_the_rest_later(name: str, workers: int) -> None:
    family = CountingFamily()
    layout = Layout(family.spec)
    backend: Backend = BACKENDS[name](
        [Block(lambda: family, 0, NUM_SLOTS)], layout, num_workers=workers, config=BackendConfig()
    )
    try:
        commands = Commands.empty(backend.rows)
        commands.reset[:] = True
        commands.task[:] = np.arange(NUM_SLOTS)[:, None]
        slots = np.arange(NUM_SLOTS)
        backend.post(slots, commands)
        first, faults = backend.wait(slots, 60.0, min_ready=1)
        assert len(first) >= 1 and not faults
        rest = np.setdiff1d(slots, first)
        if len(rest):
            assert backend.wait(rest, 60.0)[0].tolist() == rest.tolist()
        assert isinstance(backend.rows.obs, np.ndarray)
        assert backend.rows.obs[:, 0].tolist() == slots.tolist()
    finally:
        backend.close()


@pytest.mark.parametrize("fault", ["raise", "sys_exit"])
@pytest.mark.parametrize(("name", "workers"), ONE_EACH)
def test_what_cannot_be_built_is_one_error_that_names_the_slots(name: str, workers: int, fault: str) -> None:
    said = (
        "raised ValueError: the toy is broken"
        if fault == "raise"
        else "(raised SystemExit: 4|was lost: its worker process exited with code 4)"
    )
    with pytest.raises(
        BackendError, match=rf"slots 0 to 8\)? could not (be built|build (its|their) environments): {said}"
    ):
        manage(FaultyFamily(fault=fault, where="make_shard"), name, workers)


@pytest.mark.parametrize("fault", ["raise", "sys_exit"])
@pytest.mark.parametrize(("name", "workers"), ONE_EACH)
def test_a_picture_that_cannot_be_drawn_is_an_error_that_names_the_slot(
    name: str, workers: int, fault: str
) -> None:
    lost = fault == "sys_exit" and BACKENDS[name].has_processes
    reason = "raised SystemExit: 4" if fault == "sys_exit" else "raised ValueError"
    if lost:
        reason = "was lost: its worker process exited with code 4"
    with manage(
        FaultyFamily(fault=fault, where="render"), name, workers, on_fault=OnFault.restart
    ) as manager:
        manager.reset()
        for _ in range(2):
            with pytest.raises(
                RuntimeError, match=f"The picture of slot 4 could not be drawn: the environment {reason}"
            ) as caught:
                manager.render(4)
            assert ("built anew at the next step or reset" in str(caught.value)) == lost
        assert (
            manager.step(np.zeros((NUM_SLOTS, ACTION_DIM), np.float32)).info[:, 0].tolist()
            == [1.0] * NUM_SLOTS
        )


@pytest.mark.parametrize(
    ("name", "workers"), [setting for setting in ONE_EACH if not BACKENDS[setting[0]].has_processes]
)
def test_an_environment_that_exits_when_it_is_closed_is_a_warning(
    name: str, workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    with manage(FaultyFamily(fault="sys_exit", where="close"), name, workers) as manager:
        manager.reset()
    told = [record for record in caplog.records if "failed to close" in record.message]
    assert len(told) == (NUM_SLOTS if name == "asyncio" else workers) and "SystemExit: 4" in caplog.text


def test_slots_are_split_evenly_and_blocks_are_cut_at_the_edges() -> None:
    assert split_evenly(7, 3) == [(0, 2), (2, 4), (4, 7)]
    first, second = (lambda: CountingFamily()), (lambda: CountingFamily())
    blocks = [Block(first, 0, 3), Block(second, 3, 7)]
    assert cut_blocks(blocks, 2, 4) == [Block(first, 2, 3), Block(second, 3, 4)]
    assert cut_blocks(blocks, 4, 7) == [Block(second, 4, 7)]


def test_every_worker_has_a_part_of_every_group() -> None:
    first, second = (lambda: CountingFamily()), (lambda: CountingFamily())
    segments = segments_of([Block(first, 0, 3), Block(second, 3, 10)], 2, 2)
    assert [(one.worker, one.group, one.start, one.stop) for one in segments] == [
        (0, 0, 0, 2),
        (1, 0, 2, 5),
        (0, 1, 5, 7),
        (1, 1, 7, 10),
    ]
    assert segments[1].blocks == (Block(first, 2, 3), Block(second, 3, 5))
