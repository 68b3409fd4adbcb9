"""The command line, read and checked as a whole before anything is created."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.types import Override

from configs.compose import Composer
from configs.help import help_text, list_text
from configs.runs import MAY_CHANGE, continued
from configs.schema import GROUPS
from configs.validation import notes
from policies.run.config import CHECKPOINTS, Config, holds_a_run
from utils.checkpoint import CheckpointStore
from utils.options import OptionError

PASSED_ON = ("hydra_help", "shell_completion")
"""Flags of Hydra's own that need no config."""

REFUSED = {
    "config_path": "--config-path",
    "config_name": "--config-name",
    "experimental_rerun": "--experimental-rerun",
}


@dataclass(frozen=True)
class Request:
    """What is asked for: a text to show, a run on disk to continue, or (neither) what Hydra is to run with
    `words`.
    """

    words: tuple[str, ...]
    text: str | None = None
    way: str | None = None
    config: Config | None = None
    run_dir: Path | None = None
    notes: tuple[str, ...] = ()
    """What is worth knowing of the options, and no mistake."""


def read(words: Sequence[str]) -> Request:
    """Read and check a command line; a mistake anywhere in it, in any job of a multirun, is an `OptionError`."""
    # Users put -m anywhere; argparse wants it before or after all options.
    words = sorted(words, key=lambda word: word not in ("-m", "--multirun"))
    flags = _flags(words)
    if any(getattr(flags, name, None) for name in PASSED_ON):
        return Request(tuple(words))
    with Composer(flags.config_dir) as composer:
        for word in flags.overrides:
            group, _, name = word.partition("=")
            if group in GROUPS and name == "list":
                return Request(tuple(words), text=list_text(composer, group))
        overrides = composer.parse(flags.overrides)
        if flags.help:
            return Request(tuple(words), text=help_text(composer, composer.config(overrides)))
        ways = [
            way
            for way in MAY_CHANGE
            if any(override.key_or_group == way and override.value() is not None for override in overrides)
        ]
        if ways:
            return _continue(composer, ways, overrides, words)
        _refuse_taken(overrides)
        found = [notes(composer.config(job), job) for job in _jobs(composer, overrides, flags.multirun)]
    if not found:
        raise OptionError("There is nothing to run: an option of the sweep gives no values.")
    # In a sweep only what none of its jobs reads: an option for some of them is what sweeps are for.
    return Request(
        tuple(words), notes=tuple(note for note in found[0] if all(note in others for others in found))
    )


def _refuse_taken(overrides: Sequence[Override]) -> None:
    """Hydra writes into the folders that it is given before a run can look at them."""
    for override in overrides:
        if override.key_or_group in ("hydra.run.dir", "hydra.sweep.dir"):
            given = Path(str(override.value())).expanduser()
            for folder in [given] if override.key_or_group == "hydra.run.dir" else sorted(given.glob("*")):
                if CheckpointStore(folder / CHECKPOINTS).has_any:
                    raise OptionError(holds_a_run(folder))


def _jobs(composer: Composer, overrides: list[Override], multirun: bool) -> list[list[Override]]:
    modes = [override for override in overrides if override.key_or_group == "hydra.mode"]
    if not multirun and not any(str(mode.value()).upper() == "MULTIRUN" for mode in modes):
        return [overrides]
    if any(
        override.key_or_group == "hydra/sweeper" and override.value() != "basic" for override in overrides
    ):
        # What another sweeper will try is its own affair: the options that it leaves alone are checked.
        return [[override for override in overrides if not override.is_sweep_override()]]
    return list(composer.jobs(overrides))


def _continue(
    composer: Composer, ways: list[str], overrides: list[Override], words: Sequence[str]
) -> Request:
    if len(ways) > 1:
        raise OptionError("resume= continues a run and evaluate= measures one: give one of the two.")
    flags = [word for word in words if word.startswith("-")]
    if flags:
        raise OptionError(f"{ways[0]}= works on one run that exists already: leave out {flags[0]}.")
    config, run_dir = continued(composer, ways[0], overrides)
    return Request(tuple(words), way=ways[0], config=config, run_dir=run_dir)


class _Flags(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise OptionError(
            f"{message[:1].upper()}{message[1:]}; flags are listed by --hydra-help, options by --help."
        )


def _flags(words: Sequence[str]) -> argparse.Namespace:
    parser = get_args_parser()
    parser.__class__ = _Flags  # Hydra builds the parser itself; its error() would print a page and leave
    flags, unknown = parser.parse_known_args(list(words))
    for word in unknown:
        if word.startswith("-"):
            name = re.sub(r"^-+", "", word).partition("=")[0].replace("-", "_")
            raise OptionError(
                f"There is no flag {word.partition('=')[0]}; options are written without dashes: {name}=VALUE."
            )
        raise OptionError(
            f"{word!r} stands after a flag that takes no value; write the flags first, then the options."
        )
    for name, flag in REFUSED.items():
        if getattr(flags, name, None):
            raise OptionError(
                f"{flag} is not for Retrial's configs; add a folder of your own with --config-dir, and choose from it by name."
            )
    if sum(map(bool, (flags.multirun, flags.run, flags.cfg, flags.info, flags.shell_completion))) > 1:
        raise OptionError("Of --multirun, --run, --cfg, --info and --shell-completion only one can be given.")
    if (flags.package or flags.resolve) and not flags.cfg:
        raise OptionError("--package and --resolve go with --cfg.")
    if flags.config_dir and not Path(flags.config_dir).is_dir():
        raise OptionError(f"--config-dir {flags.config_dir} is not a folder.")
    return flags
