"""The scripts of the page of rollouts run against the real servers that the page starts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import PAGES, ROOT, blocks
from tests.envs.remote.servers.real import serving

pytestmark = pytest.mark.peers
pytest.importorskip("openenv")
pytest.importorskip("stable_baselines3")

PAGE = PAGES["docs/rollouts.md"]
# The server of each port, as the page starts them.
PORTS = {port: name for name, port in re.findall(r"servers\.(\w+) --port (\d+)", PAGE)}


@pytest.fixture(scope="module")
def addresses() -> Iterator[dict[str, str]]:
    with ExitStack() as stack:
        yield {port: stack.enter_context(serving(name)).url for port, name in PORTS.items()}


@pytest.fixture(autouse=True)
def servers_that_run(addresses: dict[str, str]) -> None:
    """Made before what a test leaves behind is looked at."""


def scripts() -> list[Any]:
    """Each Python block with its section; test_rllib.py runs that of RLlib."""
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    titled = [(text.partition("\n")[0], blocks(text, "python")) for text in sections]
    return [pytest.param(block, id=title) for title, found in titled for block in found if title != "RLlib"]


def test_the_page_has_a_script_for_each_of_its_servers() -> None:
    assert sorted(PORTS.values()) == ["connect4", "echo", "grid_world"] and len(scripts()) >= 12


@pytest.mark.parametrize("block", scripts())
def test_a_script_of_the_page_runs(block: str, addresses: dict[str, str], tmp_path: Path) -> None:
    for port, url in addresses.items():
        block = block.replace(f"http://127.0.0.1:{port}", url)
    (tmp_path / "script.py").write_text(block)
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr and "Warning" not in done.stderr, done.stderr
