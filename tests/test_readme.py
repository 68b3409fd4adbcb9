"""The README: its Python runs as it stands, its commands are ones that the front door takes, and its numbers
have been filled in.
"""

from __future__ import annotations

import re
import shutil
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


def files_of(language: str) -> dict[str, str]:
    """The blocks that are whole files, by their paths, which a comment at their beginning tells (in YAML
    below what Hydra wants first).
    """
    found = ((re.match(r"(?:# @.*\n)?# ([\w/]+/\w+\.\w+)", block), block) for block in blocks(language))
    return {match[1]: block for match, block in found if match}


SCRIPTS = [block for block in blocks("python") if block not in files_of("python").values()]


@pytest.mark.parametrize("number", range(len(SCRIPTS)))
def test_the_python_of_the_readme_runs(number: int, tmp_path: Path) -> None:
    """As a script without a guard, which may start workers all the same."""
    script = tmp_path / "example.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{SCRIPTS[number]}")
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr


REGISTRIES = [
    ("envs/meta/__init__.py", "FAMILIES: dict[str, type[TaskFamily]]", "Corridor", "envs.meta.corridor"),
    ("policies/memory/__init__.py", "MEMORIES: dict[str, type[Memory]]", "Trace", "policies.memory.trace"),
    (
        "policies/algorithms/__init__.py",
        "ALGORITHMS: dict[str, type[Algorithm]]",
        "DDPG",
        "policies.algorithms.ddpg",
    ),
]
"""The one line that each example needs."""


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout to which the files of the README and their lines in the registries have been added."""
    house = tmp_path_factory.mktemp("extended") / "house"
    tracked = (
        "main.py",
        "pyproject.toml",
        "configs",
        "envs",
        "policies",
        "buffers",
        "utils",
        "tests",
        "benchmarks",
    )
    house.mkdir()
    for name in tracked:
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, house / name)
    for path, text in {**files_of("python"), **files_of("yaml")}.items():
        assert not (house / path).exists(), f"{path} is there already"
        (house / path).write_text(text)
    for file, registry, name, module in REGISTRIES:
        text = (house / file).read_text()
        assert f"{registry} = {{" in text
        line = f"from {module} import {name}\n"
        (house / file).write_text(
            text.replace(f"{registry} = {{", f'{registry} = {{"{name}": {name}, ', 1).replace(
                "\nfrom ", f"\n{line}from ", 1
            )
        )
    return house


def run_in(house: Path, *words: str) -> str:
    """The output of a command that has to succeed."""
    done = subprocess.run(
        [sys.executable, *words], cwd=house, capture_output=True, text=True, check=False, timeout=250
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_the_environment_of_the_readme_is_forty_lines() -> None:
    lines = [line for line in files_of("python")["envs/meta/corridor.py"].splitlines() if line.strip()]
    assert len(lines) <= 50


def test_the_environment_of_the_readme_trains(extended: Path) -> None:
    assert "Corridor" in run_in(extended, "main.py", "env=list")
    small = [
        "train.n_env_steps_total=400",
        "train.num_init_rollouts_pool=4",
        "train.num_rollouts_per_iter=4",
        "wandb.mode=disabled",
    ]
    assert "return by episode" in run_in(extended, "main.py", "env=Corridor", "env.num_eval_tasks=2", *small)


def test_the_environment_of_the_readme_keeps_the_promises_of_a_family(extended: Path) -> None:
    told = run_in(
        extended,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/envs/meta/test_families.py",
        "-k",
        "Corridor",
    )
    assert int(re.findall(r"(\d+) passed", told)[0]) > 20


def test_the_memory_of_the_readme_trains_and_keeps_the_promises_of_a_memory(extended: Path) -> None:
    small = [
        "train.n_env_steps_total=400",
        "train.num_init_rollouts_pool=4",
        "train.num_rollouts_per_iter=4",
        "wandb.mode=disabled",
    ]
    assert "return by episode" in run_in(extended, "main.py", "memory=Trace", "env.num_eval_tasks=2", *small)
    told = run_in(
        extended,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/policies/memory/test_memories.py",
        "-k",
        "Trace",
    )
    assert int(re.findall(r"(\d+) passed", told)[0]) > 20


def test_the_algorithm_of_the_readme_trains_and_keeps_the_promises_of_an_algorithm(extended: Path) -> None:
    small = [
        "train.n_env_steps_total=400",
        "train.num_init_rollouts_pool=4",
        "train.num_rollouts_per_iter=4",
        "wandb.mode=disabled",
    ]
    assert "return by episode" in run_in(
        extended, "main.py", "algorithm=DDPG", "env.num_eval_tasks=2", *small
    )
    told = run_in(
        extended,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/policies/algorithms/test_algorithms.py",
        "-k",
        "DDPG",
    )
    assert int(re.findall(r"(\d+) passed", told)[0]) > 5


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
