"""While a recorded run goes on, no process of it imports from the run's folder, nor from the current one."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from envs.backends.base import BackendConfig, BackendError, StartMethod
from envs.base import Shard
from envs.parallel_env_manager import ParallelEnvManager
from tests.toys import CountingConfig, CountingFamily
from utils.processes.imports import (
    ImportGuard,
    import_guards,
    imports_from_elsewhere,
    keep_import_guards,
)

ROOT = Path(__file__).resolve().parents[3]
MODULE = "open(__file__ + '.executed', 'w').close()\n"


class LateFamily(CountingFamily):
    """Imports a module only where its environments are built."""

    def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
        __import__("late_module")
        return super().make_shard(num_slots, threads)


@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_workers_do_not_import_from_the_folder_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    (tmp_path / "late_module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    config = BackendConfig(name="process", start_method=StartMethod[method])
    family = LateFamily(CountingConfig())
    with (
        imports_from_elsewhere(tmp_path),
        pytest.raises(BackendError, match="late_module lies in the run's folder"),
    ):
        ParallelEnvManager(family, 1, num_workers=1, backend=config)
    assert not list(tmp_path.glob("*.executed")) and not import_guards()
    if method == "forkserver":  # without a record it is a module as any other
        ParallelEnvManager(family, 1, num_workers=1, backend=config).close()
        assert list(tmp_path.glob("*.executed"))


SCRIPT = """
from envs.backends.base import BackendConfig, StartMethod
from envs.parallel_env_manager import ParallelEnvManager
from tests.toys import CountingConfig, CountingFamily

if __name__ == "__main__":
    for method in (StartMethod.forkserver, StartMethod.spawn):
        config = BackendConfig(name="process", start_method=method)
        family = CountingFamily(CountingConfig())
        with ParallelEnvManager(family, 1, num_workers=1, backend=config) as manager:
            manager.reset()
    print("done")
"""


def test_the_helpers_of_a_run_take_nothing_from_the_current_folder(tmp_path: Path) -> None:
    """multiprocessing starts them with the current folder before all others on their path."""
    here, own = tmp_path / "here", tmp_path / "own"
    (here / "envs").mkdir(parents=True)
    own.mkdir()
    (own / "script.py").write_text(SCRIPT)
    for name in ("envs/__init__.py", "numpy.py", "signal.py", "base64.py"):
        (here / name).write_text(MODULE)
    done = subprocess.run(
        [sys.executable, str(own / "script.py")],
        cwd=here,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        text=True,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "done\n", done.stderr
    assert not list(here.rglob("*.executed"))


def test_a_run_in_a_folder_that_holds_the_project_still_imports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "timeit"]:
        monkeypatch.delitem(sys.modules, name)
    with imports_from_elsewhere(Path("/")):
        __import__("timeit")


def test_a_process_keeps_the_guards_that_it_is_given_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())
    guard = ImportGuard.of(tmp_path)
    for _ in range(2):
        keep_import_guards([pickle.loads(pickle.dumps(guard))])
    assert import_guards() == (guard,) and sys.meta_path[0] == guard
