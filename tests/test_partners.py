"""The environment of the partners, and the marker that finds the tests for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SKIPPED = 'import pytest\n\ndef test_a():\n    pytest.importorskip("a_package_that_nobody_has")\n'


def pinned(name: str) -> set[str]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return {line.partition("==")[0].lower().replace("_", "-") for line in lines if "==" in line}


def test_partners_change_nothing_of_the_tested_set() -> None:
    ours = pinned("requirements.txt") | pinned("requirements-dev.txt")
    theirs = pinned("requirements-partners.txt")
    assert not ours & theirs
    assert {
        *("stable-baselines3", "sb3-contrib", "torchrl", "rliable", "minigrid", "popgym", "tensorboard"),
        *("hydra-joblib-launcher", "hydra-submitit-launcher", "openenv", "pettingzoo", "mpe2"),
        *("supersuit", "optuna"),
    } <= theirs
    first = (ROOT / "requirements-partners.txt").read_text(encoding="utf-8")
    assert "-r requirements-dev.txt\n" in first


def test_whoever_needs_a_partner_has_the_marker() -> None:
    files = [file for file in (ROOT / "tests").rglob("test_*.py") if file != Path(__file__)]
    skipping = {file: text for file in files if "importorskip(" in (text := file.read_text(encoding="utf-8"))}
    assert len(skipping) >= 3
    assert [str(file) for file, text in skipping.items() if "mark.peers" not in text] == []


def test_a_skip_is_a_failure_where_partners_are_installed(tmp_path: Path) -> None:
    (tmp_path / "test_skipped.py").write_text(SKIPPED)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
        str(tmp_path),
    ]
    codes = [
        subprocess.run([*command, *more], cwd=ROOT, capture_output=True, timeout=120).returncode
        for more in ([], ["--no-skips"])
    ]
    assert codes == [0, 1]
