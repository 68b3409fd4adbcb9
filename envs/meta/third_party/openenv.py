"""OpenEnv: environments that are services behind a WebSocket, as a family."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Shard, Shelf, TaskFamily
from envs.meta.kernels import check_split
from envs.remote.actions import FieldWriter, RemoteActionKind
from envs.remote.observations import FieldReader
from envs.remote.protocol import RemoteError, shown_url, websocket_url
from envs.remote.service_board import board_of_this_process
from envs.remote.service_setup import Limits, Patience, ServiceSetup, SessionUse, measured_at
from envs.remote.tasks import TaskSource, task_arguments
from envs.remote.words import named_value, value_of
from utils.options import OptionError, option


class MissingReward(Enum):
    """What a step without a reward means."""

    zero = "zero"
    refuse = "refuse"


@dataclass
class OpenEnvConfig(EnvConfig):
    """Options of OpenEnv: where the servers are, what their fields mean, and how long they are waited for."""

    family: str = "OpenEnv"
    urls: list[str] = option([], "the servers: [http://127.0.0.1:8000]; slot i is played on server i mod k")
    serve: str | None = option(None, "module:app, to be served here, on free ports; never read from a record")
    num_servers: int = option(1, "with serve: how many server processes", low=1)
    observation: list[str] = option([], "fields that the agent sees, with their sizes: [board:42,turn]")
    text: list[str] = option([], "fields that are texts, with the bytes that are read: [hint:80]")
    mask: str | None = option(None, "the field with the legal actions, or name:flags")
    read: str | None = option(None, "module:function, from an observation (a dict) to a vector")
    read_size: int = option(0, "with read: the length of the vector", low=0)
    action_kind: RemoteActionKind = option(
        RemoteActionKind.discrete, "what the agent chooses: discrete, several, numbers or text"
    )
    actions: list[str] = option([], "the fields of an action, with their sizes: [column:7]")
    texts: list[str] = option([], "with action_kind=text: the texts to choose from")
    write: str | None = option(None, "module:function, from the fields of an action to those that are sent")
    tasks: list[str] = option([], 'arguments of reset that are the task: ["opponent=0|1|2","wind=-1..1"]')
    test_tasks: list[str] = option([], "what the test split draws instead")
    task_by_seed: bool = option(False, "the task is the seed of every reset of its trial")
    task_api: str | None = option(None, "the environment's name in the Task API of the server")
    arguments: list[str] = option([], 'arguments of every reset: ["size=8"]')
    session: SessionUse = option(
        SessionUse.keep, "keep a session from trial to trial, or open one per_trial or per_episode"
    )
    missing_reward: MissingReward = option(MissingReward.zero, "a step without a reward: zero, or refuse")
    failover: bool = option(False, "a slot whose server does not answer a reset moves to the next one")
    max_in_flight: int | None = option(
        None, "messages under way to one server at the same time, from all workers; null: no limit", low=1
    )
    min_interval_s: float = option(
        0.0, "seconds between two messages to one server, whichever workers send them", low=0
    )
    connect_timeout_s: float = option(10.0, "seconds that a connection may take to open", above=0)
    message_timeout_s: float = option(50.0, "seconds that the answer to a message may take", above=0)
    patience_s: float = option(
        50.0, "seconds that a reset tries again where a server is gone or has no seat", above=0
    )
    max_message_mb: int = option(100, "the largest answer in megabytes", low=1)
    headers_from_env: list[str] = option(
        [],
        "headers from environment variables, which are never written: [Authorization:HF_TOKEN], "
        "or {Authorization:HF_TOKEN}",
    )

    def waits(self) -> dict[str, float]:
        return {"message_timeout_s": self.message_timeout_s, "patience_s": self.patience_s}


class OpenEnv(TaskFamily):
    """This family plays OpenEnv servers, which are asked before a run whether they fit what is declared here.

    Task: arguments of reset (`tasks`), a seed (`task_by_seed`), or an entry of the server's Task API
    (`task_api`); without any of them there is one task, [0]. Arguments are a number each: which of the
    choices, counted over both splits, or the number itself. Splits are disjoint by seed, by the Task API, and
    where no choice of `test_tasks` is one of `tasks`. Every reset is told a seed as well.

    Observation: the fields of `observation`, then those of `text` (bytes over 255), as one vector; legal
    actions as `action_mask`. Action: the fields of `actions`. Reward: the server's, 0 where it gives none.
    H: `max_episode_steps`; an episode ends with the server's `done`, which is a truncation only where
    the observation or the metadata says `truncated`. k=2.

    A step is never sent twice, and only a reset opens a session (envs/remote/session.py). Where the service
    does not repeat itself, trials that meet a fault are given up.
    """

    Config = OpenEnvConfig
    shelf = Shelf.third_party
    is_declared = True
    waits_in_coroutines = True
    config: OpenEnvConfig

    def __init__(self, config: OpenEnvConfig) -> None:
        super().__init__(config)
        for url in config.urls:
            websocket_url(url)
        if config.urls and config.serve:
            raise OptionError("urls= are servers that run already, and serve= starts some: give one of them.")
        # Without servers it is only described (by env=list, and by tests): a stand-in has one field.
        described = config if config.urls or config.serve else _described(config)
        writer = FieldWriter.of(described.action_kind, described.actions, described.texts, described.write)
        reader = FieldReader.of(
            described.observation,
            described.text,
            described.mask,
            writer.num_choices,
            described.read,
            described.read_size,
        )
        self._setup = ServiceSetup(
            tuple(config.urls),
            reader,
            writer,
            _task_source(config),
            Patience(
                config.connect_timeout_s, config.message_timeout_s, config.patience_s, config.max_message_mb
            ),
            Limits(config.max_in_flight, config.min_interval_s, board_of_this_process()),
            _headers(config.headers_from_env),
            config.session,
            config.failover,
            config.missing_reward is MissingReward.refuse,
        )
        self._is_prepared = False
        self.spec = EnvSpec(
            name="OpenEnv",
            obs_space=reader.space,
            action_space=writer.space,
            task_dim=self._setup.tasks.task_dim,
            split=self._setup.tasks.split,
        )

    @classmethod
    def lacks(cls, config: EnvConfig) -> str | None:
        """A server has to be named, or an app to be served."""
        assert isinstance(config, OpenEnvConfig)
        if config.urls or config.serve:
            return None
        return "OpenEnv needs a server: urls=[http://127.0.0.1:8000], or serve=module:app to start one."

    def prepare(self, num_slots: int) -> None:
        """Start the servers that are to be served here, and ask them everything that can be asked now."""
        from envs.remote.probe import probe, tell  # no worker has a use for it

        if self._is_prepared:
            return
        self._serve()
        tasks = self._first_tasks()
        other = next((task for task in tasks if (task != tasks[0]).any()), tasks[0])
        findings = probe(self._setup, np.stack([tasks[0], other]), num_slots)
        tell(findings, self._setup)
        self.spec = replace(self.spec, deterministic=findings.deterministic)
        self._is_prepared = True

    def _first_tasks(self) -> NDArray[np.float64]:
        """Some tasks of training; a Task API that lacks those of either split is refused."""
        try:
            tasks, _ = (self.sample_tasks(np.random.default_rng(0), 20, split) for split in ("train", "test"))
        except RemoteError as error:
            raise OptionError(f"task_api={self.config.task_api}: {error}") from error
        return tasks

    def _serve(self) -> None:
        if self.config.serve and not self._setup.urls:
            from envs.remote.serving import served_urls

            urls = served_urls(self.config.serve, self.config.num_servers)
            self._setup = replace(self._setup, urls=urls)

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        check_split(split)
        if self._setup.tasks.api is not None:
            self._serve()
        url = next(iter(self._setup.urls), None)
        return self._setup.tasks.sample(rng, n, split, url, self._setup.headers)

    def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
        # The slots wait for their servers at the same time, in coroutines.
        from envs.remote.remote_shard import RemoteShard  # asyncio is for those who use it

        self._serve()
        return RemoteShard(num_slots, self._setup)

    def servers(self) -> frozenset[str]:
        served = {f"{self.config.serve} {self.config.num_servers}"} if self.config.serve else set[str]()
        return frozenset(served | {shown_url(url) for url in self.config.urls})

    def measured(self) -> dict[str, float]:
        """What the sessions of this process and of its workers have cost so far, by server."""
        found: dict[str, float] = {}
        for server in map(shown_url, self._setup.urls):
            measure = measured_at(server, self._setup.limits.board)
            if measure.messages or measure.failures:
                name = server.partition("://")[2]
                found |= {f"openenv/{name}/{key}": value for key, value in measure.shown().items()}
        return found


def _described(config: OpenEnvConfig) -> OpenEnvConfig:
    return replace(
        config, observation=config.observation or ["value"], actions=config.actions or ["choice:2"]
    )


def _task_source(config: OpenEnvConfig) -> TaskSource:
    if sum((bool(config.tasks), config.task_by_seed, config.task_api is not None)) > 1:
        raise OptionError("tasks=, task_by_seed= and task_api= all say what a task is: give one.")
    fixed: dict[str, Any] = {}
    for text in config.arguments:
        name, value = named_value("arguments", text)
        fixed[name] = value_of(value)
    arguments = task_arguments(config.tasks, config.test_tasks)
    for one in arguments:
        if one.name in fixed or one.name == "seed":
            raise OptionError(f"tasks: reset is told {one.name!r} in another way already.")
    return TaskSource(arguments, config.task_by_seed, config.task_api, fixed)


def _headers(pairs: list[str]) -> dict[str, str]:
    """Headers with the values of environment variables, which stand in no file and no message."""
    headers: dict[str, str] = {}
    for pair in pairs:
        header, colon, variable = pair.partition(":")
        if not colon or not header:
            raise OptionError(f"headers_from_env: {pair!r} should be header:VARIABLE.")
        value = os.environ.get(variable)
        if not value:
            raise OptionError(f"headers_from_env: the environment variable {variable} is not set.")
        # A token alone is what HF_TOKEN holds.
        bearer = header.lower() == "authorization" and " " not in value
        headers[header] = f"Bearer {value}" if bearer else value
    return headers
