"""ActorPool: what runs the actors of a run, and replaces those that are lost."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from envs.parallel_env_manager import WorkerError
from policies.collection.remote.actor import PlayedWave, WaveOrder
from policies.run.config import Config

# How often a wave is begun on a fresh actor before the run gives up.
ATTEMPTS = 3
# The time between two looks at whether the run is to stop.
WAIT_S = 0.1

_log = logging.getLogger(__name__)


class ActorPool(ABC):
    """Runs the collecting actors of a run, wherever they are."""

    def __init__(self, config: Config) -> None:
        self.config, self.actors = config, config.collector.actors
        # Actors that were lost and made anew.
        self.restarts = 0

    @abstractmethod
    def play(self, orders: Sequence[WaveOrder], stops: Callable[[], bool]) -> list[PlayedWave]:
        """The waves of these orders, one for each actor, in the order of the actors.

        Where `stops` returns True all of them are forgotten, and `WaveInterrupted` is raised.
        """

    @abstractmethod
    def close(self) -> None:
        """End all actors; may be called twice. One that is needed again is made anew."""

    def lose(self, actor: int, attempt: int, why: str) -> None:
        """Count an actor that was lost; an error where its wave has failed too often."""
        self.restarts += 1
        if attempt + 1 >= ATTEMPTS:
            raise WorkerError(f"Actor {actor} was lost {ATTEMPTS} times in one wave, last by {why}.")
        _log.warning("Actor %d was lost (%s): a fresh one plays its wave again.", actor, why)
