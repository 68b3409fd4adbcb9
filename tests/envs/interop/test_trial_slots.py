"""TrialSlots: each slot plays the trials of its own generator, whatever the others do."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.error import ResetNeeded

from envs.interop.trial_slots import TrialSlots
from envs.parallel_env_manager import ParallelEnvManager
from tests.toys import CountingConfig, CountingFamily

ACTIONS = np.zeros((2, 2))


def slots_of() -> TrialSlots:
    family = CountingFamily(CountingConfig(max_episode_steps=2, falls=False))
    slots = TrialSlots(ParallelEnvManager(family, 2, episodes_per_trial=1))
    slots.seed(0, 5)
    slots.seed(1, 6)
    return slots


def test_a_slot_draws_its_trials_whatever_the_other_is_told() -> None:
    one, other = slots_of(), slots_of()
    one.start([0, 1])
    other.start([1, 0], tasks={1: [0.5, 0.5]})
    tasks = []
    for slots in (one, other):
        played = [slots.manager.rows.task[0].tolist()]
        for _ in range(6):
            slots.step(ACTIONS)
            played.append(slots.manager.rows.task[0].tolist())
        tasks.append(played)
        slots.manager.close()
    assert tasks[0] == tasks[1] and len(np.unique(tasks[0], axis=0)) == 3, "a new task for each trial"


def test_a_slot_must_be_started_before_it_is_stepped() -> None:
    slots = slots_of()
    slots.start([0])
    with pytest.raises(ResetNeeded, match="Slot 1 was never started"):
        slots.step(ACTIONS)
    assert not slots.ended.any(), "a slot that never began is not over"
    slots.start([1])
    slots.step(ACTIONS)
    slots.step(ACTIONS)
    terminated, truncated = slots.ends()
    assert slots.ended.tolist() == [False, True] or slots.ended.all()
    assert (terminated | truncated).tolist() == slots.ended.tolist()
    slots.manager.close()
