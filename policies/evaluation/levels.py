"""Levels: what random actions and an oracle return on the lists of a run, where no reference is recorded."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from envs.backends.base import BackendError
from envs.base import TaskFamily
from envs.parallel_env_manager import ParallelEnvManager, WorkerError
from policies.collection.actors import Actor, OracleActor, OracleError, RandomActor
from policies.collection.wave import WaveInterrupted, WaveResult
from policies.evaluation.playing import evaluate_list
from policies.evaluation.table import ORACLE, POLICIES, RANDOM, Levels
from policies.run.config import plain
from policies.run.context import RunContext
from utils.disk.manifest import digest_of
from utils.disk.own_files import read_object, replace_file

# The file of a run folder that keeps what was measured: it is not measured again.
REFERENCES = "references.json"
# What all lists together may take; of what takes longer nothing is shown.
SECONDS = 10.0
# Of so many lists the returns are kept: each evaluation on other tasks adds some.
MOST_LISTS = 50
MOST_BYTES = 10_000_000

_log = logging.getLogger(__name__)

# By the digest of what was played: the list's name, and the mean return of every episode by policy.
_Kept = dict[str, dict[str, Any]]


class EvaluatedRun(Protocol):
    """The run whose lists are played: the Learner offers this."""

    context: RunContext

    @property
    def eval_env(self) -> ParallelEnvManager: ...

    @property
    def stop_signal(self) -> int | None: ...

    def tick(self, wave: WaveResult | None = None) -> bool: ...


def levels_of(run: EvaluatedRun, seconds: float = SECONDS) -> Levels:
    """The reference that is recorded for these settings, or what random actions and the oracle return here.

    They are played as the agent is: the same tasks, episodes and seeds. Nothing is measured for a run without
    a folder, or one that was stopped.
    """
    context = run.context
    if context.reference is not None or context.run_dir is None or run.stop_signal is not None:
        return Levels(context.reference)

    path, until = context.run_dir / REFERENCES, time.monotonic() + seconds
    kept, measured = _read(path), dict[str, dict[str, list[float]]]()
    try:
        for name, tasks in context.tasks.evaluation.items():
            key = _key(context, tasks)
            # The newest stands last, so that the oldest is forgotten first.
            entry = kept[key] = kept.pop(key, {}) | {"list": name}
            measured[name] = {policy: entry[policy] for policy in POLICIES if policy in entry}
            for policy, actor in _actors(context.family).items():
                if policy in entry:
                    continue
                returns = _mean_returns(run, actor, tasks, lambda: time.monotonic() > until)
                if np.isfinite(returns).all():  # otherwise a trial was given up after a fault
                    measured[name][policy] = entry[policy] = returns
    except WaveInterrupted:
        if run.stop_signal is None:
            _log.warning("There is less to compare with: playing it would take over %g s.", seconds)
    # What an environment or an oracle does wrong must not end a run that has learned.
    except (BackendError, OracleError, WorkerError) as error:
        _log.warning("There is less to compare with: %s", str(error).partition("\n")[0])
    _write(path, kept)
    # Always in one order, whichever was measured first.
    ordered = {
        name: {policy: levels[policy] for policy in POLICIES if policy in levels}
        for name, levels in measured.items()
    }
    return Levels(measured={name: levels for name, levels in ordered.items() if levels})


def _actors(family: TaskFamily) -> dict[str, Actor]:
    """What can be measured of a family: random actions, and its oracle where it has one."""
    actors: dict[str, Actor] = {RANDOM: RandomActor(family.spec.action_space)}
    if family.has_oracle:
        actors[ORACLE] = OracleActor(family)
    return actors


def _mean_returns(
    run: EvaluatedRun, actor: Actor, tasks: NDArray[np.float64], is_late: Callable[[], bool]
) -> list[float]:
    """[k] the mean return of every episode."""
    config = run.context.config
    result = evaluate_list(
        run.eval_env,
        actor,
        tasks,
        seed=config.seed,
        trials_per_task=config.evaluation.trials_per_task,
        tick=lambda _: run.tick() or is_late(),
    )
    return result.returns.mean(0).tolist()


def _key(context: RunContext, tasks: NDArray[np.float64]) -> str:
    """A digest of all that the returns on a list depend on."""
    config, family = context.config, context.family
    regime = context.evaluation_episodes, config.evaluation.trials_per_task, config.seed
    return digest_of([plain(asdict(config.env)), type(family).version, regime, tasks.tolist()])


def _read(path: Path) -> _Kept:
    """What was measured before; nothing where the file is missing or damaged."""
    return {key: entry for key, entry in read_object(path, MOST_BYTES).items() if _is_entry(entry)}


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, Mapping):
        return False
    numbers = [entry[policy] for policy in POLICIES if policy in entry]
    return all(isinstance(row, list) and all(type(value) is float for value in row) for row in numbers)


def _write(path: Path, kept: _Kept) -> None:
    newest = dict(list(kept.items())[-MOST_LISTS:])
    lines = [f" {json.dumps(key)}: {json.dumps(entry)}" for key, entry in newest.items()]
    try:
        replace_file(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())
    except OSError as error:
        _log.warning("What was measured to compare with is shown here only: %s.", error)
