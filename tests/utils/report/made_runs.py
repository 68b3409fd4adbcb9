"""Run folders made by hand, with the files that a run leaves and numbers that a test chooses."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

OPTIONS: dict[str, Any] = {
    "format": 2,
    "env": {"family": "PointRobot", "max_rollouts_per_task": 2, "circle_radius": 1.0, "reward": "sparse"},
    "agent": {"arch": "Memory", "hidden": [64, 64]},
    "memory": {"name": "LSTM"},
    "algorithm": {"name": "PPO", "learning_rate": 0.001},
    "train": {"n_env_steps_total": 3000},
    "evaluation": {"every": 1000, "films": 0},
    "backend": {"name": "auto"},
    "wandb": {"mode": "offline"},
    "num_parallel_workers": None,
    "seed": 0,
}

# By evaluation: the returns [task][episode].
Tables = Sequence[Sequence[Sequence[float]]]


def options(changes: Mapping[str, Any]) -> dict[str, Any]:
    """The config of a run with some options changed, by their dotted names."""
    made = json.loads(json.dumps(OPTIONS))
    for name, value in changes.items():
        *sections, last = name.split(".")
        section = made
        for one in sections:
            section = section.setdefault(one, {})
        section[last] = value
    return made


def line(env_steps: int, seconds: float, table: Sequence[Sequence[float]] | None = None) -> dict[str, Any]:
    """A line of metrics; with a table, that of an evaluation."""
    found: dict[str, Any] = {"env_steps": env_steps, "updates": env_steps // 10, "time/seconds": seconds}
    if table is not None:
        for episode, values in enumerate(zip(*table, strict=True)):
            found[f"eval/train/return_episode_{episode + 1}"] = -1000.0
            found[f"eval/held_out/return_episode_{episode + 1}"] = sum(values) / len(values)
        found["eval/held_out/returns"] = [list(row) for row in table]
    return found


def make_run(
    folder: Path,
    tables: Tables,
    *,
    every: int = 1000,
    pace: float = 0.01,
    levels: Mapping[str, float] | None = None,
    used: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Path:
    """Write a run folder whose evaluations have these returns, one every so many env steps.

    Options are given as `algorithm__name="SAC"`; `pace` is the seconds that an env step takes;
    `levels` are what an oracle and random actions return in an episode, and `used` what else the run recorded
    of itself.
    """
    folder.mkdir(parents=True)
    changed = {name.replace("__", "."): value for name, value in changes.items()}
    (folder / "config.yaml").write_text(yaml.safe_dump(options(changed), sort_keys=False), encoding="utf-8")
    lines = [line(every // 2, every // 2 * pace)]
    for number, table in enumerate(tables):
        env_steps = (number + 1) * every
        lines.append(line(env_steps, env_steps * pace, table))
    text = "".join(f"{json.dumps(one)}\n" for one in lines)
    (folder / "metrics.jsonl").write_text(text, encoding="utf-8")
    if levels is not None or used is not None:
        record = {**(used or {}), "levels": levels}
        (folder / "used.json").write_text(json.dumps(record), encoding="utf-8")
    return folder
