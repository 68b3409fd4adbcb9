"""The tour: every file and name in it exists, and what it asks one to read fits one sitting."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from functools import cache

import pytest

from tests.docs.pages import PAGES, ROOT, prose

# The names to read, by file.
STOPS = {
    path: re.findall(r"`([\w.]+)`", names)
    for path, names in re.findall(r"^Read `([\w/]+\.py)`: (.*?)\.\n\n", PAGES["docs/tour.md"], re.M | re.S)
}


def members_of(tree: ast.Module) -> dict[str, set[str]]:
    """The names inside every class of a module, methods and attributes alike, and its functions."""
    members = {node.name: set[str]() for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            inside = list(ast.walk(node))
            methods = {part.name for part in inside if isinstance(part, ast.FunctionDef)}
            fields = {part.id for part in inside if isinstance(part, ast.Name)}
            attributes = {part.attr for part in inside if isinstance(part, ast.Attribute)}
            members[node.name] = methods | fields | attributes
    return members


def code_lines(text: str) -> int:
    """Lines that are neither blank, nor a comment, nor part of a docstring."""
    docstrings = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    ignored = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    written = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in ignored
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(written - docstrings)


def test_the_tour_is_at_most_twelve_files_and_two_thousand_lines_of_code() -> None:
    assert 8 < len(STOPS) <= 12
    assert sum(code_lines((ROOT / path).read_text(encoding="utf-8")) for path in STOPS) <= 2000


@pytest.mark.parametrize("path", STOPS)
def test_what_the_tour_asks_one_to_read_is_there(path: str) -> None:
    members = members_of(ast.parse((ROOT / path).read_text(encoding="utf-8")))
    assert STOPS[path]
    for name in STOPS[path]:
        owner, _, member = name.partition(".")
        assert owner in members, f"{path} has no {owner}"
        assert not member or member in members[owner], f"{owner} of {path} has no {member}"


@cache
def members_of_the_product() -> dict[str, set[str]]:
    """The members of every class, by its name; of twins, all together."""
    known: dict[str, set[str]] = {}
    for room in ("envs", "policies", "buffers", "configs", "utils"):
        for file in (ROOT / room).rglob("*.py"):
            for owner, members in members_of(ast.parse(file.read_text(encoding="utf-8"))).items():
                known.setdefault(owner, set()).update(members)
    return known


@pytest.mark.parametrize("name", [name for name in PAGES if name.startswith("docs/")])
def test_the_members_that_a_page_names_exist(name: str) -> None:
    """A member may be inherited, so it is enough that some class declares it."""
    known = members_of_the_product()
    declared = set[str]().union(*known.values())
    for owner, member in re.findall(r"`([A-Z]\w+)\.(\w+)`", prose(PAGES[name])):
        assert owner not in known or member in declared, f"{name} names {owner}.{member}"
