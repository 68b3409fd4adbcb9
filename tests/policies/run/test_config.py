"""The root config: every option has a line of help and a default in its range."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from tests.runs import tiny_config
from utils.options import range_problems


def test_every_option_has_its_line_of_help() -> None:
    def missing(config: Any, prefix: str = "") -> list[str]:
        found = []
        for item in fields(config):
            value = getattr(config, item.name)
            if is_dataclass(value):
                found += missing(value, f"{prefix}{item.name}.")
            elif not item.metadata.get("help") and item.name != "family":
                found.append(prefix + item.name)
        return found

    assert missing(tiny_config()) in ([], ["env.max_rollouts_per_task", "env.max_episode_steps"]), (
        "a family may repeat an option with its own default"
    )


def test_a_value_out_of_range_is_named() -> None:
    assert not list(range_problems(tiny_config()))
    problems = list(range_problems(tiny_config(train={"num_rollouts_per_iter": 0})))
    assert problems == ["train.num_rollouts_per_iter=0 is out of range: it must be at least 1."]
