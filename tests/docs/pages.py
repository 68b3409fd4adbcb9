"""The pages as the tests of the documentation read them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# The text of every page by its path.
PAGES = {
    file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8")
    for file in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
}


def blocks(text: str, language: str) -> list[str]:
    """The code blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def prose(text: str) -> str:
    """A page without its code blocks."""
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def files_of(text: str) -> dict[str, str]:
    """The blocks that are whole files, by the path in their first comment (in YAML below Hydra's own)."""
    listed = [*blocks(text, "python"), *blocks(text, "yaml")]
    found = ((re.match(r"(?:# @.*\n)?# ([\w/]+/\w+\.\w+)", block), block) for block in listed)
    return {match[1]: block for match, block in found if match}


def commands(text: str) -> list[list[str]]:
    """The words after `python main.py` of every command, in blocks and in the prose."""
    shown = [block.replace("\\\n", "") for block in blocks(text, "bash")]
    lines = [line.partition("  #")[0] for block in shown for line in block.splitlines()]
    lines += [span.replace("\n", " ") for span in re.findall(r"`(python main\.py[^`]*)`", prose(text))]
    return [shlex.split(line)[2:] for line in lines if line.startswith("python main.py")]


def anchors(text: str) -> set[str]:
    """The anchors that a code host makes from the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", prose(text), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in plain}
