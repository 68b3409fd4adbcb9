"""The commit of a checkout and whether its files differ from it; without git, why not."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from utils.disk.source_state import source_state


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_checkout_has_a_commit_and_is_clean_until_a_file_changes(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
        done = subprocess.run(
            ["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    git("init", "-q")
    (tmp_path / "file").write_text("one")
    git("add", "file")
    git("commit", "-qm", "first")
    assert source_state(tmp_path) == {"commit": git("rev-parse", "HEAD"), "clean": True, "unknown": None}
    (tmp_path / "file").write_text("two")
    assert source_state(tmp_path)["clean"] is False


def test_without_a_repository_or_git_the_reason_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = source_state(tmp_path)
    assert found["commit"] is None and found["clean"] is None and "git gave no answer" in found["unknown"]
    monkeypatch.setenv("PATH", "")
    assert "git gave no answer" in source_state(tmp_path)["unknown"]
