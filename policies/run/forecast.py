"""What a run will do, as far as its config says it: told at the start, before anybody waits for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from math import ceil
from pathlib import Path
from typing import Any

from policies.algorithms import ALGORITHMS
from policies.run.config import Config, plain, remove_permissions
from policies.run.progress import Counters, Stage
from policies.run.sizes import RunSizes, needs_of, pool_trials
from utils.disk.manifest import digest_of
from utils.disk.own_files import read_object

# Fewer gradient steps than this teach hardly anything.
FEW_GRADIENT_STEPS = 1000
# The part of a run by which its last wave may pass it before that is worth a word.
MUCH_BEYOND = 0.1
# The parts of a config that decide what is learned; the others say where and how it runs.
LEARNED = ("env", "agent", "memory", "algorithm", "train", "curriculum", "num_slots")
# What the runs of the zoo took of one core, in minutes, by the digest of what they learned.
MINUTES = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "zoo" / "minutes.json"
MOST_BYTES = 1_000_000


def forecast(config: Config, sizes: RunSizes, counters: Counters | None = None) -> Iterator[str]:
    """Lines on a run with these options, completed by its family: what it will do, then what to mind.

    They count trials of full length; where episodes end early there are more waves, of fewer env steps.
    `counters` are those of a run that goes on: then the plan is what is left of it.
    """
    counters = counters or Counters()
    needs, made = needs_of(config), counters.env_steps
    longest = config.env.max_rollouts_per_task * config.env.max_episode_steps

    # 1. The random pool, and waves for what it leaves.
    pool = 0
    if counters.stage == Stage.random_pool:
        pool = max(pool_trials(config) - counters.warmup_trials, 0) * longest
    wave = _env_steps_of_a_wave(sizes, longest)
    waves = ceil(max(config.train.n_env_steps_total - made - pool, 0) / wave)
    taken = made + pool + waves * wave

    # 2. Gradient steps: on-policy in every wave, off-policy for every env step, those of the pool included.
    columns = wave // longest
    passes = ALGORITHMS[config.algorithm.name].passes(config.algorithm, config.agent.arch, columns, longest)
    per_update = passes.epochs * passes.steps if needs.on_policy else 1
    if needs.on_policy:
        steps = waves * per_update
        rows, each = wave // passes.steps, f"{passes.epochs} x {passes.steps} gradient steps"
    else:
        steps = int((taken - made) * sizes.updates_per_step)
        rows, each = sizes.batch_rows, f"{sizes.updates_per_step * wave:,.4g} gradient steps"
    steps += counters.updates_due * per_update
    first = f"{made:,} env steps and {_several(counters.updates, 'update')} are made; now " if made else ""
    first += f"{pool:,} env steps of random actions, then " if pool else ""
    more = "more" if made else "in all"
    yield (
        f"plan         {first}{_several(waves, 'iteration')} of {wave:,} env steps with {each} each, "
        f"over {rows:,} rows: {steps:,} gradient steps {more}"
    )

    # 3. What a replay holds.
    if not needs.on_policy:
        held, per_trial = sizes.buffer_shape["capacity_rows"], sizes.buffer_shape["rows_per_trial"]
        yield f"replay       the last {held:,} rows: {held // per_trial:,} trials of full length"
    all_steps = counters.updates * per_update + steps
    yield from _warnings(config, all_steps, made + pool if pool else 0, taken)
    if passes.steps < passes.asked:
        yield (
            f"Note: algorithm.minibatches={passes.asked} makes {passes.steps} here, for there are no more "
            "columns of rows to mix: set algorithm.window, or use more slots."
        )


def learned_digest(settings: Mapping[str, Any]) -> str:
    """The hash of all settings that decide what a run learns, given as the types of YAML."""
    learned = {name: settings[name] for name in LEARNED}
    learned["env"] = dict(learned["env"])
    remove_permissions(learned)
    return digest_of(learned)[:16]


def recorded_minutes(config: Config) -> float | None:
    """What a run with these settings took of one core when the project recorded it; None if it never did."""
    minutes = read_object(MINUTES, MOST_BYTES).get(learned_digest(plain(asdict(config))))
    return float(minutes) if isinstance(minutes, int | float) else None


def _env_steps_of_a_wave(sizes: RunSizes, longest: int) -> int:
    """A wave starts a trial in every slot at least, or all trials that it was asked for."""
    if sizes.wave_env_steps is None:
        return sizes.wave_trials * longest
    return max(sizes.wave_env_steps, sizes.num_slots * longest)


def _warnings(config: Config, steps: int, pool: int, taken: int) -> Iterator[str]:
    total = config.train.n_env_steps_total
    if 0 < steps < FEW_GRADIENT_STEPS:
        remedy = "raise train.n_env_steps_total or train.replay_ratio"
        if needs_of(config).on_policy:
            remedy = "lower train.num_env_steps_per_iter or num_slots, or raise train.n_env_steps_total"
        yield f"Warning: {steps:,} gradient steps in all teach hardly anything: {remedy}."
    if pool >= total:
        yield (
            f"Warning: the random pool of train.num_init_rollouts_pool={pool_trials(config)} trials takes up "
            f"to {pool:,} env steps, and train.n_env_steps_total={total:,} leaves none for the agent."
        )
    elif taken - total > MUCH_BEYOND * total:
        yield (
            f"Note: waves are whole, so this run may take up to {taken - total:,} env steps more than "
            f"train.n_env_steps_total={total:,}."
        )


def _several(count: int, noun: str) -> str:
    """'1 iteration', '2 iterations', '0 iterations'."""
    return f"{count:,} {noun}{'s' * (count != 1)}"
