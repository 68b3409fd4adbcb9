"""The examples of the pages, added to a checkout: they train, and keep the promises of their kind."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, files_of

FILES = {path: text for page in PAGES.values() for path, text in files_of(page).items()}

# The one line in a registry that each example needs.
REGISTRIES = [
    ("envs/meta/__init__.py", "FAMILIES: dict[str, type[TaskFamily]]", "Corridor", "envs.meta.toy.corridor"),
    ("envs/meta/__init__.py", "FAMILIES: dict[str, type[TaskFamily]]", "Dial", "envs.meta.toy.dial"),
    ("policies/memory/__init__.py", "MEMORIES: dict[str, type[Memory]]", "Trace", "policies.memory.trace"),
    (
        "policies/algorithms/__init__.py",
        "ALGORITHMS: dict[str, type[Algorithm]]",
        "DDPG",
        "policies.algorithms.ddpg",
    ),
]

# A family that no page shows, by someone who has read them.
OUTSIDER = (
    "envs/meta/__init__.py",
    "FAMILIES: dict[str, type[TaskFamily]]",
    "Bandit",
    "envs.meta.toy.bandit",
)

SMALL = [
    "train.n_env_steps_total=400",
    "train.num_init_rollouts_pool=4",
    "train.num_rollouts_per_iter=4",
    "env.num_eval_tasks=2",
    "wandb.mode=disabled",
]


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout to which the files of the pages and their lines in the registries have been added."""
    house = tmp_path_factory.mktemp("extended") / "house"
    house.mkdir()
    for name in ("main.py", "pyproject.toml"):
        shutil.copy(ROOT / name, house / name)
    for name in ("configs", "envs", "policies", "buffers", "utils", "tests", "benchmarks"):
        shutil.copytree(ROOT / name, house / name, ignore=shutil.ignore_patterns("__pycache__", "results"))
    for path, text in FILES.items():
        assert not (house / path).exists(), f"{path} is there already"
        (house / path).write_text(text)
    shutil.copy(ROOT / "tests/docs/bandit.py", house / "envs/meta/toy/bandit.py")
    for file, registry, name, module in [*REGISTRIES, OUTSIDER]:
        text = (house / file).read_text()
        assert f"{registry} = {{" in text
        text = text.replace(f"{registry} = {{", f'{registry} = {{"{name}": {name}, ', 1)
        text = text.replace("\nfrom ", f"\nfrom {module} import {name}\nfrom ", 1)
        (house / file).write_text(text)
    return house


def run_in(house: Path, *words: str) -> str:
    """The output of a command that has to succeed."""
    done = subprocess.run(
        [sys.executable, *words], cwd=house, capture_output=True, text=True, check=False, timeout=250
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def num_passed(house: Path, file: str, names: str) -> int:
    """How many tests of a file pass in the extended checkout, of those that these names select."""
    output = run_in(house, "-m", "pytest", "-q", "-p", "no:cacheprovider", file, "-k", names)
    return int(re.findall(r"(\d+) passed", output)[0])


def test_all_examples_are_there() -> None:
    assert len(FILES) == len(REGISTRIES) + 1, "and one YAML"


def test_the_environment_is_fifty_lines() -> None:
    lines = [line for line in FILES["envs/meta/toy/corridor.py"].splitlines() if line.strip()]
    assert len(lines) <= 50


@pytest.mark.parametrize(
    "words",
    [
        ("env=Corridor",),
        ("env=Dial", "algorithm=DiscreteSAC"),
        ("memory=Trace", "algorithm=SAC"),
        ("algorithm=DDPG",),
    ],
    ids=" ".join,
)
def test_an_example_trains(extended: Path, words: tuple[str, ...]) -> None:
    assert "return by episode" in run_in(extended, "main.py", *words, *SMALL)


def test_the_environments_keep_the_promises_of_a_family(extended: Path) -> None:
    assert num_passed(extended, "tests/envs/meta/test_families.py", "Corridor or Dial") > 40


def test_a_family_that_starts_alike_and_draws_nothing_passes_without_a_change_to_its_tests(
    extended: Path,
) -> None:
    assert num_passed(extended, "tests/envs/meta/test_families.py", "Bandit") > 20


def test_the_memory_keeps_the_promises_of_a_memory(extended: Path) -> None:
    assert num_passed(extended, "tests/policies/memory/test_memories.py", "Trace") > 20


def test_the_algorithm_keeps_the_promises_of_an_algorithm(extended: Path) -> None:
    assert num_passed(extended, "tests/policies/algorithms/test_algorithms.py", "DDPG") > 5
