"""What a curriculum is worth: each beside `uniform`, for as many env steps, where choosing tasks matters.

    python -m benchmarks.curricula                       every case, seeds 0 to 4
    python -m benchmarks.curricula stages --seeds 0 1

Each case is a run of `main.py` whose agent is given the task, so that it learns in seconds; the score is the
return at its end, on the test list or on one part of it. Each case goes into
benchmarks/results/curricula.json, in place of an older one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.parts.machine import facts, write
from utils.statistics import iqm_interval

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).parent / "results" / "curricula.json"

# One episode in a trial of an agent that sees the task, and PPO with small waves.
_QUICK = (
    "agent=Markov algorithm=PPO algorithm.entropy_coef=0.01 env.oracle=true env.max_rollouts_per_task=1 "
    "num_slots=32 train.num_init_rollouts_pool=0 train.n_env_steps_total=75000 evaluation.every=25000"
)
# A part that is mastered at once and played ten or twenty times as often as the one that takes practice.
_KNOWN = (
    "env=Mixture env.parts.known.family=GridNavi env.parts.known.size=3 "
    "env.parts.known.max_episode_steps=6 env.parts.learnable.family=GridNavi env.parts.learnable.size=5 "
    "env.num_eval_tasks=420 env.num_train_tasks=420 train.num_env_steps_per_iter=1000"
)
# And a part in which no door can be reached.
_LOST = (
    "env.parts.lost.family=GridNavi env.parts.lost.variant=hall env.parts.lost.size=100 "
    "env.parts.lost.door_every=25 env.parts.lost.max_episode_steps=15 env.parts.lost.weight=10"
)


@dataclass(frozen=True)
class BesideUniform:
    """A run that each of two curricula plays, and the metric that tells how well it went."""

    words: tuple[str, ...]
    metric: str


CASES = {
    # A hall whose far doors random actions never find.
    "stages": BesideUniform(
        (
            *_QUICK.split(),
            *["env=GridNavi", "env.variant=hall", "env.size=13", "env.max_episode_steps=25"],
            *["env.num_train_tasks=24", "env.num_eval_tasks=30", "train.num_env_steps_per_iter=1600"],
        ),
        "eval/in_distribution/return_episode_1",
    ),
    "learning_progress": BesideUniform(
        (*_QUICK.split(), *_KNOWN.split(), "env.parts.known.weight=10", *_LOST.split()),
        "eval/in_distribution/return/learnable_episode_1",
    ),
    "prioritised": BesideUniform(
        (*_QUICK.split(), *_KNOWN.split(), "env.parts.known.weight=20"),
        "eval/in_distribution/return/learnable_episode_1",
    ),
}


def returns_by_seed(case: BesideUniform, curriculum: str, seeds: Sequence[int]) -> list[float]:
    """The return at the end for each seed, all played by one command."""
    with tempfile.TemporaryDirectory() as folder:
        words = [
            *case.words,
            f"curriculum={curriculum}",
            f"seed={','.join(map(str, seeds))}",
            f"hydra.sweep.dir={folder}",
            "backend=serial",
            "wandb.mode=disabled",
        ]
        subprocess.run(
            [sys.executable, "main.py", "-m", *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL
        )
        lines = [
            (Path(folder) / str(job) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1]
            for job in range(len(seeds))
        ]
    return [json.loads(line)[case.metric] for line in lines]


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="CURRICULUM", help="default: every case")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    chosen = parser.parse_args()
    for name in chosen.names:
        if name not in CASES:
            parser.error(f"{name} is no case: {', '.join(CASES)}.")
    machine, found = facts(), dict[str, Any]()
    print(machine["text"])
    for name in chosen.names or CASES:
        case = CASES[name]
        scores = {one: returns_by_seed(case, one, chosen.seeds) for one in ("uniform", name)}
        settings = {"command": " ".join(case.words), "metric": case.metric, "seeds": chosen.seeds}
        found[name] = settings | {"scores": scores, "load": os.getloadavg()}
        for one, values in scores.items():
            print(f"{name:18}{one:18}{iqm_interval(values)!s:32}{[round(value, 2) for value in values]}")
        before = json.loads(RESULTS.read_text(encoding="utf-8"))["cases"] if RESULTS.exists() else {}
        write(RESULTS, {"machine": machine, "cases": before | found})


if __name__ == "__main__":
    main()
