"""A command that ends with a text reaches what makes it."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from configs import answers
from configs.answers import make_answer
from configs.cli import CommandLine
from configs.search import running


def test_each_command_reaches_its_own_maker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "run_search", lambda search, run_with, failed: (f"search {search}", failed))
    monkeypatch.setattr(answers, "evaluate_runs", lambda runs, run_with, failed: (f"runs {runs}", 0))
    search = CommandLine((), mode="search", search=Mock(__str__=lambda self: "here"))
    assert make_answer(search, Mock(), failed=7) == ("search here", 7)
    assert make_answer(CommandLine((), mode="evaluate"), Mock(), failed=7) == ("runs ()", 0)
    assert not list(Path().glob("search"))
