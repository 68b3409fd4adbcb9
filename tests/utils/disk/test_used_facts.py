"""What the processes of a run used, one after another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from utils.disk.used_facts import HISTORY, MOST_RESUMES, USED, save_used, used_before


def test_each_resume_keeps_what_was_otherwise_before_it(tmp_path: Path) -> None:
    facts = {"workers": 1, "commit": "a"}
    for env_steps, change in ((100, {"workers": 2}), (200, {}), (300, {"commit": "b", "workers": 3})):
        save_used(facts, tmp_path)
        now = facts | change
        facts = now | used_before(tmp_path, {name: now[name] for name in ("workers", "commit")}, env_steps)
    assert facts[HISTORY] == [
        {"until_env_steps": 100, "workers": 1},
        {"until_env_steps": 200},
        {"until_env_steps": 300, "workers": 2, "commit": "a"},
    ]
    save_used(facts, tmp_path)
    assert json.loads((tmp_path / USED).read_text()) == facts


@pytest.mark.parametrize("text", [None, "", "[]", '{"before_resumes": 3}'])
def test_a_damaged_record_only_loses_the_history(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / USED).write_text(text)
    assert used_before(tmp_path, {"workers": 1}, 5) == {HISTORY: [{"until_env_steps": 5, "workers": None}]}


def test_a_run_that_is_resumed_for_ever_keeps_a_short_history(tmp_path: Path) -> None:
    save_used({HISTORY: [{"until_env_steps": number} for number in range(MOST_RESUMES)]}, tmp_path)
    history = used_before(tmp_path, {}, 1000)[HISTORY]
    assert (len(history), history[0], history[-1]) == (
        MOST_RESUMES,
        {"until_env_steps": 1},
        {"until_env_steps": 1000},
    )
