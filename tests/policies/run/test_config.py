"""The root config: every option has a line of help and a default in its range."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from policies.run.config import FORMAT, PERMISSIONS, RECORD, plain, read_record, save
from tests.runs import tiny_config
from utils.options import OptionError, range_problems


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


def test_what_is_recorded_is_read_again_without_what_was_permitted(tmp_path: Path) -> None:
    config = tiny_config(allow_links=True, resume_without_damaged=True)
    save(config, tmp_path)
    expected = {name: value for name, value in plain(config).items() if name not in PERMISSIONS}
    assert read_record(tmp_path / RECORD) == expected
    with (tmp_path / RECORD).open("a") as file:
        file.write("allow_links: true\n")
    assert read_record(tmp_path / RECORD) == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- a", "cannot be read as the config of a run: it holds no options."),
        ("env: 3", "cannot be read as the config of a run: it has no format."),
        ("a: &a [x]\nb: [*a, *a]", "cannot be read as the config of a run: it has an alias"),
        (f"format: {FORMAT}\na: ['${{b}}']", "a.0 is '${b}': a record is not filled in"),
        (f"format: {FORMAT}\n${{b}}: 1", "a record is not filled in"),
        (f"format: {FORMAT + 1}", f"has format {FORMAT + 1}, and this version"),
        ("algorithm: {name: PPO}", "was written by an older version of Retrial"),
    ],
)
def test_a_record_that_is_none_is_one_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / RECORD).write_text(text)
    with pytest.raises(OptionError) as caught:
        read_record(tmp_path / RECORD)
    assert sentence in str(caught.value) and str(tmp_path / RECORD) in str(caught.value)
