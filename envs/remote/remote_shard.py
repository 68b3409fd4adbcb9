"""RemoteShard: slots whose environments are sessions on OpenEnv servers."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.async_shard import AsyncShard
from envs.base import Obs, SlotError, paired_arrays
from envs.remote.actions import ActionRefusedError
from envs.remote.observations import FieldError
from envs.remote.protocol import Answer, SessionLostError, shown_url
from envs.remote.service_setup import ServiceSetup, SessionUse
from envs.remote.session import Session
from utils.seeding import follows

_log = logging.getLogger(__name__)

# Servers keep seeds in a signed int.
SEEDS = 2**31


class RemoteShard(AsyncShard):
    """Slots that are sessions; slot i of the manager is played on server i mod k.

    A step is never sent twice: what a session says of its end becomes the error of this slot, and recovery
    re-runs the trial from its key in a new session.
    """

    def __init__(self, num_slots: int, setup: ServiceSetup) -> None:
        self._setup = setup
        self._sessions: list[Session | None] = [None] * num_slots
        # The seed of the episode that each slot has played last.
        self._seeds: list[int | None] = [None] * num_slots
        self._reward_was_missing = False

    async def reset_slot(self, slot: int, task: NDArray[np.float64], seed: int) -> None:
        """Start an episode; a slot without a session opens one here, and only here."""
        session = self._sessions[slot]
        before, self._seeds[slot] = self._seeds[slot], seed
        if session is not None and self._asks_for_another(before, seed):
            await session.close()
        answer = await self._reset(slot, self._setup.tasks.reset_arguments(task, seed % SEEDS))
        if answer.done:
            raise SlotError(slot, "the reset answered with an episode that is over already")
        self._store(slot, self._read(slot, answer))

    def _asks_for_another(self, before: int | None, seed: int) -> bool:
        """Whether an episode with this seed is not played in the session of the one before."""
        if self._setup.session is SessionUse.per_trial:
            # A shard is not told where a trial begins, but the seeds of its episodes follow from each other.
            return before is None or not follows(seed, before)
        return self._setup.session is SessionUse.per_episode

    async def _reset(self, slot: int, arguments: dict[str, Any]) -> Answer:
        """Reset on the server of this slot; with failover, on the next ones where it does not answer."""
        setup, current = self._setup, self._sessions[slot]
        turns = len(setup.urls) if setup.failover else 1
        first = self.first_slot + slot
        for turn in range(turns):
            if current is None:
                current = session_of(setup, setup.url_of(first, turn), turns)
            self._sessions[slot] = current
            try:
                return await current.reset(arguments)
            except SessionLostError as error:
                if turn == turns - 1:
                    raise
                _log.warning("%s; slot %d moves to another server.", error, first)
                current = None
        raise AssertionError("there is at least one turn")

    async def step_slot(self, slot: int, action: Any) -> None:
        """Step the slot; everything is checked before anything is stored."""
        try:
            fields = self._setup.writer.write(action)
        except ActionRefusedError as error:
            raise SlotError(slot, str(error)) from None
        session = self._sessions[slot]
        if session is None:
            raise SlotError(slot, "there is no session: a reset opens one")
        answer = await session.step(fields)
        obs, reward = self._read(slot, answer), self._reward_of(slot, answer)
        self._store(slot, obs)
        self.rows.reward[slot] = reward
        self.rows.terminated[slot] = answer.done and not answer.truncated
        self.rows.truncated[slot] = answer.truncated

    async def close_slot(self, slot: int) -> None:
        """Give the seat back."""
        session, self._sessions[slot] = self._sessions[slot], None
        if session is not None:
            await session.close()

    def _read(self, slot: int, answer: Answer) -> Obs:
        try:
            return self._setup.reader.read(answer.observation)
        except FieldError as error:
            raise SlotError(slot, str(error)) from None

    def _store(self, slot: int, obs: Obs) -> None:
        for stored, array in paired_arrays(self.rows.obs, obs):
            stored[slot] = array

    def _reward_of(self, slot: int, answer: Answer) -> float:
        if answer.reward is not None:
            return answer.reward
        if self._setup.raise_for_missing_reward:
            raise SlotError(slot, "the step has no reward (missing_reward=zero takes it as 0)")
        if not self._reward_was_missing:
            self._reward_was_missing = True
            server = shown_url(self._setup.url_of(self.first_slot + slot))
            _log.warning("%s gives no reward for a step, which counts as 0. (This is told once.)", server)
        return 0.0


def session_of(setup: ServiceSetup, url: str, turns: int = 1) -> Session:
    """A new session, whose patience is divided among so many turns."""
    patience = replace(setup.patience, total_s=setup.patience.total_s / turns)
    return Session(url, patience, setup.limits, setup.headers)
