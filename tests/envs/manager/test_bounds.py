"""Finite observations outside of the declared Box: told once with their place, refused, or let be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from envs.backends.base import BackendConfig, OutOfBounds
from envs.base import EnvSpec
from envs.manager import bounds
from envs.parallel_env_manager import ParallelEnvManager, WorkerError
from tests.toys import OBS_DIM, CountingConfig, CountingFamily, DictCountingFamily

STILL = np.zeros((4, 2), np.float32)


class NarrowFamily(CountingFamily):
    """Declares that its counter, the fourth number, stays below a limit that it does not keep."""

    def __init__(self, limit: float, low: float = -np.inf) -> None:
        super().__init__(CountingConfig(falls=False, max_episode_steps=40))
        high = np.full(OBS_DIM, np.inf, np.float32)
        high[3] = limit
        box = spaces.Box(np.full(OBS_DIM, low, np.float32), high, dtype=np.float32)
        self.spec = EnvSpec("Narrow", box, self.spec.action_space, self.spec.task_dim, info_names=("t",))


def play(family: Any, steps: int, mode: OutOfBounds = OutOfBounds.note, num_envs: int | None = 4) -> None:
    config = BackendConfig(name="serial", out_of_bounds=mode)
    with ParallelEnvManager(family, num_envs, seed=0, backend=config) as manager:
        manager.reset(np.full((4, 2), 0.5), [1, 2, 3, 4])
        for _ in range(steps):
            manager.step(STILL)


def test_it_is_told_once_with_slot_task_seed_step_and_number(caplog: pytest.LogCaptureFixture) -> None:
    play(NarrowFamily(limit=4.0), 20)
    (note,) = caplog.records
    assert "The environment Narrow leaves the observation space that it declares: slot 0 (" in note.message
    assert "(task [0.5, 0.5], trial seed 1, step 4 of episode 0) showed obs[3] = 5 (from -inf to 4)." in (
        note.message
    )


def test_a_start_row_is_always_looked_at(caplog: pytest.LogCaptureFixture) -> None:
    play(NarrowFamily(limit=4.0, low=0.75), 0)
    (note,) = caplog.records
    assert "reset of episode 0) showed obs[0] = 0.5 (from 0.75 to inf), obs[1] = " in note.message
    assert note.message.count("obs[") == 3 and " more numbers." in note.message


def test_each_factory_is_told_of_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    factories = [lambda: NarrowFamily(limit=4.0), lambda: NarrowFamily(limit=4.0)]
    play([factories[0], factories[0], factories[1], factories[1]], 20, num_envs=None)
    assert [note.message.split("slot ")[1][0] for note in caplog.records] == ["0", "2"]


def test_refuse_stops_at_the_first_row_and_names_it() -> None:
    with pytest.raises(WorkerError, match=r"step 4 of episode 0\) showed obs\[3\] = 5 \(from -inf to 4\); "):
        play(NarrowFamily(limit=4.0), 6, OutOfBounds.refuse)


@pytest.mark.parametrize(
    ("family", "mode"),
    [
        (NarrowFamily(limit=100.0), OutOfBounds.note),
        (NarrowFamily(limit=100.0), OutOfBounds.refuse),
        (NarrowFamily(limit=4.0), OutOfBounds.ignore),
    ],
)
def test_nothing_is_told_of_rows_inside_or_by_request(
    family: CountingFamily, mode: OutOfBounds, caplog: pytest.LogCaptureFixture
) -> None:
    play(family, 20, mode)
    assert not caplog.records


def test_a_part_of_a_dict_is_called_by_its_name(caplog: pytest.LogCaptureFixture) -> None:
    family = DictCountingFamily()
    parts = dict(family.spec.obs_space.spaces)  # pyright: ignore[reportAttributeAccessIssue]
    parts["where"] = spaces.Box(-1.0, 0.25, parts["where"].shape, np.float32)
    family.spec = EnvSpec(
        "Narrow", spaces.Dict(parts), family.spec.action_space, family.spec.task_dim, ("t",)
    )
    play(family, 0)
    assert "showed obs['where'][0] = 0.5 (from -1 to 0.25)" in caplog.records[0].message


@pytest.mark.parametrize(
    ("box", "checked"),
    [
        (spaces.Box(0, 255, (3,), np.uint8), False),
        (spaces.Box(0, 254, (3,), np.uint8), True),
        (spaces.Box(-np.inf, np.inf, (3,), np.float32), False),
        (spaces.Box(0.0, 1.0, (3,), np.float64), True),
    ],
)
def test_what_a_type_cannot_leave_is_not_looked_at(box: spaces.Box, checked: bool) -> None:
    assert bounds._holds_every_value(box) is not checked
