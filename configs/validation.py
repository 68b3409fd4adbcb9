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
from policies.memory import MEMORIES
from policies.run.checks import check_family
from policies.run.config import Config, DeviceName, Overlap
from policies.run.hardware import most_workers
from policies.run.overlap import REFUSAL
from policies.run.sizes import needs_of, slots_of
from utils.options import OptionError, nearest, range_problems, unread_options


def check(config: Config, *, learns: bool = True) -> TaskFamily:
    """Refuse a config that cannot run, before anything is created; returns the family that the check built."""
    for problem in problems(config):
        raise OptionError(problem)
    return check_family(config, learns=learns)


def notes(config: Config, overrides: Sequence[Override]) -> list[str]:
    """One sentence for each of these overrides that changes nothing in this run."""
    reasons = dict(unread_options(config, config, needs_of(config)))
    found: list[str] = []
    for override in overrides:
        name = override.key_or_group
        reason = reasons.get(name) or reasons.get(name.partition(".")[0])
        if reason is not None:
            found.append(f"{override.input_line} changes nothing here: {reason}.")
    return found


def problems(config: Config) -> Iterator[str]:
    """One sentence for each thing that is wrong."""
    yield from range_problems(config)
    yield from _names(config)
    yield from _learning(config)
    yield from _workers(config)
    yield from _inputs(config)
    yield from _machine(config)


def _names(config: Config) -> Iterator[str]:
    for group, name, owner, registry in (
        ("env", config.env.family, config.env, FAMILIES),
        ("memory", config.memory.name, config.memory, MEMORIES),
        ("algorithm", config.algorithm.name, config.algorithm, ALGORITHMS),
    ):
        if name not in registry:
            yield f"{group}={name} is not known.{nearest(name, registry)}"
        elif type(owner) is not registry[name].Config:
            yield f"The name of the {group} and its options do not belong together; choose with {group}={name}."
    if config.backend.name not in ("auto", *BACKENDS):
        yield f"backend={config.backend.name} is not known.{nearest(config.backend.name, ('auto', *BACKENDS))}"
    if config.resume is not None and config.evaluate is not None:
        yield "resume= continues a run and evaluate= measures one: give one of the two."


def _learning(config: Config) -> Iterator[str]:
    algorithm, memory = ALGORITHMS.get(config.algorithm.name), MEMORIES.get(config.memory.name)
    yield from config.agent.problems()
    if memory is not None and type(config.memory) is memory.Config:
        yield from memory.problems(config.memory)
    if algorithm is not None and type(config.algorithm) is algorithm.Config:
        yield from algorithm.problems(config.algorithm, config.agent)
        if memory is not None:
            yield from algorithm.problems_of_memory(
                config.algorithm, config.agent, memory, config.memory.name
            )
        if config.learner.overlap is Overlap.bounded and needs_of(config).on_policy:
            yield REFUSAL.format(config.algorithm.name)


def _workers(config: Config) -> Iterator[str]:
    workers, backend = config.num_parallel_workers, config.backend
    num_slots = slots_of(config)
    if workers is not None and workers > num_slots:
        source = (
            f"num_slots={config.num_slots}"
            if config.num_slots
            else f"the {num_slots} slots of num_slots=null, which can be set"
        )
        yield f"num_parallel_workers={workers} is more than {source}: a worker without a slot has nothing to step."
    if backend.name in ("serial", "asyncio") and (workers or 1) > 1:
        yield f"backend={backend.name} steps in this process, so num_parallel_workers={workers} contradicts it: leave one of the two out."
    if backend.threads is not None and backend.name in ("process", "pipe"):
        yield f"backend.threads={backend.threads} is for stepping in this process, and these slots are stepped by worker processes: leave it out."
    if config.num_groups > num_slots:
        yield f"num_groups={config.num_groups} is more than the {num_slots} slots that there are to be divided; num_slots=N sets them."
        return
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
    if most > 1 and backend.name != "thread":
        try:
            check_startable(most, twice=True)  # to train, and to evaluate
        except BackendError as error:
            yield str(error)
    available = multiprocessing.get_all_start_methods()
    if backend.start_method.name != "auto" and backend.start_method.name not in available:
        yield f"backend.start_method={backend.start_method.name} does not exist on this system, which has {', '.join(available)}."


def _inputs(config: Config) -> Iterator[str]:
    agent = config.agent
    if (
        agent.arch is not Arch.Markov
        and not agent.action_embedding + agent.reward_embedding + agent.obs_embedding
    ):
        yield "The memory would read nothing: one of agent.action_embedding, agent.reward_embedding and agent.obs_embedding must be more than 0."


def _machine(config: Config) -> Iterator[str]:
    if config.device in (DeviceName.cuda, DeviceName.mps):
        import torch

        found = (
            torch.cuda.is_available()
            if config.device is DeviceName.cuda
            else torch.backends.mps.is_available()
        )
        if not found:
            yield f"device={config.device.name} was asked for, and torch finds none here: use device=cpu or device=auto."
