"""What oracles and random actions score: the numbers behind every family's `spec.reference`.

    python -m benchmarks.scores             every family, into benchmarks/results/scores.json
    python -m benchmarks.scores GridNavi    some families

A score is the mean return of the first episode of each task, with its standard error, over tasks of the test
split.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.parts.machine import facts, write
from envs.base import Reference, Shelf, TaskFamily, uniform_actions
from envs.layout import Layout
from envs.meta import FAMILIES
from envs.meta.make_env import make_family
from utils.options import nearest

RESULTS = Path(__file__).parent / "results" / "scores.json"


def returns_of(
    family: TaskFamily, tasks: NDArray[np.float64], *, oracle: bool, seed: int = 0
) -> NDArray[np.float64]:
    """[n] the returns of the first episode of each task, by the oracle or by uniform actions."""
    rng, n = np.random.default_rng(seed), len(tasks)
    shard, layout = family.make_shard(n, 1), Layout(family.spec)
    rows = layout.allocate(n)
    shard.bind(rows)
    shard.reset(np.arange(n), tasks, rng.integers(2**63, size=n).astype(np.uint64))
    total, going = np.zeros(n), np.arange(n)
    for _ in range(family.config.max_episode_steps):
        if oracle:
            actions = family.oracle_action(rows.obs, tasks, rows.info)
        else:
            actions = uniform_actions(rng, family.spec.action_space, n)
        shard.step(going, actions[going])
        total[going] += rows.reward[going]
        going = going[~rows.terminated[going]]
        if not len(going):
            break
    shard.close()
    return total


def scores_of(family: TaskFamily, reference: Reference) -> dict[str, Any]:
    """Both scores with their standard errors, over the tasks and the seed that the reference names."""
    tasks = family.sample_tasks(np.random.default_rng(reference.seed), reference.tasks, "test")
    found: dict[str, Any] = {
        "version": type(family).version,
        "tasks": reference.tasks,
        "seed": reference.seed,
    }
    for name, reported in (("oracle", reference.oracle), ("random", reference.random)):
        if reported is not None:
            returns = returns_of(family, tasks, oracle=name == "oracle", seed=reference.seed)
            found[name] = {
                "mean": float(returns.mean()),
                "error": float(returns.std() / math.sqrt(len(returns))),
                "reported": reported,
            }
    return found


def family_name(name: str) -> str:
    """Refuse a name that no family has; an argparse type."""
    if name not in FAMILIES:
        raise argparse.ArgumentTypeError(f"there is no family {name}.{nearest(name, FAMILIES)}")
    return name


def _score_text(score: dict[str, float] | None) -> str:
    return "none" if score is None else f"{score['mean']:12.3f} ± {score['error']:.3f}"


def _option_text(option: tuple[str, Any]) -> str:
    name, value = option
    return f"{name}={getattr(value, 'value', value)}"


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "names",
        nargs="*",
        metavar="FAMILY",
        type=family_name,
        help="families; default: all but third-party ones",
    )
    names = parser.parse_args().names or [
        name for name, kind in FAMILIES.items() if kind.shelf is not Shelf.third_party
    ]
    machine, found = facts(), dict[str, Any]()
    print(f"{machine['text']}\n{'return of an episode':24}{'oracle':>20}{'random':>20}{'tasks':>9}  reported")
    for name in names:
        if not FAMILIES[name].references:
            print(f"{name:24}reports no reference")
        for reference in FAMILIES[name].references:
            called = " ".join([name, *map(_option_text, reference.options.items())])
            family = make_family(FAMILIES[name].Config(**reference.options))
            one = found[called] = scores_of(family, reference)
            cells = [_score_text(one.get(policy)) for policy in ("oracle", "random")]
            reported = f"{reference.oracle}, {reference.random}"
            print(f"{called:24}{cells[0]:>20}{cells[1]:>20}{one['tasks']:9}  {reported}")
    if set(names) >= {name for name, kind in FAMILIES.items() if kind.shelf is not Shelf.third_party}:
        write(RESULTS, {"machine": machine, "scores": found})


if __name__ == "__main__":
    main()
