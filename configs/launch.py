"""Start a new run in its folder: looked at and locked before Hydra or anybody else writes there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from configs.hydra_private import run_composed
from policies.run.config import CHECKPOINTS, holds_a_run
from utils.checkpoint import CheckpointStore
from utils.disk.own_files import check_run_folder
from utils.options import OptionError
from utils.run_lock import RunLock, RunLockError


def run_folder_of(composed: DictConfig) -> Path | None:
    """The folder in which Hydra will run a composed config; None where only Hydra can tell."""
    return folder_named(composed, "hydra.run.dir")


def folder_named(composed: DictConfig, option: str, beside: Path = Path()) -> Path | None:
    """The folder that an option of Hydra's names; None where only Hydra can tell."""
    try:
        name = OmegaConf.select(composed, option)
    except OmegaConfBaseException:  # it has a part that Hydra knows later
        return None
    return (beside / str(name)).absolute()


def refuse_folder(folder: Path, *, allow_links: bool) -> None:
    """Refuse a folder that a new run must not be written into: it has links, or holds a run."""
    check_run_folder(folder, allow_links=allow_links)
    if CheckpointStore(folder / CHECKPOINTS).has_any:
        raise OptionError(holds_a_run(folder))


def refuse_sweep_folder(folder: Path, *, allow_links: bool) -> None:
    """Refuse a folder that a sweep must not be written into: links in it or in its jobs, or a run itself.

    What is in the folders of its jobs is theirs: each looks whether that is the run that it is to make.
    """
    refuse_folder(folder, allow_links=allow_links)
    for job in sorted(path for path in folder.glob("*") if path.is_dir()):
        check_run_folder(job, allow_links=allow_links)


def launch(composed: DictConfig, task: Callable[[Path, RunLock | None], Any]) -> None:
    """Run a task in the run folder of a composed config, with the lock of that folder.

    What stands in the way on the disk is a sentence, and the exit code of a run that could not go on.
    """
    folder = run_folder_of(composed)
    if folder is None:
        run_composed(composed, lambda made: task(made, None))
        return
    begun = False

    def begin(made: Path) -> Any:
        nonlocal begun
        begun = True
        return task(made, lock)

    try:
        # Two runs that start at once both found the folder free: the lock decides, and then it is looked at.
        with RunLock(folder) as lock:
            refuse_folder(folder, allow_links=composed.allow_links)
            run_composed(composed, begin)
    except (RunLockError, OptionError) as error:
        raise SystemExit(str(error)) from error
    except (OSError, ValueError) as error:  # logging wraps the former into the latter
        cause = error if isinstance(error, OSError) else error.__cause__
        if begun or not isinstance(cause, OSError):
            raise
        raise SystemExit(f"The run folder {folder} cannot be written: {cause}.") from error
