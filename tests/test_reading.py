"""Rules that keep the house easy to read: a name for a thing, no cycles, small rooms, plain conditions."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.test_architecture import HOUSE, ROOT, TESTS, name_of

Trees = Mapping[str, ast.Module]

MOST_MODULES = 14
# Public names that may stand in several modules: every command has its main.
SHARED_NAMES = {"main"}


def trees_of(sources: Mapping[str, str]) -> dict[str, ast.Module]:
    return {name: ast.parse(source) for name, source in sources.items()}


def house() -> dict[str, ast.Module]:
    return trees_of({name_of(file): file.read_text(encoding="utf-8") for file in HOUSE})


# -- one name for one thing ----------------------------------------------------------------------------------


def public_twins(trees: Trees) -> dict[str, list[str]]:
    """The public classes and functions that stand in two modules, with these modules."""
    homes: dict[str, list[str]] = defaultdict(list)
    for name, tree in trees.items():
        for node in tree.body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                homes[node.name].append(name)
    return {
        name: modules
        for name, modules in homes.items()
        if len(modules) > 1 and not name.startswith("_") and name not in SHARED_NAMES
    }


def test_a_public_name_stands_in_one_module() -> None:
    assert public_twins(trees_of({"a.py": "class Row: ...", "b.py": "def Row(): ..."})) == {
        "Row": ["a.py", "b.py"]
    }
    assert not public_twins(house())


# -- no cycles -----------------------------------------------------------------------------------------------


def modules_imported(trees: Trees) -> dict[str, set[str]]:
    """module -> the modules that it names outside of functions, for the type checker alone too."""
    modules = {name.removesuffix(".py").replace("/", ".").removesuffix(".__init__"): name for name in trees}
    found: dict[str, set[str]] = {module: set() for module in modules}
    for module, name in modules.items():
        for node in _outside_of_functions(trees[name]):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [item.name for item in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                # `from package import module` names a module, `from module import name` the module before it.
                names = [f"{node.module}.{item.name}" for item in node.names] + [node.module]
                names = [one for one in names if one != node.module or not set(names[:-1]) <= set(modules)]
            found[module].update(one for one in names if one in modules and one != module)
    return found


def _outside_of_functions(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node
            yield from _outside_of_functions(node)


def in_cycles(imported: Mapping[str, set[str]]) -> set[str]:
    """The modules that reach themselves, found by taking away again and again those that import none."""
    left = {module: set(others) for module, others in imported.items()}
    while done := {module for module, others in left.items() if not others & left.keys()}:
        left = {module: others for module, others in left.items() if module not in done}
    # What only leads into a cycle is not in one: take away what none of the others imports, too.
    while starts := left.keys() - {other for others in left.values() for other in others}:
        left = {module: others for module, others in left.items() if module not in starts}
    return set(left)


def test_no_module_imports_itself_through_others_not_even_for_its_types() -> None:
    cyclic = {
        "a.py": "if TYPE_CHECKING:\n    from b import B",
        "b.py": "import a",
        "c.py": "import a\ndef late():\n    import d",
        "d.py": "import c",
    }
    assert in_cycles(modules_imported(trees_of(cyclic))) == {"a", "b"}
    assert not in_cycles(modules_imported(house()))


# -- small rooms ---------------------------------------------------------------------------------------------


def crowded(names: Iterator[str]) -> dict[str, int]:
    """The folders with more modules than one takes in at a glance."""
    counts = Counter(str(Path(name).parent) for name in names if not name.endswith("__init__.py"))
    return {folder: count for folder, count in counts.items() if count > MOST_MODULES}


def test_no_folder_is_crowded() -> None:
    assert crowded(f"room/{number}.py" for number in range(15)) == {"room": 15}
    assert not crowded(iter(house()))


# -- plain expressions ---------------------------------------------------------------------------------------


def folded_conditions(tree: ast.Module) -> list[int]:
    """The lines of conditional expressions inside another, or inside an f-string."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, (ast.IfExp, ast.JoinedStr))
        and any(
            isinstance(inner, ast.IfExp) for part in ast.iter_child_nodes(node) for inner in ast.walk(part)
        )
    ]


def test_a_condition_stands_in_no_other_and_in_no_text() -> None:
    assert folded_conditions(ast.parse("x = 1 if a else 2 if b else 3")) == [1]
    assert folded_conditions(ast.parse("x = f'{1 if a else 2}'")) == [1]
    assert not folded_conditions(ast.parse("x = 1 if a else 2"))
    found = {name: folded_conditions(tree) for name, tree in house().items()}
    assert not {name: lines for name, lines in found.items() if lines}


# -- files ---------------------------------------------------------------------------------------------------


def test_files_can_be_read_in_one_sitting() -> None:
    most = {"main.py": 150, "configs/config.yaml": 30}
    sizes = {
        name_of(file): len(file.read_text(encoding="utf-8").splitlines())
        for file in [*HOUSE, *TESTS, *(ROOT / "configs").rglob("*.yaml")]
    }
    assert not {
        name: size
        for name, size in sizes.items()
        if size > most.get(name, 25 if name.endswith(".yaml") else 400)
    }


def test_no_file_is_a_drawer_for_odds_and_ends() -> None:
    assert not [name_of(file) for file in HOUSE if file.stem in ("utils", "helpers", "common", "misc")]
