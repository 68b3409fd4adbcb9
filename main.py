"""Retrial's front door: compose the config, check it, hand it to the Learner."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

# Spawned workers import this file again: what is imported here, every worker imports.
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from policies.learner import Learner
    from policies.run.config import Config

FAILED = 1
"""The exit code of a run that could not go on."""
_failed: list[str] = []
"""Jobs of a sweep that ended so, by their words."""


def main() -> int:
    """Run one command line; the exit code is 2 for a mistake in it, before anything is created."""
    from configs.cli import read
    from utils.options import OptionError

    try:
        request = read(sys.argv[1:])
    except OptionError as mistake:
        print(mistake, file=sys.stderr)
        return 2
    if request.text is not None:
        try:
            print(request.text, flush=True)
        except BrokenPipeError:  # `| head` has read enough; what is left is not to be tried again at exit
            import os

            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    for note in request.notes:
        print(note, file=sys.stderr)
    if request.config is not None and request.run_dir is not None:
        learns = request.way == "resume"
        _run(_resume if learns else _evaluate, request.config, request.run_dir, learns=learns)
        return 0

    import hydra

    sys.argv[1:] = request.words
    hydra.main(version_base="1.3", config_path="configs", config_name="config")(job)()
    if _failed:
        print(f"Failed: {'; '.join(_failed)}. What the others left is where it always is.", file=sys.stderr)
    return 1 if _failed else 0


def job(composed: Any) -> float:
    """One run, in the folder that Hydra made for it; returns what a sweeper may maximise. One that fails does
    not end the sweep.
    """
    from pathlib import Path

    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    from configs.compose import to_config

    _leave_loky()
    mine = HydraConfig.get()
    try:
        return _run(_train, to_config(composed), Path(mine.runtime.output_dir))
    except SystemExit as end:
        if mine.mode is not RunMode.MULTIRUN or end.code != FAILED:
            raise
        _failed.append(" ".join(mine.overrides.task))
        return float("nan")


def _train(learner: Learner) -> float:
    return learner.train()


def _resume(learner: Learner) -> float:
    learner.load()
    return learner.train()


def _evaluate(learner: Learner) -> float:
    from policies.run.film import film

    learner.load()
    print(learner.report())
    for path in film(learner):
        print(f"film: {path}")
    return 0.0


def _run(act: Callable[[Learner], float], config: Config, run_dir: Path, *, learns: bool = True) -> float:
    """Act with a learner; what the environment, the machine or the user did is a sentence and an exit code,
    not a traceback.
    """
    from envs.backends.base import BackendError
    from envs.parallel_env_manager import WorkerError
    from policies.learner import Learner
    from policies.run.nan_guard import ExplodedError
    from utils.checkpoint import CheckpointError
    from utils.options import OptionError
    from utils.run_lock import RunLockError

    try:
        with Learner(config, run_dir, learns=learns) as learner:
            result = act(learner)
            stop_signal = learner.stop_signal
    except (
        BackendError,
        CheckpointError,
        ExplodedError,
        OptionError,
        OSError,
        RunLockError,
        WorkerError,
    ) as error:
        print(error, file=sys.stderr)
        sys.exit(FAILED)
    if stop_signal is not None:
        sys.exit(128 + stop_signal)
    return result


def _leave_loky() -> None:
    """Joblib's launcher sets a start method that only joblib's own processes understand; workers under it
    would die at birth.
    """
    import multiprocessing

    if multiprocessing.get_start_method(allow_none=True) == "loky":
        multiprocessing.set_start_method("fork", force=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
