"""Collecting actors in this process, which every other host of actors must equal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from policies.collection.remote.actor import CollectingActor, PlayedWave, WaveOrder
from policies.collection.remote.pool import ActorPool
from policies.collection.wave import WaveInterrupted
from policies.run.config import CollectorConfig, Config
from tests.runs import tiny_config

# What every recipe of PPO has.
NORMALISED = {"normalise_obs": True, "normalise_reward": True}


class PoolHere(ActorPool):
    """The plain class, K times in this process, one after the other."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.orders: list[WaveOrder] = []
        self.playing: list[CollectingActor] = []

    def start(self) -> None:
        """Make the actors, as the first wave does."""
        while len(self.playing) < self.actors:
            self.playing.append(CollectingActor(self.config, self.actors))

    def play(self, orders: Sequence[WaveOrder], stops: Callable[[], bool]) -> list[PlayedWave]:
        self.orders += orders
        self.start()
        if stops():
            raise WaveInterrupted
        return [actor.play(order) for actor, order in zip(self.playing, orders, strict=False)]

    def close(self) -> None:
        for actor in self.playing:
            actor.close()
        self.playing.clear()


def config_with_actors(
    algorithm: str = "SAC", *, actors: int = 2, timeout_s: float | None = None, **options: Any
) -> Config:
    """A tiny run of four slots, which two actors share."""
    config = tiny_config("PointRobot", algorithm=algorithm, num_slots=4, **options)
    return replace(config, collector=CollectorConfig("processes", actors, timeout_s))
