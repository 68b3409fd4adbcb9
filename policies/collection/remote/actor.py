"""CollectingActor: plays waves of a run with its own environments, in whatever process it is.

It is a plain class. `play` is a function of its order alone, which carries the weights: whoever repeats an
order, on this actor or on a fresh one, gets the same bits.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from buffers.rollout import RolloutBuffer
from policies.collection.collector import LocalCollector
from policies.collection.wave import WaveResult
from policies.run.config import Config
from policies.run.context import LearningParts, RunContext, RunEnvironments
from policies.run.hardware import prepare_torch
from policies.run.sizes import check_family, slots_of
from utils.stopwatch import Stopwatch

# Backends that may step an actor's environments; others become serial, since the actors are processes.
OWN_BACKENDS = ("thread", "asyncio")


@dataclass(frozen=True)
class WaveOrder:
    """What one actor is to play: everything that its wave depends on."""

    # The agent's parameters and what its normaliser has learned, on the CPU.
    weights: Mapping[str, Any]
    # What the curriculum has learned, which decides the tasks.
    curriculum: Mapping[str, Any]
    # The number of the first trial; this actor's are numbered on from there.
    first: int
    most: int
    # None: all trials are started.
    budget: int | None
    random_actions: bool


@dataclass(frozen=True)
class PlayedWave:
    """What came of an order: the result, and the rows as an exported segment."""

    result: WaveResult
    segment: dict[str, NDArray[np.generic]]

    def to_bytes(self) -> bytes:
        """Plain arrays in one block, which can be read back without running anything."""
        arrays = {f"row.{name}": values for name, values in self.segment.items()}
        for item in fields(WaveResult):
            arrays[f"result.{item.name}"] = np.asarray(getattr(self.result, item.name))
        block = io.BytesIO()
        np.savez(block, **arrays)  # pyright: ignore[reportArgumentType]
        return block.getvalue()

    @classmethod
    def from_bytes(cls, block: bytes) -> PlayedWave:
        """The wave of `to_bytes`."""
        with np.load(io.BytesIO(block), allow_pickle=False) as arrays:
            parts = {name: arrays[name] for name in arrays.files}
        result = {
            item.name: values if (values := parts[f"result.{item.name}"]).ndim else values.item()
            for item in fields(WaveResult)
        }
        segment = {name.removeprefix("row."): parts[name] for name in parts if name.startswith("row.")}
        return cls(WaveResult(**result), segment)

    @classmethod
    def joined(cls, waves: Sequence[PlayedWave], first: int) -> PlayedWave:
        """One wave of all trials, in the order of the actors, which is that of their numbers."""
        segment = {
            name: np.concatenate([wave.segment[name] for wave in waves])
            for name in waves[0].segment
            if name != "first"
        }
        results = [wave.result for wave in waves]
        result = WaveResult(
            sum(one.env_steps for one in results),
            np.concatenate([one.returns for one in results]),
            np.concatenate([one.lengths for one in results]),
            np.concatenate([one.successes for one in results]),
            np.concatenate([one.dropped for one in results]),
            np.concatenate([one.tasks for one in results]),
        )
        return cls(result, {"first": np.array([first]), **segment})


class CollectingActor:
    """Its environments, its copy of the agent, and room for one of its waves."""

    def __init__(self, config: Config, actors: int) -> None:
        """One of the `actors` actors that share the slots of a run of this config."""
        own = config.backend.name in OWN_BACKENDS
        backend = replace(
            config.backend,
            name=config.backend.name if own else "serial",
            threads=config.backend.threads if own else 1,
            max_worker_memory=None,
        )
        family, device = check_family(config, learns=False), prepare_torch(config)

        # It has its part of the slots, and the agent alone of what learns.
        config = replace(config, num_slots=slots_of(config) // actors, backend=backend)
        self._context = context = RunContext.of(config, family, device, None)
        self._agent = LearningParts.build(context, learns=False).agent.requires_grad_(False)
        self._wave: RolloutBuffer | None = None
        workers = (config.num_parallel_workers or 1) if own else 1
        self._environments = RunEnvironments(context, backend, workers)

    def play(self, order: WaveOrder, stops: Callable[[], bool] = lambda: False) -> PlayedWave:
        """Play the trials of an order, each to its end."""
        self._agent.load_state_dict(order.weights)
        # An earlier wave leaves no trace: this one has places and numbers as if it were the first.
        wave = self._room_for(order.most)
        wave.num_added = 0
        progress = self._context.before_the_first_trial()
        progress.counters.trials = progress.counters.warmup_trials = order.first
        progress.curriculum.load_state_dict(dict(order.curriculum))
        collector = LocalCollector(
            self._context,
            progress,
            self._environments.training,
            self._agent,
            wave,
            Stopwatch(),
            lambda _: stops(),
            order.random_actions,
        )
        result = collector.collect(order.most, order.budget)
        return PlayedWave(result, wave.export(0, wave.num_added))

    def _room_for(self, trials: int) -> RolloutBuffer:
        """The buffer of a wave, made anew where a larger one is asked for."""
        shape: dict[str, Any] = self._context.sizes.wave_shape | {"wave_trials": trials}
        if self._wave is None or self._wave.capacity < trials * shape["rows_per_trial"]:
            self._wave = RolloutBuffer(**shape)
        return self._wave

    def close(self) -> None:
        """Stop its environments."""
        self._environments.close()
