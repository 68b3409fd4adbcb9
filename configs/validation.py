"""What may stand together in a config, and where each check of a config lives.

- The range of one option: where it is declared, by `option(low=, high=, above=)` (utils/options.py).
- Options of one class together: `problems` of that class (an algorithm's, a memory's, the agent's).
- Options of two classes together: here.
- Options and the environment together, whose spaces must be known: `check_family` in policies/run.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence

from hydra.core.override_parser.types import Override

from envs.backends import BACKENDS
from envs.backends.base import BackendError
from envs.backends.workers.launch import check_startable
from envs.base import TaskFamily
from envs.meta import FAMILIES
from envs.parallel_env_manager import check_settings
from policies.agents.base import Arch
from policies.algorithms import ALGORITHMS
from policies.collection.remote.ray_cluster import check_ray
from policies.curriculum import CURRICULA
from policies.memory import MEMORIES
from policies.run.config import Config, DeviceName, LoggerName, Overlap
from policies.run.hardware import most_workers
from policies.run.overlap import REFUSAL
from policies.run.sizes import check_family, needs_of, slots_of
from utils.options import OptionError, nearest, range_problems, unread_options
from utils.services.tensorboard_run import check_tensorboard


def check(config: Config, *, learns: bool = True) -> TaskFamily:
    """Refuse a config that cannot run, before anything is created; returns the family built for the check."""
    for problem in problems(config):
        raise OptionError(problem)
    if learns and config.collector.name == "ray":  # who only evaluates has no actors
        check_ray()
    return check_family(config, learns=learns)


def notes(config: Config, overrides: Sequence[Override]) -> list[str]:
    """One sentence for each of these overrides that changes nothing in this run."""
    reasons = dict(unread_options(config, config, needs_of(config)))
    found: list[str] = []
    for override in overrides:
        name = override.key_or_group
        # A whole section may be unread: `memory`, and with it `memory.hidden_size`.
        reason = reasons.get(name) or reasons.get(name.partition(".")[0])
        if reason is not None:
            found.append(f"{override.input_line} changes nothing here: {reason}.")
    return found


def problems(config: Config) -> Iterator[str]:
    """One sentence for each thing that is wrong in a config, as far as no environment is needed for it."""
    yield from range_problems(config)
    yield from _names(config)
    yield from _learning(config)
    yield from _workers(config)
    yield from _limits(config)
    yield from _machine(config)
    yield from _services(config)


def _names(config: Config) -> Iterator[str]:
    """The name in a section belongs to a registered class, and the section is of that class."""
    for group, name, owner, registry in (
        ("env", config.env.family, config.env, FAMILIES),
        ("memory", config.memory.name, config.memory, MEMORIES),
        ("algorithm", config.algorithm.name, config.algorithm, ALGORITHMS),
        ("curriculum", config.curriculum.name, config.curriculum, CURRICULA),
    ):
        if name not in registry:
            yield f"{group}={name} is not known.{nearest(name, registry)}"
        elif type(owner) is not registry[name].Config:
            yield (
                f"The name of the {group} and its options do not belong together; choose with {group}={name}."
            )
    backend = config.backend.name
    if backend not in ("auto", *BACKENDS):
        yield f"backend={backend} is not known.{nearest(backend, ('auto', *BACKENDS))}"
    if config.resume is not None and config.evaluate is not None:
        yield "resume= continues a run and evaluate= measures one: give one of the two."


def _learning(config: Config) -> Iterator[str]:
    """Agent, memory and algorithm: each checks itself, and the algorithm what it needs of the other two."""
    algorithm, memory = ALGORITHMS.get(config.algorithm.name), MEMORIES.get(config.memory.name)
    agent = config.agent
    yield from agent.problems()
    width = agent.action_embedding + agent.reward_embedding + agent.obs_embedding
    if agent.arch is not Arch.Markov and not width:
        yield (
            "The memory would read nothing: one of agent.action_embedding, agent.reward_embedding and "
            "agent.obs_embedding must be more than 0."
        )
    # A section under the wrong name is reported by `_names`; its own checks would only stumble over it.
    if memory is not None and type(config.memory) is memory.Config:
        yield from memory.problems(config.memory)
    if algorithm is not None and type(config.algorithm) is algorithm.Config:
        yield from algorithm.problems(config.algorithm, config.agent)
        if memory is not None:
            yield from algorithm.problems_of_memory(
                config.algorithm, config.agent, memory, config.memory.name
            )
        # Target networks are copies, which would go on reading rewards by what was known at the start.
        if agent.standardise_reward and not needs_of(config).on_policy:
            yield (
                f"agent.standardise_reward=true is for algorithm=PPO, and {config.algorithm.name} has target "
                "networks that would read other rewards: leave it false."
            )
        if config.learner.overlap is Overlap.bounded and needs_of(config).on_policy:
            yield REFUSAL.format(config.algorithm.name)


def _workers(config: Config) -> Iterator[str]:
    """Workers, slots, groups and backend, as typed, do not contradict each other."""
    workers, backend = config.num_parallel_workers, config.backend
    num_slots = slots_of(config)
    if workers is not None and workers > num_slots:
        source = f"num_slots={config.num_slots}"
        if not config.num_slots:
            source = f"the {num_slots} slots of num_slots=null, which can be set"
        yield (
            f"num_parallel_workers={workers} is more than {source}: "
            "a worker without a slot has nothing to step."
        )
    if backend.name in ("serial", "asyncio") and (workers or 1) > 1:
        yield (
            f"backend={backend.name} steps in this process, so num_parallel_workers={workers} "
            "contradicts it: leave one of the two out."
        )
    if backend.threads is not None and backend.name in ("process", "pipe"):
        yield (
            f"backend.threads={backend.threads} is for stepping in this process, and these slots are "
            "stepped by worker processes: leave it out."
        )
    collector = config.collector
    if collector.name != "local" and (
        num_slots % collector.actors or num_slots // collector.actors < config.num_groups
    ):
        yield (
            f"collector.actors={collector.actors} must divide the {num_slots} slots, each with "
            f"num_groups={config.num_groups} of them at least: num_slots=N sets them."
        )
    if config.num_groups > num_slots:
        yield (
            f"num_groups={config.num_groups} is more than the {num_slots} slots that there are to be "
            "divided; num_slots=N sets them."
        )


def _limits(config: Config) -> Iterator[str]:
    """The manager takes these settings, and the system can start so many workers in that way."""
    backend, num_slots = config.backend, slots_of(config)
    for name, seconds in config.env.waits().items():
        if seconds >= backend.call_timeout_s:
            yield (
                f"env.{name}={seconds:g} is not below backend.call_timeout_s={backend.call_timeout_s:g}, so "
                "a call would be cut before it has waited: raise backend.call_timeout_s."
            )
    if config.num_groups > num_slots:  # reported above, and the rest could not be worked out
        return

    # The manager's own checks, for the most workers that the run may start.
    most = most_workers(config)
    if most <= num_slots:
        try:
            check_settings(
                backend,
                backend.name,
                num_slots,
                num_workers=most,
                num_groups=config.num_groups,
                deterministic=config.deterministic,
            )
        except ValueError as error:
            yield str(error)

    # What this system allows.
    if most > 1 and backend.name != "thread":
        try:
            check_startable(most, twice=True)  # to train, and to evaluate
        except BackendError as error:
            yield str(error)
    method, available = backend.start_method.name, multiprocessing.get_all_start_methods()
    if method != "auto" and method not in available:
        yield (
            f"backend.start_method={method} does not exist on this system, which has {', '.join(available)}."
        )


def _machine(config: Config) -> Iterator[str]:
    """The device is there."""
    if config.device in (DeviceName.cuda, DeviceName.mps):
        import torch  # asking for the devices takes time, so only a run that names one does

        if config.device is DeviceName.cuda:
            available = torch.cuda.is_available()
        else:
            available = torch.backends.mps.is_available()
        if not available:
            yield (
                f"device={config.device.name} was asked for, and torch finds none here: "
                "use device=cpu or device=auto."
            )


def _services(config: Config) -> Iterator[str]:
    """What records the run is installed."""
    if LoggerName.tensorboard in config.loggers:
        try:
            check_tensorboard()
        except OptionError as missing:
            yield str(missing)
