"""RLlib trains by the examples of the pages, in the environment of requirements-rllib.txt."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from policies.collection.remote.ray_cluster import LOCAL_SETTINGS
from tests.docs.pages import PAGES, ROOT, blocks
from tests.envs.remote.fake_server import SCHEMA, FakeServer


def example_of(page: str) -> str:
    (block,) = (block for block in blocks(PAGES[page], "python") if "ray.rllib" in block)
    return block


def test_its_environment_is_that_of_ray_and_what_rllib_needs() -> None:
    lines = (ROOT / "requirements-rllib.txt").read_text(encoding="utf-8").splitlines()
    assert "-r requirements-ray.txt" in lines
    ours = {line.partition("==")[0] for line in lines if "==" in line}
    for name in ("requirements.txt", "requirements-dev.txt", "requirements-ray.txt"):
        tested = (ROOT / name).read_text(encoding="utf-8").splitlines()
        assert not ours & {line.partition("==")[0] for line in tested if "==" in line}


def run_of(block: str, folder: Path) -> str:
    """What an example prints."""
    (folder / "example.py").write_text(block)
    done = subprocess.run(
        [sys.executable, "example.py"],
        cwd=folder,
        env=os.environ | LOCAL_SETTINGS | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.rllib
def test_rllib_trains_on_whole_trials(tmp_path: Path) -> None:
    """A trial of two episodes of 20 steps has 41, and no return of PointRobot is below 0."""
    printed = run_of(example_of("docs/library.md"), tmp_path)
    found = re.findall(r"^(\d+) trials of ([\d.]+) steps: ([\d.]+)$", printed, re.MULTILINE)
    assert [(int(trials), float(steps)) for trials, steps, _ in found] == [(16, 41.0)] * 2
    assert all(0.0 <= float(mean) <= 40.0 for *_, mean in found)


@pytest.mark.rllib
def test_rllib_trains_on_a_service(tmp_path: Path) -> None:
    """The stand-in takes the messages of the grid world and ends every episode after five steps."""
    messages = SCHEMA | {"action": {"properties": {"message": {"type": "string"}}}}
    with FakeServer(schema=messages) as server:
        block = example_of("docs/rollouts.md").replace("http://127.0.0.1:8002", server.url)
        assert server.url in block
        printed = run_of(block, tmp_path)
        words = {str(data["message"]) for _, data in server.steps()}
    found = re.search(r"^(\d+) episodes: 0.00$", printed, re.MULTILINE)
    assert found and int(found[1]) >= 64
    assert words == {"north", "south", "east", "west"}
