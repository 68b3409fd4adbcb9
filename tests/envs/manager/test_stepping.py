"""Stepping: what is refused leaves everything as it was, one thread at a time, and groups take turns."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from gymnasium import spaces
from numpy.typing import NDArray

from envs.backends.base import BackendConfig
from envs.base import EnvConfig, EnvSpec, Shard, TaskFamily
from envs.parallel_env_manager import ParallelEnvManager, Start
from tests.toys import ACTION_DIM, CountingConfig, CountingFamily
from tests.toys_faulty import FaultyFamily

NUM_SLOTS = 4
STILL = np.zeros((NUM_SLOTS, ACTION_DIM), np.float32)


def manage(**options: Any) -> ParallelEnvManager:
    """Four slots that never fall."""
    family = options.pop("family", CountingFamily(CountingConfig(falls=False)))
    return ParallelEnvManager(family, NUM_SLOTS, episodes_per_trial=2, **options)


def told(manager: ParallelEnvManager) -> list[bytes]:
    """Everything that a reader of the rows sees."""
    rows = manager.rows
    assert isinstance(rows.obs, np.ndarray)
    arrays = (
        rows.obs,
        rows.reward,
        rows.terminated,
        rows.truncated,
        rows.valid,
        rows.task,
        rows.prev_action,
        manager.episode,
        manager.running,
    )
    return [array.tobytes() for array in arrays]


def starts_of(slot: Any, seed: Any) -> dict[int, Start]:
    """Starts of any type, to see wrong ones refused."""
    return {slot: Start(np.zeros(2), seed)}


WRONG: dict[str, tuple[Callable[[ParallelEnvManager], object], str]] = {
    "too few actions": (
        lambda manager: manager.step(STILL[:3]),
        r"shape \(4, 2\), one per slot; it got \(3, 2\)",
    ),
    "wrong action shape": (
        lambda manager: manager.step(STILL[:, :1]),
        r"shape \(4, 2\), one per slot; it got \(4, 1\)",
    ),
    "action out of range": (
        lambda manager: manager.step(STILL + np.array([[0], [0], [2], [0]])),
        r"The action of slot 2 is not in .*: \[2.0, 2.0\]",
    ),
    "action that is no number": (
        lambda manager: manager.step(STILL * np.nan),
        "The action of slot 0 is not in",
    ),
    "one action of a wrong shape": (
        lambda manager: manager.remotes[1].send(("step", np.zeros(3))),
        r"An action has shape \(2,\); got \(3,\)",
    ),
    "one action out of range": (
        lambda manager: manager.remotes[1].send(("step", [0.0, -1.5])),
        "The action is not in",
    ),
    "unknown slot": (lambda manager: manager.reset(slots=[4]), "different numbers from 0 to 3"),
    "unknown slot to start": (
        lambda manager: manager.step(STILL, {7: Start(np.zeros(2), 1)}),
        "different numbers from 0 to 3",
    ),
    "unknown slot to draw": (lambda manager: manager.render(-1), "There is no slot -1"),
    "task of a wrong size": (lambda manager: manager.reset(tasks=np.zeros((4, 3))), "vector of 2 numbers"),
    "task of a wrong size in a start": (
        lambda manager: manager.step(STILL, {0: Start(np.zeros(1), 1)}),
        "vector of 2 numbers",
    ),
    **{
        f"actions that are {name}": (
            lambda manager, wrong=wrong: manager.step(wrong),
            f"An action is made of real numbers, not of {said}",
        )
        for name, wrong, said in cast(
            "list[tuple[str, Any, str]]",
            [
                ("complex", STILL + 0.1j, "complex"),
                ("strings", STILL.astype(str), "<U"),
                ("objects", np.full(STILL.shape, None), "object"),
                ("truth values", STILL > 0, "bool"),
                ("None", None, "None"),
                ("ragged", [[0.0, 0.0], [0.0]], "rows of different lengths"),
            ],
        )
    },
    "one action that is None": (
        lambda manager: manager.remotes[0].send(("step", None)),
        "made of real numbers, not of None",
    ),
    "no slots": (lambda manager: manager.reset(slots=[]), "reset got no slots"),
    "slot that is a fraction": (
        lambda manager: manager.reset(slots=[0.7]),  # pyright: ignore[reportArgumentType]
        "A slot is a whole number, not 0.7",
    ),
    "mask of slots": (
        lambda manager: manager.reset(slots=[True, False, False, True]),
        "A slot is a whole number, not True",
    ),
    "mask of slots as an array": (
        lambda manager: manager.reset(slots=np.arange(4) > 2),  # pyright: ignore[reportArgumentType]
        "A slot is a whole number, not .*False",
    ),
    "a slot alone": (
        lambda manager: manager.reset(slots=2),  # pyright: ignore[reportArgumentType]
        "slots=2 must be a sequence",
    ),
    "slot to start that is a fraction": (
        lambda manager: manager.step(STILL, starts_of(0.7, seed=1)),
        "A slot is a whole number",
    ),
    "slot to draw that is a fraction": (
        lambda manager: manager.render(0.5),  # pyright: ignore[reportArgumentType]
        "A slot is a whole number, not 0.5",
    ),
    "unknown slot to ask about": (lambda manager: manager.info_of(9), "There is no slot 9; there are 0 to 3"),
    "seed that is a fraction": (
        lambda manager: manager.reset(seeds=[0.5, 1, 2, 3]),  # pyright: ignore[reportArgumentType]
        "The seed of a trial is a whole number, not 0.5",
    ),
    "seed that is a truth value": (
        lambda manager: manager.reset(seeds=[True, 1, 2, 3]),
        "The seed of a trial is a whole number, not True",
    ),
    "seed beyond 64 bits": (lambda manager: manager.reset(seeds=[2**64, 1, 2, 3]), "needs a seed from 0 to"),
    "a seed alone": (
        lambda manager: manager.reset(seeds=1),  # pyright: ignore[reportArgumentType]
        "seeds=1 must be a sequence",
    ),
    "a task alone": (lambda manager: manager.reset(tasks=3.0), "tasks=3.0 must be a sequence"),
    "tasks that are words": (
        lambda manager: manager.reset(tasks=[["a", "b"]] * 4),
        "A task of Counting is made of real numbers, not of <U1",
    ),  # pyright: ignore[reportArgumentType]
    "start that is none": (
        lambda manager: manager.step(STILL, {0: 3}),  # pyright: ignore[reportArgumentType]
        r"begins with a Start\(task, seed\), not with 3",
    ),
    "start with a seed that is a fraction": (
        lambda manager: manager.step(STILL, starts_of(0, seed=0.5)),
        "whole number, not 0.5",
    ),
    "command that is no pair": (
        lambda manager: manager.remotes[0].send("reset"),  # pyright: ignore[reportArgumentType]
        "A command is a pair, .* not 'reset'",
    ),
    "command without payload": (
        lambda manager: manager.remotes[0].send(("step",)),  # pyright: ignore[reportArgumentType]
        "A command is a pair",
    ),
    "reset with a number": (
        lambda manager: manager.remotes[0].send(("reset", 5)),
        "A reset takes a dict with 'task' and 'seed', .* not 5",
    ),
    "reset with a seed that is a fraction": (
        lambda manager: manager.remotes[0].send(("reset", {"seed": 0.5})),
        "whole number, not 0.5",
    ),
    "unknown command": (lambda manager: manager.remotes[0].send(("jump", None)), "knows 'reset' and 'step'"),
    "nothing to answer": (lambda manager: manager.remotes[0].recv(), "were sent nothing to answer"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_wrong_call_is_a_clear_error_and_changes_nothing(mistake: str) -> None:
    call, sentence = WRONG[mistake]
    with manage(seed=0) as manager:
        manager.reset()
        manager.step(STILL)
        before = told(manager)
        with pytest.raises((ValueError, RuntimeError), match=sentence):
            call(manager)
        assert told(manager) == before
        assert manager.step(STILL).info[:, 0].tolist() == [2.0] * NUM_SLOTS


def test_a_step_before_any_reset_is_an_error() -> None:
    with (
        manage() as manager,
        pytest.raises(RuntimeError, match=r"No trial has begun: reset\(\) comes before step\(\)"),
    ):
        manager.step(STILL)


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.reset(),
        lambda m: m.step(STILL),
        lambda m: m.render(0),
        lambda m: m.remotes[0].send(("reset", {})),
    ],
)
def test_after_close_every_call_says_so(call: Callable[[ParallelEnvManager], object]) -> None:
    manager = manage()
    manager.reset()
    manager.close()
    with pytest.raises(RuntimeError, match="The manager is closed"):
        call(manager)


class GatedShard(Shard):
    """Steps when it is let."""

    def __init__(self, entered: threading.Event, gate: threading.Event) -> None:
        self._entered, self._gate = entered, gate

    def reset(
        self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]
    ) -> None: ...

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        self._entered.set()
        assert self._gate.wait(30)
        self.rows.reward[slots] = 1.0


class GatedFamily(TaskFamily):
    """One whose step a test can hold."""

    def __init__(self) -> None:
        super().__init__(EnvConfig())
        self.entered, self.gate = threading.Event(), threading.Event()
        box = spaces.Box(-1.0, 1.0, (ACTION_DIM,), np.float32)
        self.spec = EnvSpec("Gated", box, box, 1)

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        return rng.uniform(size=(n, 1))

    def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
        return GatedShard(self.entered, self.gate)


def test_a_second_thread_is_refused_and_the_first_goes_on() -> None:
    family = GatedFamily()
    with manage(family=family) as manager:
        manager.reset()
        first = threading.Thread(target=manager.step, args=(STILL,))
        first.start()
        assert family.entered.wait(30)
        for call in (lambda: manager.step(STILL), lambda: manager.reset(), lambda: manager.render(0)):
            with pytest.raises(RuntimeError, match="one thread at a time"):
                call()
        family.gate.set()
        first.join()
        assert manager.rows.reward.tolist() == [1.0] * NUM_SLOTS


@pytest.mark.parametrize(
    ("name", "min_ready"), [("process", None), ("process", 1), ("pipe", None), ("thread", None)]
)
def test_closing_ends_the_wait_of_another_thread(
    name: str, min_ready: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environments hang: processes are not waited for until the deadline, a thread is."""
    family = FaultyFamily(fault="sleep", where="reset", task_above=5.0) if name != "thread" else GatedFamily()
    config = BackendConfig(
        name=name, min_ready=min_ready, close_timeout_s=0.3, call_timeout_s=0.6 if name == "thread" else 60.0
    )
    manager, waiting, told = (
        manage(family=family, num_workers=2, backend=config),
        threading.Event(),
        list[BaseException](),
    )
    wait = manager._backend.wait

    def waits(*arguments: Any) -> Any:
        waiting.set()
        return wait(*arguments)

    def run() -> None:
        try:
            manager.groups[0].wait() if min_ready else manager.abandon()
        except BaseException as error:  # noqa: BLE001 - whatever it is
            told.append(error)

    if isinstance(family, GatedFamily):
        manager.reset()
        manager.groups[0].post(STILL, {})
    else:
        manager.groups[0].post(STILL, {slot: Start(np.full(2, 9.0), 1) for slot in range(NUM_SLOTS)})
    monkeypatch.setattr(manager._backend, "wait", waits)
    thread = threading.Thread(target=run)
    thread.start()
    assert waiting.wait(30)
    manager.close()
    thread.join()
    if isinstance(family, GatedFamily):
        family.gate.set()
    assert [(type(error), str(error)) for error in told] == [(RuntimeError, "The manager is closed.")]


class TurnLock:
    """The lock of a stepper, which opens a gate for the thread that has it when another one asks for it."""

    def __init__(self, lock: Any, gate: threading.Event) -> None:
        self._lock, self._gate, self.release = lock, gate, lock.release

    def acquire(self, timeout: float) -> bool:
        self._gate.set()
        return self._lock.acquire(timeout=timeout)


def test_closing_lets_another_thread_finish_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    family, told = GatedFamily(), list[Any]()
    manager = manage(family=family, backend=BackendConfig(name="serial", close_timeout_s=30.0))
    manager.reset()
    first = threading.Thread(target=manager.step, args=(STILL,))
    first.start()
    assert family.entered.wait(30)
    monkeypatch.setattr(manager._stepper._turn, "_lock", TurnLock(manager._stepper._turn._lock, family.gate))
    monkeypatch.setattr(manager._backend, "close", lambda: told.append(manager.rows.reward.tolist()))
    manager.close()
    family.gate.set()
    first.join()
    assert told == [[1.0] * NUM_SLOTS]


def test_a_start_counts_slots_from_0_within_a_group_and_over_all_in_the_manager() -> None:
    with manage(num_groups=2, seed=0) as manager:
        manager.step(STILL, {3: Start(np.array([3.0, 4.0]), 9), 0: Start(np.array([1.0, 2.0]), 8)})
        assert manager.rows.valid.tolist() == [True, False, False, True]
        assert manager.rows.task[[0, 3]].tolist() == [[1.0, 2.0], [3.0, 4.0]]
        left, right = manager.groups
        right.post(STILL[:2], {0: Start(np.array([5.0, 6.0]), 7)})
        assert right.wait().task.tolist() == [[5.0, 6.0], [3.0, 4.0]]
        assert manager.rows.task[2].tolist() == [5.0, 6.0] and left.rows.task[0].tolist() == [1.0, 2.0]


def test_groups_are_posted_and_awaited_on_their_own() -> None:
    with manage(num_groups=2, seed=0) as manager:
        manager.reset()
        left, right = manager.groups
        assert (left.start, left.size, right.start, right.size) == (0, 2, 2, 2)
        left.post(STILL[:2], {})
        right.post(STILL[:2], {})
        assert left.wait().info[:, 0].tolist() == [1.0, 1.0]
        left.post(STILL[:2], {1: Start(np.array([3.0, 4.0]), 9)})
        assert left.wait().task[1].tolist() == [3.0, 4.0] and left.rows.trial_start.tolist() == [False, True]
        with pytest.raises(RuntimeError, match=r"Slots \[2, 3\] still owe an answer"):
            manager.step(STILL)
        assert right.wait().info[:, 0].tolist() == [1.0, 1.0]
        manager.step(STILL)
