"""Where modules must not come from while a run of a record goes on, in this process and in its workers.

The record of a run may name modules, and it may come from somebody else: it must not choose which files they
are. So they never come from the run's folder, nor from the current one unless that is the checkout.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


@contextmanager
def imports_from_elsewhere(run_dir: Path) -> Iterator[None]:
    """Within it, nothing is imported from the run's folder, nor from the current one but for the checkout."""
    guard = ImportGuard.of(run_dir)
    sys.meta_path.insert(0, guard)
    try:
        yield
    finally:
        sys.meta_path.remove(guard)


@dataclass(frozen=True)
class ImportGuard:
    """Asked by Python's import first: refuses modules from two folders, and finds none itself."""

    # A folder that is None refuses nothing.
    run_dir: Path | None
    current: Path | None

    @classmethod
    def of(cls, run_dir: Path) -> ImportGuard:
        """The guard of a run, for the folder that is the current one now."""
        folder, current = run_dir.resolve(), Path.cwd()
        # A run may have been written into a folder that holds everything: hydra.run.dir=. in the checkout.
        holds_all = any(place.is_relative_to(folder) for place in (CHECKOUT, Path(sys.prefix).resolve()))
        return cls(None if holds_all else folder, None if current == CHECKOUT else current)

    def find_spec(self, name: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        """None, so that Python goes on to search; ModuleNotFoundError where it would find what is refused."""
        found = PathFinder.find_spec(name, path)
        if found is None:
            return None
        places = [Path(place).resolve() for place in _places(found)]
        if self.run_dir is not None and any(place.is_relative_to(self.run_dir) for place in places):
            raise ModuleNotFoundError(f"{name} lies in the run's folder, from which nothing is imported")
        if path is None and any(place.parent == self.current for place in places):
            raise ModuleNotFoundError(
                f"{name} lies in the current folder, from which a recorded run imports nothing: install it, "
                "put it beside main.py, or start from another folder with this one on PYTHONPATH"
            )
        return None


def _places(found: ModuleSpec) -> list[str]:
    """The file of a module, or the folders of a package."""
    if found.submodule_search_locations is not None:
        return list(found.submodule_search_locations)
    return [found.origin] if found.has_location and found.origin else []


def import_guards() -> tuple[ImportGuard, ...]:
    """The guards of this process, which the processes that it starts must have too."""
    return tuple(finder for finder in sys.meta_path if isinstance(finder, ImportGuard))


def keep_import_guards(guards: Sequence[ImportGuard]) -> None:
    """Have these guards for the rest of this process; a fork has them already."""
    sys.meta_path[:0] = [guard for guard in guards if guard not in sys.meta_path]
