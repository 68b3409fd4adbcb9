"""The README: its Python runs as it stands, its commands are ones that the front door takes, and its numbers have been filled in."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from configs.cli import read

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The code blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_the_python_of_the_readme_runs(number: int, tmp_path: Path) -> None:
    """As a script without a guard, which may start workers all the same."""
    script = tmp_path / "example.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{blocks('python')[number]}")
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


def test_the_commands_of_the_readme_are_understood() -> None:
    lines = [line.partition("#")[0].split() for block in blocks("bash") for line in block.splitlines()]
    commands = [words[2:] for words in lines if words[:2] == ["python", "main.py"]]
    assert len(commands) > 5
    for words in commands:
        if not any(word.startswith(("resume=", "evaluate=")) for word in words):
            read(words)


def test_what_the_readme_names_is_there() -> None:
    for name in re.findall(r"`((?:envs|policies|buffers|configs|utils|tests|benchmarks)/[\w/.]*)`", TEXT):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"\]\(([^)]+)\)", TEXT):
        assert (ROOT / name).exists(), name


def test_no_number_is_left_to_fill_in() -> None:
    assert "@@" not in TEXT
