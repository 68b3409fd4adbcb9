"""What a run will do, as far as its config says it: told at the start, before anybody waits for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from policies.agents.base import Arch
from policies.algorithms import ALGORITHMS
from policies.algorithms.base import Passes
from policies.memory import MEMORIES
from policies.run.config import Config, plain, remove_permissions
from policies.run.progress import Counters, Stage
from policies.run.sizes import RunSizes, needs_of, pool_trials
from utils.disk.manifest import digest_of
from utils.disk.own_files import read_object

# Fewer gradient steps than this teach hardly anything: PPO with a GRU solves CartPole after some 430.
TOO_FEW_GRADIENT_STEPS = 300
# Fewer than this are enough for easy tasks only: none of the other recipes makes so few.
FEW_GRADIENT_STEPS = 1_000
# More than this take many hours: a small network makes some hundred a second.
MANY_GRADIENT_STEPS = 1_000_000
# The parts of a config that decide what is learned; the others say where and how it runs.
LEARNED = ("env", "agent", "memory", "algorithm", "train", "curriculum", "num_slots")
# What the runs of the zoo took of one core, in minutes, by the digest of what they learned.
MINUTES = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "zoo" / "minutes.json"
MOST_BYTES = 1_000_000


def forecast(config: Config, sizes: RunSizes, counters: Counters | None = None) -> Iterator[str]:
    """Lines on a run with these options, completed by its family: what it will do, then what to mind.

    They count trials of full length: where episodes end early there may be more waves. `counters` are those
    of a run that goes on, whose plan is what is left of it.
    """
    counters = counters or Counters()
    needs, made = needs_of(config), counters.env_steps
    longest = config.env.max_rollouts_per_task * config.env.max_episode_steps

    # 1. The random pool, and waves for what it leaves.
    pool = _pool_left(config, counters) * longest
    wave = _Wave.of(sizes, longest)
    left = max(config.train.n_env_steps_total - made, 0)
    waves = ceil(max(left - pool, 0) / wave.env_steps)
    # Waves of short trials may be as small as what was asked for, and the pool nearly nothing.
    most_waves = ceil(left / (sizes.wave_env_steps or wave.env_steps))
    taken = made + pool + waves * wave.env_steps

    # 2. Gradient steps: on-policy in every wave, off-policy for every env step, those of the pool included.
    columns = wave.env_steps // longest
    passes = ALGORITHMS[config.algorithm.name].passes(config.algorithm, config.agent.arch, columns, longest)
    per_update = passes.epochs * passes.steps if needs.on_policy else 1
    # A pool of full trials may leave nothing, and one of short trials nearly all.
    unknown = 0 < left <= pool
    least = "at least " * unknown
    if needs.on_policy:
        steps, most_steps = waves * per_update, most_waves * per_update
        rows, each = wave.env_steps // passes.steps, f"{passes.epochs} x {passes.steps} gradient steps"
    else:
        # These follow the env steps, however many waves there are.
        steps = most_steps = int((left if unknown else taken - made) * sizes.updates_per_step)
        rows, each = sizes.batch_rows, f"{sizes.updates_per_step * wave.env_steps:,.4g} gradient steps"
    due = counters.updates_due * per_update
    done = counters.updates * per_update + due
    few = ", which are few for all but easy tasks" if _are_few(done + most_steps) else ""
    since = "more" if made else "in all"
    yield (
        f"plan         with trials of full length: {_before(counters, pool)}{least}"
        f"{_several(waves, 'iteration')} of {wave.env_steps:,} env steps with {each} each, over {rows:,} "
        f"rows: {least}{steps + due:,} gradient steps {since}{few}"
    )

    # 3. What to mind, and what is held and taken beyond the budget.
    if waves or unknown:
        yield from _beyond(config, wave)
    if not needs.on_policy:
        yield _replay(sizes)
    yield from _warnings(config, done + steps, done + most_steps, made + pool if pool else 0)
    yield from _uncut(config, passes)


def _before(counters: Counters, pool: int) -> str:
    """What was made, and the random actions that come first."""
    made, updates = counters.env_steps, _several(counters.updates, "update")
    first = f"{made:,} env steps and {updates} are made; now " if made else ""
    return first + (f"up to {pool:,} env steps of random actions, then " if pool else "")


def _pool_left(config: Config, counters: Counters) -> int:
    """The trials of random actions that a run has still to play."""
    if counters.stage != Stage.random_pool:
        return 0
    return max(pool_trials(config) - counters.warmup_trials, 0)


def _replay(sizes: RunSizes) -> str:
    held, per_trial = sizes.buffer_shape["capacity_rows"], sizes.buffer_shape["rows_per_trial"]
    return f"replay       the last {held:,} rows: {held // per_trial:,} trials of full length"


def learned_digest(settings: Mapping[str, Any]) -> str:
    """The hash of all settings that decide what a run learns, given as the types of YAML."""
    learned = {name: settings[name] for name in LEARNED}
    learned["env"] = dict(learned["env"])
    remove_permissions(learned)
    return digest_of(what_is_on(learned))[:16]


def what_is_on(settings: Any) -> Any:
    """Settings without those that are false or null: a new option that is off leaves the hash of its section
    as it was.
    """
    if not isinstance(settings, Mapping):
        return settings
    kept = {key: value for key, value in settings.items() if value is not None and value is not False}
    return {key: what_is_on(value) for key, value in kept.items()}


def recorded_minutes(config: Config) -> float | None:
    """What a run with these settings took of one core when the project recorded it; None if it never did."""
    minutes = read_object(MINUTES, MOST_BYTES).get(learned_digest(plain(asdict(config))))
    return float(minutes) if isinstance(minutes, int | float) else None


class _Wave(NamedTuple):
    """What a wave takes: a trial in every slot at least, or all trials that it was asked for."""

    # Where all trials have full length.
    env_steps: int
    # Where each slot has just begun a trial when the last env step of the budget is taken.
    most: int

    @classmethod
    def of(cls, sizes: RunSizes, longest: int) -> _Wave:
        """The wave of these sizes, with trials of at most so many env steps."""
        if sizes.wave_env_steps is None:
            taken = sizes.wave_trials * longest
            return cls(taken, taken)
        # All slots begin and end their trials together: so many in turn until the env steps are taken.
        at_once = sizes.num_slots * longest
        taken = ceil(sizes.wave_env_steps / at_once) * at_once
        return cls(taken, sizes.wave_env_steps - 1 + at_once)


def _beyond(config: Config, wave: _Wave) -> Iterator[str]:
    if wave.most > 1:
        yield (
            f"budget       waves are whole: the last one may take up to {wave.most - 1:,} env steps more "
            f"than train.n_env_steps_total={config.train.n_env_steps_total:,}"
        )


def _uncut(config: Config, passes: Passes) -> Iterator[str]:
    if passes.steps >= passes.asked:
        return
    made = (
        f"Note: algorithm.minibatches={passes.asked} makes {passes.steps} here with trials of full length, "
        "for there are no more"
    )
    if config.agent.arch is Arch.Markov:
        yield f"{made} rows to mix."
    else:
        windows = "set algorithm.window, or " if MEMORIES[config.memory.name].stores_state else ""
        yield f"{made} columns of rows to mix: {windows}use more slots."


def _are_few(steps: int) -> bool:
    """Whether so many gradient steps are enough for easy tasks, and for no others."""
    return TOO_FEW_GRADIENT_STEPS <= steps < FEW_GRADIENT_STEPS


def _warnings(config: Config, steps: int, most_steps: int, pool: int) -> Iterator[str]:
    """What to mind of a run with so many gradient steps by trials of full length, and so many at most."""
    total, on_policy = config.train.n_env_steps_total, needs_of(config).on_policy
    if 0 < most_steps < TOO_FEW_GRADIENT_STEPS:
        remedy = f"raise train.n_env_steps_total or {_ratio_of(config)}"
        if on_policy:
            remedy = "lower train.num_env_steps_per_iter or num_slots, or raise train.n_env_steps_total"
        yield f"Warning: at most {most_steps:,} gradient steps in all teach hardly anything: {remedy}."
    if steps > MANY_GRADIENT_STEPS:
        remedy = "algorithm.epochs or algorithm.minibatches" if on_policy else _ratio_of(config)
        yield f"Note: {steps:,} gradient steps in all take long: lower {remedy} where fewer are enough."
    yield from ALGORITHMS[config.algorithm.name].warnings(config.algorithm, total)
    if pool >= total:
        yield (
            f"Warning: the random pool of train.num_init_rollouts_pool={pool_trials(config)} trials may take "
            f"{pool:,} env steps, and then train.n_env_steps_total={total:,} leaves none for the agent."
        )


def _ratio_of(config: Config) -> str:
    """The option that says how many updates an env step earns."""
    return "train.replay_ratio" if config.train.updates_per_step is None else "train.updates_per_step"


def _several(count: int, noun: str) -> str:
    """'1 iteration', '2 iterations', '0 iterations'."""
    return f"{count:,} {noun}{'s' * (count != 1)}"
