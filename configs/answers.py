"""Commands that end with a text, each made by a module of its own."""

from __future__ import annotations

from configs.cli import CommandLine
from configs.evaluating import Runs, evaluate_runs


def make_answer(command: CommandLine, run_with: Runs, *, failed: int) -> tuple[str, int]:
    """Do what a command line asks for; (what is to be shown, the exit code)."""
    if command.search is not None:
        from configs.search.running import run_search

        return run_search(command.search, run_with, failed=failed)
    return evaluate_runs(command.runs, run_with, failed=failed)
