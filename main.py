"""Retrial's front door: compose the config, check it, hand it to the Learner."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

# Spawned workers import this file again: what is imported here, every worker imports.
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from configs.cli import CommandLine
    from policies.learner import Learner
    from policies.run.config import Config

# The exit code of a run that could not go on.
FAILED = 1


def main() -> int:
    """Run one command line; the exit code is 2 for a mistake in it, before anything is created."""
    from utils.processes.jobs import end_also_if_killed, end_with_this_process
    from utils.processes.streams import fill_standard_streams, show_any_letter, write_text_out

    fill_standard_streams()  # before any file is opened, which would take the place of a closed stream
    show_any_letter()
    from utils.options import OptionError
    from utils.report.command import asks_for_a_report, run_report

    try:
        if asks_for_a_report(sys.argv[1:]):
            write_text_out(run_report(sys.argv[1:]))
            return 0
        is_outermost = end_with_this_process()  # the check may build environments, which may start processes
        from configs.cli import read  # with torch and Hydra, which a report need not wait for

        command = read(sys.argv[1:])
    except OptionError as mistake:
        print(mistake, file=sys.stderr)
        return 2
    if command.text is not None:
        write_text_out(command.text)
        return 0
    for note in command.notes:
        print(note, file=sys.stderr)
    if command.mode in ("evaluate", "search", "export"):
        from configs.evaluating import make_answer

        text, exit_code = make_answer(command, _run, failed=FAILED)
        write_text_out(text)
        return exit_code
    if command.mode is not None:
        _one_run(command)
        return 0
    if is_outermost:
        end_also_if_killed()
    return _sweep(command)


def _sweep(command: CommandLine) -> int:
    """A sweep, or a flag of Hydra's own: Hydra composes the config of every job by itself."""
    import hydra

    from utils.processes.streams import write_text_out

    sys.argv[1:] = command.words
    start = hydra.main(version_base="1.3", config_path="configs", config_name="config")(job)
    if command.plan is None:
        start()
        return 0
    from configs.sweep.start import run_sweep

    report, failures, exit_code = run_sweep(start, command.plan, failed=FAILED)
    write_text_out(report)
    if failures:
        print(failures, file=sys.stderr)
    return exit_code


def _one_run(command: CommandLine) -> None:
    """A run by itself, with the config and the family that the check has composed and built."""
    from contextlib import nullcontext

    from configs.launch import launch
    from policies.run.context import RunHost
    from utils.processes.imports import imports_from_elsewhere

    for run in command.runs:
        # A module that only the record of a run names may not stand in its folder; one that was typed may.
        with imports_from_elsewhere(run.run_dir) if command.mode == "resume" else nullcontext():
            _run(_resume, run.config, run.family, run.run_dir)
    config, composed = command.config, command.composed
    if config is not None and composed is not None:
        family = command.family
        launch(composed, lambda folder, lock: _run(_train, config, family, folder, host=RunHost(lock)))


def job(composed: Any) -> float:
    """One job of a sweep, in the folder that Hydra made for it; returns what a sweeper may maximise."""
    from configs.sweep.job import run_job

    return run_job(composed, _run, train=_train, resume=_resume, failed=FAILED)


def _train(learner: Learner) -> float:
    return learner.train()


def _resume(learner: Learner) -> float:
    learner.load()
    return learner.train()


def _run(act: Callable[[Learner], float], config: Config, family: Any, run_dir: Path, **how: Any) -> float:
    """Act with a learner; what the environment, the machine or the user did is a sentence and an exit code.

    Any other error is our own: its traceback goes to the screen and into the run folder.
    """
    from policies.learner import Learner
    from policies.run.failures import is_explained, write_error
    from utils.stop_signal import hand_on

    try:
        with Learner(config, run_dir, family=family, **how) as learner:
            result = act(learner)
            stop_signal = learner.stop_signal
    except Exception as error:
        if not is_explained(error):
            write_error(run_dir)
            raise
        print(error, file=sys.stderr)
        raise SystemExit(FAILED) from error
    if stop_signal is not None:
        hand_on(stop_signal)
        sys.exit(128 + stop_signal)
    return result


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        import signal

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # exit handlers clean up, and would print a traceback
