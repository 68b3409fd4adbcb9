"""Actors of a Ray cluster, on this machine or on many: the one file that imports Ray, and only when asked.

A wave is one call per actor, with the weights as an argument. So whatever Ray loses and repeats, the rows are
those of the same calls in this process.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

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

INSTALLED_BY = "pip install -c requirements.txt '.[ray]'"
# The time between two looks at whether the cluster has room for actors that cannot play yet, and after how
# long the run says that it waits for them.
LOOK_S = 1.0
PATIENCE_S = 60.0

_log = logging.getLogger(__name__)


def check_ray() -> None:
    """Refuse a run whose actors need Ray where it is missing, with the line that installs it."""
    if importlib.util.find_spec("ray") is None:
        raise OptionError(
            f"collector=ray needs Ray, which is not installed: {INSTALLED_BY} "
            "(collector=processes needs nothing)."
        )


class _Hosted:
    """What Ray runs: the actor, which answers with plain arrays."""

    def __init__(self, config: Config) -> None:
        self._actor = CollectingActor(config, config.collector.actors)

    def ready(self) -> int:
        """The process of this actor, once it can play."""
        return os.getpid()

    def play(self, weights: Mapping[str, Any], order: WaveOrder) -> bytes:
        """Play an order with these weights, which it does not carry itself."""
        # Ray's arrays are read-only and shared; loading them into the agent copies them.
        return self._actor.play(replace(order, weights=weights)).to_bytes()


class _Handle:
    """One actor of the cluster, as the trainer knows it."""

    def __init__(self, ray: Any, config: Config) -> None:
        self._ray = ray
        hosted = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(_Hosted)
        self.actor = hosted.remote(config)
        # The call that is answered once it has a place in the cluster, and can play.
        self._ready = self.actor.ready.remote()
        self._begun = monotonic()
        # When its present wave began; None until it is ready for its first.
        self._playing_since: float | None = None
        # Whether the run has said that it waits for this one.
        self.is_named = False

    def play(self, weights: Any, order: WaveOrder) -> Any:
        """Begin an order; returns the call whose answer is the wave."""
        if self._playing_since is not None:  # it has been ready since an earlier wave
            self._playing_since = monotonic()
        return self.actor.play.remote(weights, replace(order, weights={}))

    @property
    def is_ready(self) -> bool:
        """Whether it has a place in the cluster, and has imported and built what it needs."""
        if self._playing_since is None and self._ray.wait([self._ready], timeout=0)[0]:
            self._playing_since = monotonic()
        return self._playing_since is not None

    def plays(self) -> float:
        """For how many seconds it has played its present wave."""
        since = self._playing_since if self.is_ready else None
        return 0.0 if since is None else monotonic() - since

    def waits(self) -> float:
        """For how many seconds it has not been able to play yet."""
        return 0.0 if self.is_ready else monotonic() - self._begun


class RayPool(ActorPool):
    """Actors in a Ray cluster, started with the first wave."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        check_ray()
        os.environ.update({name: os.environ.get(name, value) for name, value in LOCAL_SETTINGS.items()})
        self._ray = importlib.import_module("ray")
        self._running: dict[int, _Handle] = {}
        self._has_connected = False

    @property
    def pids(self) -> list[int]:
        """The processes of the actors that are running now."""
        return [self._ray.get(handle.actor.ready.remote()) for handle in self._running.values()]

    def play(self, orders: Sequence[WaveOrder], stops: Callable[[], bool]) -> list[PlayedWave]:
        self._connect()
        # 1. The weights go into the object store once, and each actor gets a reference with its order.
        weights = self._ray.put(dict(orders[0].weights))
        waves: dict[int, PlayedWave] = {}
        attempts = [0] * len(orders)
        calls = {self._begin(actor, order, weights): actor for actor, order in enumerate(orders)}

        # 2. Answers come in any order; the waves are returned in that of the actors.
        looked = monotonic()
        while calls:
            for call, lost in self._news(calls, waves):
                actor = calls.pop(call)
                if lost is not None:
                    # 3. A lost actor or node: the order is given again, and the same bits come of it.
                    self._ray.kill(self._running.pop(actor).actor)
                    self.lose(actor, attempts[actor], lost)
                    attempts[actor] += 1
                    calls[self._begin(actor, orders[actor], weights)] = actor
            if calls and stops():
                self._end_actors()  # they are in the middle of a wave that nobody needs
                raise WaveInterrupted
            if monotonic() - looked > LOOK_S:
                looked = monotonic()
                self._check_places(calls.values())
        return [waves[actor] for actor in range(len(orders))]

    def _news(self, calls: Mapping[Any, int], waves: dict[int, PlayedWave]) -> list[tuple[Any, str | None]]:
        """The calls that are over, whose waves are put into `waves`, and why where they are lost."""
        over: list[tuple[Any, str | None]] = []
        done, others = self._ray.wait(list(calls), num_returns=1, timeout=WAIT_S)
        for call in done:
            try:
                waves[calls[call]] = PlayedWave.from_bytes(self._ray.get(call))
                over.append((call, None))
            except self._ray.exceptions.RayTaskError as error:
                raise WorkerError(f"Actor {calls[call]} failed:\n{error}") from error
            except self._ray.exceptions.RayError as error:
                over.append((call, type(error).__name__))
        limit = self.config.collector.timeout_s
        for call in others:
            handle = self._running[calls[call]]
            if limit is not None and handle.plays() > limit:
                over.append((call, f"no wave within collector.timeout_s={limit:g}"))
        return over

    def close(self) -> None:
        self._end_actors()
        if self._has_connected:
            self._ray.shutdown()
            self._has_connected = False

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
            self._has_connected = True
        self._check_room()

    def _check_room(self) -> None:
        """Refuse to wait for ever for places that the cluster does not have."""
        there = self._ray.cluster_resources().get("CPU", 0)
        if there < self.actors:
            raise WorkerError(
                f"collector.actors={self.actors} need {self.actors} CPUs, and the Ray cluster has {there:g}: "
                "add machines and resume, or use fewer actors in a new run."
            )

    def _check_places(self, actors: Iterable[int]) -> None:
        """Look after actors that cannot play yet: the cluster may have lost a machine, or be full."""
        for actor in actors:
            handle = self._running[actor]
            waited = handle.waits()
            if waited:
                self._check_room()
            if waited > PATIENCE_S and not handle.is_named:
                handle.is_named = True
                _log.warning(
                    "Actor %d cannot play yet after %d s: the run waits until the Ray cluster has a free CPU "
                    "for it and has started it.",
                    actor,
                    waited,
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
            self._running[actor] = _Handle(self._ray, self.config)
        return self._running[actor].play(weights, order)

    def _end_actors(self) -> None:
        if self._ray.is_initialized():
            for handle in self._running.values():
                self._ray.kill(handle.actor)
        self._running.clear()
