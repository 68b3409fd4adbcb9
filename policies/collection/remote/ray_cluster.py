"""Actors of a Ray cluster, on this machine or on many: the one file that imports Ray, and only when asked.

A wave is one call per actor, with the weights as an argument. So whatever Ray loses and repeats, the rows are
those of the same calls in this process.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

from torch import Tensor

from envs.backends.workers.isolation import SINGLE_THREAD
from envs.parallel_env_manager import WorkerError
from policies.collection.remote.actor import CollectingActor, PlayedWave, WaveOrder
from policies.collection.remote.pool import WAIT_S, ActorPool
from policies.collection.wave import WaveInterrupted
from policies.run.config import Config
from utils.environment import passed_on
from utils.options import OptionError

ROOT = str(Path(__file__).resolve().parents[3])
# What Ray reads when a cluster of this machine alone is started: it stays on the loopback, sends nothing
# about its use, and its actors are not slower than other processes (Ray's own default is a niceness of 15).
LOCAL_SETTINGS = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
}
# What a cluster of several machines is not sent of the checkout.
NOT_SHIPPED = [".git", "outputs", "multirun", "wandb", "docs", "benchmarks/results", "tests"]


class _Hosted:
    """What Ray runs: the actor, which answers with plain arrays."""

    def __init__(self, config: Config) -> None:
        self._actor = CollectingActor(config, config.collector.actors)

    def ready(self) -> int:
        """The process of this actor, once it can play."""
        return os.getpid()

    def play(self, weights: Mapping[str, Tensor], order: WaveOrder) -> bytes:
        """Play an order with these weights, which it does not carry itself."""
        # Ray's arrays are read-only and shared; loading them into the agent copies them.
        return self._actor.play(replace(order, weights=weights)).to_bytes()


class RayPool(ActorPool):
    """Actors in a Ray cluster, started with the first wave."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        try:
            os.environ.update({name: os.environ.get(name, value) for name, value in LOCAL_SETTINGS.items()})
            self._ray = importlib.import_module("ray")
        except ModuleNotFoundError:
            raise OptionError(
                "collector=ray needs Ray: pip install -c requirements.txt .[ray] "
                "(collector=processes needs nothing)."
            ) from None
        self._running: dict[int, Any] = {}
        self._started_cluster = False

    @property
    def pids(self) -> list[int]:
        """The processes of the actors that are running now."""
        return [self._ray.get(handle.ready.remote()) for handle in self._running.values()]

    def play(self, orders: Sequence[WaveOrder], stops: Callable[[], bool]) -> list[PlayedWave]:
        self._connect()
        # 1. The weights go into the object store once, and each actor gets a reference with its order.
        weights = self._ray.put(dict(orders[0].weights))
        calls: dict[Any, int] = {}
        attempts = [0] * len(orders)
        for actor in range(len(orders)):
            calls[self._begin(actor, orders[actor], weights)] = actor

        # 2. Answers come in any order; the waves are returned in that of the actors.
        waves: dict[int, PlayedWave] = {}
        begun = monotonic()
        while calls:
            done, _ = self._ray.wait(list(calls), num_returns=1, timeout=WAIT_S)
            for call in done:
                actor = calls.pop(call)
                try:
                    waves[actor] = PlayedWave.from_bytes(self._ray.get(call))
                except self._ray.exceptions.RayTaskError as error:
                    raise WorkerError(f"Actor {actor} failed:\n{error}") from error
                except self._ray.exceptions.RayError as error:
                    # 3. A lost actor or node: the order is given again, and the same bits come of it.
                    self._replace(actor, attempts, type(error).__name__)
                    calls[self._begin(actor, orders[actor], weights)] = actor
            if calls and stops():
                self._end_actors()  # they are in the middle of a wave that nobody needs
                raise WaveInterrupted
            limit = self.config.collector.timeout_s
            if calls and limit is not None and monotonic() - begun > limit:
                for call, actor in list(calls.items()):
                    del calls[call]
                    self._replace(actor, attempts, f"no answer within collector.timeout_s={limit:g}")
                    calls[self._begin(actor, orders[actor], weights)] = actor
                begun = monotonic()
        return [waves[actor] for actor in range(len(orders))]

    def close(self) -> None:
        self._end_actors()
        if self._started_cluster:
            self._ray.shutdown()
            self._started_cluster = False

    def _connect(self) -> None:
        """Join the cluster, or start one on this machine; its resources are checked before actors wait."""
        if not self._ray.is_initialized():
            address = self.config.collector.address
            local: dict[str, Any] = {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
            self._ray.init(
                address=address,
                runtime_env=self._runtime(shipped=address is not None),
                logging_level=logging.WARNING,
                **({} if address else local | {"num_cpus": self.actors}),
            )
            self._started_cluster = True
        there = self._ray.cluster_resources().get("CPU", 0)
        if there < self.actors:
            raise WorkerError(
                f"collector.actors={self.actors} need {self.actors} CPUs, and the Ray cluster has {there:g}: "
                "add machines, or use fewer actors in a new run."
            )

    @staticmethod
    def _runtime(*, shipped: bool) -> dict[str, Any]:
        # One thread each; no secrets beyond what the cluster was started with.
        variables = passed_on(os.environ) | SINGLE_THREAD | LOCAL_SETTINGS | {"WANDB_MODE": "disabled"}
        variables = {name: value for name, value in variables.items() if name not in ("PATH", "PWD", "HOME")}
        if shipped:
            return {"env_vars": variables, "working_dir": ROOT, "excludes": NOT_SHIPPED}
        return {"env_vars": variables | {"PYTHONPATH": ROOT}}

    def _begin(self, actor: int, order: WaveOrder, weights: Any) -> Any:
        if actor not in self._running:
            hosted = self._ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(_Hosted)
            self._running[actor] = hosted.remote(self.config)
        return self._running[actor].play.remote(weights, replace(order, weights={}))

    def _replace(self, actor: int, attempts: list[int], why: str) -> None:
        self._ray.kill(self._running.pop(actor))
        self.lose(actor, attempts[actor], why)
        attempts[actor] += 1

    def _end_actors(self) -> None:
        if self._ray.is_initialized():
            for handle in self._running.values():
                self._ray.kill(handle)
        self._running.clear()
