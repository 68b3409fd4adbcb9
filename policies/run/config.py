"""The run's configuration as plain dataclasses: what `main.py` makes of the composed YAML, once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import yaml

from envs.backends.base import BackendConfig
from envs.base import EnvConfig
from policies.agents.base import WITH_MEMORY, AgentConfig
from policies.algorithms.base import AlgorithmConfig
from policies.curriculum.base import CurriculumConfig
from policies.memory.base import MemoryConfig
from utils.disk.own_files import replace_file
from utils.disk.plain_yaml import read_plain_yaml
from utils.options import OnlyIf, OptionError, option
from utils.services.wandb_run import WandbConfig

# The number of the names and files in a run folder, written into its config: other numbers are not read.
FORMAT = 2
# The file of a run folder that holds its config.
RECORD = "config.yaml"
# The file of a run folder that lists the tasks.
TASKS = "tasks.json"
# The folder in a run folder with the checkpoints, from which the run can go on.
CHECKPOINTS = "checkpoints"

# Options that permit something to one command: they are not recorded, and never read from a record. (A run
# folder of somebody else may neither start a process nor send the secrets of this machine to a server.)
# A `*` stands for any name: the parts of a mixture may be services.
PERMISSIONS = (
    "allow_links",
    "resume_without_damaged",
    "resume_if_there",
    "env.serve",
    "env.headers_from_env",
    "env.parts.*.serve",
    "env.parts.*.headers_from_env",
)


class DeviceName(Enum):
    """Where the agent lives; auto takes an accelerator where there is one."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"
    mps = "mps"


class LoggerName(Enum):
    """A service that a run is recorded by, beside its own files."""

    wandb = "wandb"
    tensorboard = "tensorboard"


class ReplayDevice(Enum):
    """Where batches are gathered, for an agent on an accelerator."""

    auto = "auto"
    host = "host"
    device = "device"


OFF_POLICY = OnlyIf(
    lambda run, needs: not needs.on_policy,
    "{run.algorithm.name} learns once from each wave, of train.num_env_steps_per_iter env steps",
)
COUNTS_ROWS = OnlyIf(
    lambda run, needs: not needs.on_policy and run.train.updates_per_step is None,
    "train.updates_per_step says how many updates an env step earns, or {run.algorithm.name} needs none",
)
POOL_TEACHES = OnlyIf(
    lambda run, needs: (
        not needs.on_policy
        or run.agent.normalise_obs
        or run.agent.normalise_reward
        or run.agent.standardise_reward
    ),
    "without normalisation an on-policy algorithm learns nothing from a random pool",
)


@dataclass
class TrainConfig:
    """How long, and in which rhythm, to collect and to learn.

    With `num_env_steps_per_iter` an iteration starts no trial any more once it has taken so many env steps,
    and those that run then run to their end. It starts at least one trial for every slot, and has room for
    trials of a tenth of the longest length k * H. An on-policy algorithm makes one update per iteration,
    and from the random pool it learns only how to normalise. With `replay_device=auto` batches are gathered
    on the training device where the copy takes at most half of the free memory of CUDA; they are the same.

    `replay_ratio` counts the rows of a batch, a whole trial as k * H: with 256 an agent without a memory,
    whose batch has 256 rows, makes one update per env step, and one that learns from 32 trials of 400 rows
    makes one in 50. The run ends with the wave that takes the last of its env steps, and may take some more.
    """

    n_env_steps_total: int = option(1_000_000, "env steps of the whole run, the random pool included", low=1)
    num_rollouts_per_iter: int = option(
        24, "off-policy: trials collected in each iteration", low=1, only_if=OFF_POLICY
    )
    num_env_steps_per_iter: int | None = option(
        None,
        "env steps in an iteration; null: on-policy num_slots * k * H, off-policy trials instead",
        low=1,
    )
    num_init_rollouts_pool: int = option(
        100,
        "trials of random actions before the first update",
        low=0,
        only_if=POOL_TEACHES,
    )
    replay_ratio: float = option(
        256.0, "off-policy: rows to learn from per env step collected", low=0, only_if=COUNTS_ROWS
    )
    updates_per_step: float | None = option(
        None,
        "off-policy: gradient updates per env step collected; null: by replay_ratio",
        low=0,
        only_if=OFF_POLICY,
    )
    buffer_size: int = option(
        1_000_000,
        "off-policy: capacity of the replay in rows, of which an episode has one more than env steps",
        low=1,
        only_if=OFF_POLICY,
    )
    replay_device: ReplayDevice = option(
        ReplayDevice.auto,
        "where batches are gathered: host, or device, from a copy of the replay",
        only_if=OFF_POLICY,
    )


class WhichCheckpoint(Enum):
    """Of a run that is evaluated: the newest agent, or the one that was best on the test list."""

    last = "last"
    best = "best"


@dataclass
class EvaluationConfig:
    """When and how to evaluate on the saved task lists.

    The best agent is the one whose trials, all episodes together, had the highest mean return on the test
    list at an evaluation of its training.
    """

    every: int = option(50_000, "env steps between evaluations; one more at the end", low=1)
    episodes_per_trial: int | None = option(
        None, "episodes in a trial of evaluation; null takes as many as in training", low=1
    )
    trials_per_task: int = option(1, "trials of every task of a list", low=1)
    stochastic: bool = option(False, "evaluate with sampled actions too")
    averaging: float = option(
        0.0, "evaluate a running mean of the weights, of which an update keeps this part", low=0, high=0.9999
    )
    tasks: str | None = option(
        None, "with evaluate=: a JSON file of tasks to play instead of the lists of the seed"
    )
    checkpoint: WhichCheckpoint = option(
        WhichCheckpoint.last, "with evaluate=: the last checkpoint, or the best by the test list"
    )
    films: int = option(
        0,
        "trials of the test list to draw at the end: film_1.gif, film_2.gif, ... in the run folder",
        low=0,
    )


class Overlap(Enum):
    """Whether updates and collection take turns, or updates are made while a wave is collected."""

    none = "none"
    bounded = "bounded"


@dataclass
class LearnerConfig:
    """How updates and collection share the machine.

    With `overlap=bounded` a wave is collected by the agent as it was before the updates beside it.
    """

    overlap: Overlap = option(
        Overlap.none,
        "bounded: the updates that a wave earned are made while the next one is collected",
    )


@dataclass
class CollectorConfig:
    """Where trials are collected.

    `local` collects in this process, over the environments' backend. `processes` and `ray` divide the slots
    among actors, each with a copy of the policy: processes of this machine, or actors of a Ray cluster.
    """

    name: str = option("local", "local, processes or ray")
    actors: int = option(2, "with processes or ray: collecting actors, which share num_slots", low=1)
    timeout_s: float | None = option(
        None, "with processes or ray: seconds after which an actor without a wave is replaced", low=0
    )
    address: str | None = option(
        None, "with ray: the address of a cluster; null starts one on this machine alone"
    )


@dataclass
class Config:
    """Everything that defines a run.

    `num_slots`, `num_groups` and `collector.actors` are part of the experiment: other values give other data.
    The number of workers changes nothing but the speed.
    """

    env: EnvConfig
    agent: AgentConfig
    memory: MemoryConfig = field(metadata={"only_if": WITH_MEMORY})
    algorithm: AlgorithmConfig
    backend: BackendConfig
    train: TrainConfig
    evaluation: EvaluationConfig
    learner: LearnerConfig
    wandb: WandbConfig
    curriculum: CurriculumConfig = field(default_factory=lambda: CurriculumConfig("uniform"))
    collector: CollectorConfig = field(default_factory=CollectorConfig)
    num_parallel_workers: int | None = option(
        None,
        "worker processes, or threads with backend=thread; null: the backend decides",
        low=1,
    )
    num_slots: int | None = option(
        None,
        "N, environments stepped together; null: 64, or off-policy num_rollouts_per_iter if less",
        low=1,
    )
    num_groups: int = option(
        1,
        "2: half of the slots step while the others' actions are computed",
        low=1,
        high=4,
    )
    loggers: list[LoggerName] = option(
        [LoggerName.wandb], "services that get a copy of the metrics: wandb, tensorboard, or none by []"
    )
    seed: int = option(0, "root of every random stream", low=0)
    device: DeviceName = option(DeviceName.auto, "auto, cpu, cuda or mps")
    deterministic: bool = option(False, "use torch's deterministic algorithms, and refuse what has none")
    profile: bool = option(False, "print the top of a profile at the end")
    checkpoint_every: int = option(100_000, "env steps between checkpoints; one more at the end", low=1)
    resume: str | None = option(None, "a run folder to continue, bit for bit")
    evaluate: str | None = option(
        None, "a run folder to evaluate; several, or a sweep's folder: one table of them"
    )
    allow_links: bool = option(False, "let checkpoints/segments be a link; nothing behind it is ever removed")
    resume_if_there: bool = option(
        False, "go on with the run in hydra.run.dir if it is this one: for scripts that are queued again"
    )
    resume_without_damaged: bool = option(
        False, "with resume=: leave out the stored trials whose file is damaged"
    )


def plain(value: Any) -> Any:
    """A config, or a part of one made by `asdict`, as the types of YAML and JSON."""
    if isinstance(value, Config):
        return plain(asdict(value))
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [plain(part) for part in value]
    return value.name if isinstance(value, Enum) else value


def holds_a_run(run_dir: Path) -> str:
    """The sentence that says why nothing else may be written there."""
    return f"{run_dir} holds a run, which a new one would overwrite: resume={run_dir} goes on with it."


def remove_permissions(settings: dict[str, Any]) -> None:
    """Take out of nested settings what was permitted to one command."""
    for name in PERMISSIONS:
        *sections, option_name = name.split(".")
        for owner in _owners(settings, sections):
            owner.pop(option_name, None)


def _owners(settings: Any, sections: Sequence[str]) -> Iterator[dict[Any, Any]]:
    """The nested settings in these sections, of which `*` is each that there is."""
    if not isinstance(settings, dict):
        return
    if not sections:
        yield settings
        return
    first, *inner = sections
    for section in list(settings) if first == "*" else [first]:
        yield from _owners(settings.get(section), inner)


def recordable(config: Config) -> dict[str, Any]:
    """A config as the types of YAML, without what was permitted to one command: what may be written."""
    settings = plain(config)
    remove_permissions(settings)
    return settings


def save(config: Config, run_dir: Path) -> None:
    """Record a run's config in its folder, with the number of its format."""
    save_record(recordable(config), run_dir)


def save_record(settings: Mapping[str, Any], run_dir: Path) -> None:
    """Record a config that is given as the types of YAML."""
    recorded = {"format": FORMAT, **settings}
    remove_permissions(recorded)
    replace_file(run_dir / RECORD, yaml.safe_dump(recorded, sort_keys=False).encode())


def read_record(record: Path) -> dict[str, Any]:
    """The options that a run's folder records, as the types of YAML, without what only one command permitted.

    The record may come from somebody else: what stands in it is neither filled in nor run.
    """
    try:
        values = read_plain_yaml(record)
        if not isinstance(values, dict):
            raise ValueError("it holds no options")
        number = values.pop("format", None)
        if number is None and "algorithm" not in values:
            raise ValueError("it has no format")
        for name, text in _texts(values):
            if "${" in text:
                raise ValueError(f"{name} is {text!r}: a record is not filled in, so write the value itself")
    except ValueError as error:
        raise OptionError(f"{record} cannot be read as the config of a run: {error}.") from error
    if number is None:
        raise OptionError(
            f"{record} was written by an older version of Retrial: the last commit that reads it is b8605dc."
        )
    if number != FORMAT:  # its names mean something else, or are not known
        raise OptionError(f"{record} has format {number}, and this version of Retrial reads format {FORMAT}.")
    remove_permissions(values)
    return values


def _texts(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """(name, text) of each text in nested values, names of options too."""
    if isinstance(value, str):
        yield name, value
    parts: Any = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        parts = enumerate(value)
    for key, part in parts:
        yield f"{name}.{key}".lstrip("."), str(key)
        yield from _texts(part, f"{name}.{key}".lstrip("."))
