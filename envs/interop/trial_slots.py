"""TrialSlots: the slots of a manager as environments of which each plays one trial after the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding
from numpy.typing import ArrayLike, NDArray

from envs.base import Obs, Rows, map_obs
from envs.parallel_env_manager import ParallelEnvManager, Start


def drawn_start(
    manager: ParallelEnvManager, rng: np.random.Generator, task: ArrayLike | None = None
) -> Start:
    """The next trial of a slot: the task first unless it is given, then the trial's seed, both from `rng`."""
    vector = manager.sample_tasks(1, rng=rng)[0] if task is None else np.asarray(task)
    return Start(vector, int(rng.integers(2**63)))


class TrialSlots:
    """What the faces of several environments share; to all of them an episode is a whole trial.

    Each slot draws its tasks and trial seeds from a generator of its own, so slot i seeded with s plays the
    trials of `make_env(...)` after `reset(seed=s)`, bit for bit, whatever the other slots do.
    """

    def __init__(self, manager: ParallelEnvManager) -> None:
        if manager.may_lag:
            raise ValueError("Each step of this face has a row of every slot: leave backend.min_ready unset.")
        self.manager = manager
        self.num_envs = manager.num_envs
        self._rngs: list[np.random.Generator | None] = [None] * manager.num_envs
        # Slots that were started once, and slots whose trial is over.
        self._begun = np.zeros(manager.num_envs, np.bool_)
        self.ended = np.zeros(manager.num_envs, np.bool_)

    def seed(self, slot: int, seed: int) -> None:
        """Seed the generator of one slot."""
        self._rngs[slot] = seeding.np_random(seed)[0]

    def start(self, slots: Iterable[int], tasks: Mapping[int, ArrayLike] | None = None) -> Rows:
        """Begin the next trial in these slots, now; `tasks` replaces what would have been drawn."""
        starts = self._starts(slots, tasks or {})
        order = list(starts)
        rows = self.manager.reset(
            [starts[slot].task for slot in order], [starts[slot].seed for slot in order], order
        )
        self._begun[order] = True
        self._arrived()
        return rows

    def step(self, actions: NDArray[Any]) -> Rows:
        """One row further in every slot; one whose trial is over begins the next, and ignores its action."""
        if not self._begun.all():
            slot = int(np.argmin(self._begun))
            raise ResetNeeded(f"Slot {slot} was never started: call reset() before step().")
        rows = self.manager.step(actions, self._starts(np.flatnonzero(self.ended).tolist(), {}))
        self._arrived()
        return rows

    def observations(self) -> Obs:
        """A copy of all slots' observations; the rows themselves are overwritten by the next step."""
        return map_obs(np.ndarray.copy, self.manager.rows.obs)

    def ends(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """[N] terminated and [N] truncated: how the trial of a slot ended with this row, if it did.

        A trial that was given up after a fault is a truncated one, since its environment did not end it.
        """
        terminated = self.ended & self.manager.rows.terminated & ~self.manager.dropped
        return terminated, self.ended & ~terminated

    def _starts(self, slots: Iterable[int], tasks: Mapping[int, ArrayLike]) -> dict[int, Start]:
        return {slot: drawn_start(self.manager, self._rng(slot), tasks.get(slot)) for slot in slots}

    def _rng(self, slot: int) -> np.random.Generator:
        rng = self._rngs[slot]
        if rng is None:
            rng = self._rngs[slot] = seeding.np_random()[0]
        return rng

    def _arrived(self) -> None:
        # A trial that was given up after a fault does not run any longer either.
        self.ended = self._begun & ~self.manager.running
