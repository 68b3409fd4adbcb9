"""The plan of the house as tests: who may import whom, how long things get, what is never written. Every rule
is shown to bite.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from omegaconf import DictConfig, ListConfig

ROOT = Path(__file__).resolve().parent.parent

MAY_IMPORT = {
    "utils": set[str](),
    "envs": {"utils"},
    "buffers": {"utils", "envs"},
    "policies": {"utils", "envs", "buffers"},
    "configs": {"utils", "envs", "buffers", "policies"},
    "benchmarks": {"utils", "envs", "buffers", "policies", "configs"},
    "main": {"utils", "envs", "buffers", "policies", "configs"},
}

HOUSE = [
    ROOT / "main.py",
    *sorted(file for room in MAY_IMPORT if room != "main" for file in (ROOT / room).rglob("*.py")),
]

TESTS = sorted((ROOT / "tests").rglob("*.py"))

# Modules without a test file of their own name, and where their tests are.
TESTED_ELSEWHERE = {
    "envs/backends/serial.py": "tests/envs/backends/test_backends.py, over the registry",
    "envs/backends/base.py": "tests/envs/backends/test_backends.py, over the registry",
    "policies/agents/base.py": "tests/policies/agents/test_agent.py, over all architectures",
    "policies/curriculum/base.py": "tests/policies/curriculum/test_curricula.py, over the registry",
    "policies/algorithms/base.py": "tests/policies/algorithms, over the registry",
    "buffers/base.py": "tests/buffers/test_batch.py",
}

# The private methods of OmegaConf's nodes, such as `_get_node`.
OMEGACONF_METHODS = {
    name for kind in (DictConfig, ListConfig) for name in dir(kind) if re.match(r"_[a-z]", name)
}

# The one file or folder that imports a library, but for clients of others where they are measured.
PLACES = {"wandb": "utils/services/", "websockets": "envs/remote/", "openenv": "envs/remote/servers/"}
PLACES |= {"ray": "policies/collection/remote/ray_cluster.py", "optuna": "configs/search/study.py"}
# What reads the trainer's pickles: from the trainer to its workers and actors is the trusted direction.
TRUSTING = ("envs/backends/workers/worker.py", "policies/collection/remote/serve.py")

# A public name that scripts import from another room than its own, where the published guide has it; only a
# script that asks for it imports that room.
PUBLISHED = {("envs/remote/rollouts/__init__.py", "buffers.rollout_tensors.pad")}

Rule = Callable[[str, ast.Module], Iterator[str]]


def name_of(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def room_of(name: str) -> str:
    return name.removesuffix(".py").partition("/")[0]


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of everything imported; `from a import b` gives a.b, since b may be a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, item.name) for item in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.lineno, f"{node.module}.{item.name}") for item in node.names)


def within(dotted: str, package: str) -> bool:
    return dotted == package or dotted.startswith(f"{package}.")


def arrows(name: str, tree: ast.Module) -> Iterator[str]:
    room = room_of(name)
    for line, dotted in imports(tree):
        other = dotted.partition(".")[0]
        if other in {*MAY_IMPORT, "tests"} - {room} - MAY_IMPORT[room] and (name, dotted) not in PUBLISHED:
            yield f"{line}: {room} imports {dotted}"


def libraries_in_their_place(name: str, tree: ast.Module) -> Iterator[str]:
    for line, dotted in imports(tree):
        library = dotted.partition(".")[0]
        hydra, front = library in ("hydra", "omegaconf"), name.startswith(("main.py", "configs/"))
        places = (PLACES.get(library, ""), "benchmarks/parts/services/")
        if (hydra and not front) or not name.startswith(places):
            yield f"{line}: {library} has another place"
    if name.startswith("envs/"):
        yield from (
            f"{line}: {dotted} under envs/, where every worker would import it"
            for line, dotted in imports_of_workers(name, tree)
            if dotted.partition(".")[0] in ("torch", "stable_baselines3")
        )


def imports_of_workers(name: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """What is imported together with this module of envs/: in interop/ all but what its functions import."""
    functions = (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    in_functions = {line for function in functions for line, _ in imports(function)}
    later = in_functions if name.startswith("envs/interop/") else set[int]()
    return ((line, dotted) for line, dotted in imports(tree) if line not in later)


def the_manager_has_an_inside(name: str, tree: ast.Module) -> Iterator[str]:
    if name != "envs/parallel_env_manager.py" and not name.startswith("envs/manager/"):
        for line, dotted in imports(tree):
            if within(dotted, "envs.manager"):
                yield f"{line}: import it from envs.parallel_env_manager, not {dotted}"


PRIVATE_PARTS = "configs/hydra_private.py"


def private_parts_in_one_file(name: str, tree: ast.Module) -> Iterator[str]:
    """Of Hydra, every `_internal` module; of OmegaConf, every method that starts with an underscore."""
    if name == PRIVATE_PARTS:
        return
    for line, dotted in imports(tree):
        if within(dotted, "hydra._internal"):
            yield f"{line}: {dotted} is private: {PRIVATE_PARTS} is the place for it"
    for node in ast.walk(tree) if name.startswith(("main.py", "configs/")) else ():
        if isinstance(node, ast.Attribute) and node.attr in OMEGACONF_METHODS:
            yield f"{node.lineno}: {node.attr} is private: {PRIVATE_PARTS} is the place for it"


def families_and_backends_apart(name: str, tree: ast.Module) -> Iterator[str]:
    for line, dotted in imports(tree):
        family, backend = name.startswith("envs/meta/"), name.startswith("envs/backends/")
        if family and name != "envs/meta/make_env.py" and within(dotted, "envs.backends"):
            yield f"{line}: a family imports a backend"
        if backend and (within(dotted, "envs.meta") or within(dotted, "envs.parallel_env_manager")):
            yield f"{line}: a backend imports {dotted}"


def algorithms_know_contracts_only(name: str, tree: ast.Module) -> Iterator[str]:
    if name.startswith("policies/algorithms/"):
        for line, dotted in imports(tree):
            for package in ("policies.memory", "buffers"):
                if within(dotted, package) and not within(dotted, f"{package}.base"):
                    yield f"{line}: an algorithm imports {dotted}"


def main_imports_late(name: str, tree: ast.Module) -> Iterator[str]:
    if name == "main.py":
        for node in tree.body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                yield from (
                    f"{line}: every worker would import {dotted}"
                    for line, dotted in imports(node)
                    if dotted.partition(".")[0] not in ("__future__", "sys", "typing")
                )


def opens_with_a_sentence(name: str, tree: ast.Module) -> Iterator[str]:
    first = (ast.get_docstring(tree) or "").partition("\n\n")[0].replace("\n", " ")
    if not re.fullmatch(r"\S.* .*[.:]", first):
        yield "1: the module opens with no sentence"


def fits_a_screen(name: str, tree: ast.Module) -> Iterator[str]:
    most = {ast.FunctionDef: 50, ast.AsyncFunctionDef: 50, ast.ClassDef: 250}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            size = (node.end_lineno or 0) - node.lineno + 1
            if size > most[type(node)]:
                yield f"{node.lineno}: {node.name} has {size} lines"


def called(node: ast.Call) -> str:
    return ast.unparse(node.func)


def runs_no_data(name: str, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        keywords = {item.arg: ast.unparse(item.value) for item in node.keywords}
        function = called(node)
        if (
            function in ("eval", "exec", "os.system", "yaml.load", "yaml.unsafe_load")
            or keywords.get("shell") == "True"
        ):
            yield f"{node.lineno}: {function}"
        if re.fullmatch(r"(cloud)?pickle\.(loads?|Unpickler)", function) and name not in TRUSTING:
            yield f"{node.lineno}: {function} runs what it reads"
        if function == "torch.load" and keywords.get("weights_only") != "True":
            yield f"{node.lineno}: torch.load without weights_only=True"
        if keywords.get("allow_pickle") == "True":
            yield f"{node.lineno}: allow_pickle=True"


def prints_nothing(name: str, tree: ast.Module) -> Iterator[str]:
    if name != "main.py" and not name.startswith("benchmarks/"):  # commands
        yield from (
            f"{node.lineno}: print"
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and called(node) == "print"
        )


def leaves_configs_alone(name: str, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, (ast.AugAssign, ast.AnnAssign))
            else []
        )
        for target in targets:
            if isinstance(target, ast.Attribute) and re.search(r"(^|[._])config$", ast.unparse(target.value)):
                yield f"{target.lineno}: {ast.unparse(target)} is changed"


def holds_no_globals(name: str, tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            for call in ast.walk(node.value):
                if isinstance(call, ast.Call) and re.search(
                    r"default_rng|RandomState|torch\.device|Generator$|manual_seed", called(call)
                ):
                    yield f"{node.lineno}: a device or a random stream for the whole module"


# Each rule over one module, and a module that breaks it.
RULES: dict[Rule, tuple[str, str]] = {
    arrows: ("envs/x.py", "from policies.learner import Learner"),
    libraries_in_their_place: ("envs/x.py", "import torch"),
    private_parts_in_one_file: ("configs/x.py", "from hydra._internal.utils import get_args_parser"),
    families_and_backends_apart: ("envs/meta/x.py", "from envs.backends.serial import SerialBackend"),
    the_manager_has_an_inside: ("policies/x.py", "from envs.manager.stepping import Start"),
    algorithms_know_contracts_only: ("policies/algorithms/x.py", "from policies.memory.gru import GRU"),
    main_imports_late: ("main.py", "from policies.learner import Learner"),
    opens_with_a_sentence: ("utils/x.py", "import os"),
    fits_a_screen: ("utils/x.py", "def long():\n" + "    pass\n" * 51),
    runs_no_data: ("utils/x.py", "torch.load(file)"),
    prints_nothing: ("utils/x.py", "print(1)"),
    leaves_configs_alone: ("policies/x.py", "self.config.seed = 1"),
    holds_no_globals: ("policies/x.py", "RNG = np.random.default_rng(0)"),
}

MORE_OFFENCES: list[tuple[Rule, str, str]] = [
    (libraries_in_their_place, "policies/x.py", "from omegaconf import DictConfig"),
    (libraries_in_their_place, "utils/logger.py", "def f():\n    import wandb"),
    (libraries_in_their_place, "envs/interop/x.py", "from stable_baselines3 import PPO"),
    (libraries_in_their_place, "envs/meta/x.py", "def f():\n    import torch"),
    (libraries_in_their_place, "envs/remote/x.py", "import openenv"),
    (the_manager_has_an_inside, "envs/interop/x.py", "import envs.manager.recovery"),
    (private_parts_in_one_file, "configs/x.py", "node._is_optional()"),
    (families_and_backends_apart, "envs/backends/x.py", "from envs import meta"),
    (algorithms_know_contracts_only, "policies/algorithms/x.py", "from buffers.replay import Replay"),
    (arrows, "utils/x.py", "import envs.base"),
    (arrows, "envs/remote/rollouts/__init__.py", "from buffers.rollout_tensors import padded"),
    (runs_no_data, "envs/backends/workers/process.py", "pickle.loads(data)"),
    (runs_no_data, "utils/x.py", "np.load(file, allow_pickle=True)"),
]


def test_a_face_may_import_another_library_inside_a_function() -> None:
    inside = ast.parse("def play():\n    import torch")
    assert not list(libraries_in_their_place("envs/interop/x.py", inside))


def rule_name(rule: object) -> str | None:
    return getattr(rule, "__name__", None)


@pytest.mark.parametrize("rule", RULES, ids=rule_name)
def test_every_module_keeps_the_rule(rule: Rule) -> None:
    trees = {name_of(file): ast.parse(file.read_text(encoding="utf-8")) for file in HOUSE}
    assert len(trees) > 30
    assert not [f"{name}:{problem}" for name, tree in trees.items() for problem in rule(name, tree)]


@pytest.mark.parametrize(
    ("rule", "name", "source"),
    [*((rule, *example) for rule, example in RULES.items()), *MORE_OFFENCES],
    ids=rule_name,
)
def test_the_rule_sees_an_offence(rule: Rule, name: str, source: str) -> None:
    assert list(rule(name, ast.parse(source)))


def test_tests_open_with_a_sentence_and_fit_a_screen_too() -> None:
    trees = {name_of(file): ast.parse(file.read_text(encoding="utf-8")) for file in TESTS}
    assert not [
        f"{name}:{problem}"
        for name, tree in trees.items()
        for rule in (opens_with_a_sentence, fits_a_screen)
        for problem in rule(name, tree)
    ]


def test_the_tests_mirror_the_tree() -> None:
    """Except for what is in a registry: the promises over the registries are its tests."""
    from envs.backends import BACKENDS
    from envs.meta import FAMILIES
    from policies.algorithms import ALGORITHMS
    from policies.curriculum import CURRICULA
    from policies.memory import MEMORIES

    registered = {
        f"{kind.__module__.replace('.', '/')}.py"
        for registry in (BACKENDS, FAMILIES, ALGORITHMS, MEMORIES, CURRICULA)
        for kind in registry.values()
    }
    elsewhere = registered | set(TESTED_ELSEWHERE)
    names = [
        name_of(file) for file in HOUSE if file.stem != "__init__" and room_of(name_of(file)) != "benchmarks"
    ]
    names = [name for name in names if name not in elsewhere]
    mirrored = {name: ROOT / "tests" / Path(name).parent / f"test_{Path(name).name}" for name in names}
    assert not [name for name, test in mirrored.items() if not test.exists()]
    assert not [name for name in TESTED_ELSEWHERE if not (ROOT / name).exists()], (
        "an exception has outlived its module"
    )


def test_nobody_asks_for_the_concrete_class_of_a_registered_thing() -> None:
    from envs.backends import BACKENDS
    from envs.meta import FAMILIES
    from policies.algorithms import ALGORITHMS
    from policies.curriculum import CURRICULA
    from policies.memory import MEMORIES

    concrete = {
        cls.__name__
        for registry in (BACKENDS, FAMILIES, ALGORITHMS, MEMORIES, CURRICULA)
        for cls in registry.values()
    }
    found: list[str] = []
    for file in HOUSE:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and called(node) == "isinstance":
                asked = {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}
                found += [f"{name_of(file)}:{node.lineno} {one}" for one in asked & concrete]
    assert not found


def test_a_worker_that_imports_the_environments_does_not_get_torch() -> None:
    heavy = ("torch", "hydra", "omegaconf", "wandb", "matplotlib")
    imported = "import sys, main, envs.meta, envs.backends, envs.parallel_env_manager"
    code = f"{imported}; print([name for name in {heavy} if name in sys.modules])"
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert out.stdout.strip() == "[]"


def test_requirements_are_exact_and_name_no_place() -> None:
    for part in ("", "-dev", "-partners", "-ray", "-rllib"):
        lines = [
            line
            for line in (ROOT / f"requirements{part}.txt").read_text(encoding="utf-8").splitlines()
            if line and not line.startswith("#")
        ]
        assert not [
            line
            for line in lines
            if not re.fullmatch(r"-r requirements(-dev|-ray)?\.txt|[A-Za-z0-9_.-]+==[A-Za-z0-9.]+", line)
        ]


def test_no_file_names_a_private_place() -> None:
    private = re.compile(rf"/(?:{'|'.join(('root', 'home', 'Users', 'work', 'opt'))})/\w")
    files = [
        *HOUSE,
        *TESTS,
        *(ROOT / "configs").rglob("*.yaml"),
        *ROOT.glob("*.toml"),
        *ROOT.glob("*.txt"),
        *ROOT.glob("*.md"),
        ROOT / ".ci" / "run",
    ]
    assert private.search("/".join(("", "home", "me")))
    assert not [name_of(file) for file in files if private.search(file.read_text(encoding="utf-8"))]
