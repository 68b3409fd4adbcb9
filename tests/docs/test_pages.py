"""The pages: their links lead somewhere, their Python runs, and the front door reads their commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from configs import validation
from configs.cli import read
from configs.exporting import ExportConfig
from configs.schema import root, schemas
from configs.search import command
from envs.meta import FAMILIES
from tests.docs.pages import PAGES, ROOT, anchors, blocks, commands, files_of, prose

ROOMS = "benchmarks|buffers|configs|docs|envs|policies|tests|utils"
# Names that the pages introduce as the reader's own.
OF_EXAMPLES = ("Corridor", "Dial", "Trace", "DDPG", "my_envs", "my_configs", "Mine")
NOT_INSTALLED = (
    "experiment=connect4",
    *(f"env={one}" for one in ("CybORG", "MetaWorld", "MiniGrid", "POPGym")),
)
NOT_INSTALLED += ("experiment=simple_push", "env=PettingZoo")
# Its scripts need real servers: test_rollouts.py runs them.
OF_SERVERS = "docs/rollouts.md"
# Words of commands on what is on the disk already.
ON_DISK = ("resume=", "evaluate=", "report=", "export=", "experiment=best")
# Pages that list names of other projects, or old ones.
FOREIGN = ("docs/published_names.md", "CHANGELOG.md")


def scripts() -> list[Any]:
    """Every Python block that is no whole file, with its page and number.

    test_rllib.py runs RLlib's, and tests/envs/interop/test_cyborg.py that of the original simulator.
    """
    return [
        pytest.param(block, id=f"{name}-{number}")
        for name, text in PAGES.items()
        if name != OF_SERVERS
        for number, block in enumerate(blocks(text, "python"))
        if block not in files_of(text).values() and "ray.rllib" not in block and '"CybORG"' not in block
    ]


@pytest.mark.parametrize("block", scripts())
def test_the_python_of_a_page_runs(block: str, tmp_path: Path) -> None:
    """As a script without a guard, which may start workers all the same."""
    script = tmp_path / "example.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{block}")
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", [name for name, text in PAGES.items() if commands(text)])
def test_the_front_door_reads_the_commands_of_a_page(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Packages of others, as what launchers need.
    monkeypatch.setattr(command, "check_optuna", lambda: None)
    monkeypatch.setattr(validation, "check_tensorboard", lambda: None)
    monkeypatch.setattr(validation, "check_ray", lambda: None)
    for words in commands(PAGES[name]):
        foreign = any(own in word for word in words for own in OF_EXAMPLES)
        on_disk = any(word.startswith(ON_DISK) for word in words)
        if foreign or on_disk or "..." in words or set(words) & set(NOT_INSTALLED):
            continue
        # Launchers are others' packages, and so are their options.
        read([word for word in words if not word.startswith(("hydra/launcher", "hydra.launcher"))])


def test_the_short_commands_of_the_readme_run_as_printed(tmp_path: Path) -> None:
    """A run in a folder of one's choice, its resume and its evaluation, one after another."""
    short = [words for words in commands(PAGES["README.md"]) if "outputs/first" in " ".join(words)]
    assert len(short) == 3
    printed = ""
    for words in short:
        done = subprocess.run(
            [sys.executable, str(ROOT / "main.py"), *words],
            cwd=tmp_path,
            env=os.environ | {"WANDB_MODE": "disabled"},
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
        assert done.returncode == 0, done.stderr
        printed = done.stdout
    assert "held_out" in printed and (tmp_path / "outputs/first/evaluation.json").exists()


@pytest.mark.parametrize("name", PAGES)
def test_links_and_anchors_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", prose(PAGES[name])):
        path, _, anchor = "".join(target).partition("#")
        if path.startswith(("http:", "https:")):
            continue
        file = (ROOT / name).parent / path if path else ROOT / name
        assert file.exists(), f"{name} links to {path}"
        if anchor:
            assert anchor in anchors(file.read_text(encoding="utf-8")), f"{name} links to {path}#{anchor}"


@pytest.mark.parametrize("name", [name for name in PAGES if name != "CHANGELOG.md"])
def test_the_paths_that_a_page_names_exist(name: str) -> None:
    for path in re.findall(rf"`((?:{ROOMS})/[\w/.]*)`", prose(PAGES[name])):
        assert (ROOT / path).exists(), f"{name} names {path}"


@pytest.mark.parametrize("name", [name for name in PAGES if name not in FOREIGN])
def test_the_options_that_a_page_names_exist(name: str) -> None:
    known = option_names()
    sections = "|".join(sorted({option.partition(".")[0] for option in known if "." in option}))
    for option in re.findall(rf"`((?:{sections})\.\w+(?:\.\w+)?)(?==|`)", prose(PAGES[name])):
        if not option.endswith((".json", ".unwrapped", ".md", ".csv", ".png", ".svg", ".yaml")):
            assert option in known, f"{name} names {option}"


def option_names() -> set[str]:
    """The full names of the options of every choice."""
    known = names_in(root(), "") | names_in(command.SearchConfig(), "search.")
    known |= names_in(ExportConfig(), "export.")
    for group, choices in schemas().items():
        for config in choices.values():
            known |= names_in(config, f"{group}.")
    return known


def names_in(config: Any, prefix: str) -> set[str]:
    """The options of a config and of those inside it."""
    known: set[str] = set()
    for item in fields(config):
        known.add(f"{prefix}{item.name}")
        value = getattr(config, item.name)
        if is_dataclass(value):
            known |= names_in(value, f"{prefix}{item.name}.")
    return known


@pytest.mark.parametrize("name", PAGES)
def test_lines_fit(name: str) -> None:
    """Rows of the changelog's tables may be wider, since a row cannot be wrapped."""
    lines = PAGES[name].splitlines()
    if name == "CHANGELOG.md":
        lines = [line for line in lines if not line.startswith("|")]
    assert not [line for line in lines if len(line) > 110]


def test_the_readme_is_short_and_its_commands_are_those_of_ci() -> None:
    readme = PAGES["README.md"]
    assert len(readme.splitlines()) <= 150
    assert "-m pytest -n 2" in readme and "python -m pytest -n 2" in (ROOT / ".ci" / "run").read_text()
    assert f"{len(FAMILIES)} families" in readme


def test_every_page_is_in_the_index_and_opens_with_its_question() -> None:
    index = PAGES["docs/README.md"]
    for name, text in PAGES.items():
        if name.startswith("docs/") and name != "docs/README.md":
            assert f"]({Path(name).name})" in index, f"{name} is not in the index"
            assert text.partition("\n")[0].endswith("?"), f"{name} asks no question in its title"
