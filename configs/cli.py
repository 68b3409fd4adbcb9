"""The command line, read and checked as a whole before anything is created."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, ListConfig, OmegaConf

from configs.compose import Composer, checked, quoted_word
from configs.exporting import ExportCommand, asks_for_an_export, read_export
from configs.help import also_changed, help_text, recipes_text
from configs.hydra_private import flag_parser
from configs.launch import refuse_folder, run_folder_of
from configs.runs import MAY_CHANGE, RecordedRun, continued, evaluated, found_again
from configs.schema import GROUPS, list_text
from configs.search.command import SearchCommand, asks_for_a_search, read_search
from configs.spellings import without_dashes
from configs.sweep.plan import SWEEP_FOLDER, SweepPlan, plan_sweep
from configs.validation import notes
from configs.values import is_in_open_section
from envs.base import TaskFamily
from policies.run.config import Config
from utils.disk.own_files import check_can_be_made, check_run_folder
from utils.options import OptionError, as_pairs, shown

# Flags of Hydra's own that need no config.
PASSED_ON = ("hydra_help", "shell_completion")
# Flags that show a config instead of running it.
SHOWN_BY_HYDRA = ("cfg", "info")

REFUSED = {
    "config_path": "--config-path",
    "config_name": "--config-name",
    "experimental_rerun": "--experimental-rerun",
}


@dataclass(frozen=True)
class CommandLine:
    """What a command line asks for.

    With `text`: to show it. With `mode`: to "train" the run of `config` in a folder that `composed` names,
    to "search" for settings, to "export" trials, or to "resume" or "evaluate" the `runs` on disk, of which a
    resume has one, also where that is typed like a new run, with "resume_if_there". With neither: what Hydra
    does with `words`, as a sweep.
    """

    words: tuple[str, ...]
    text: str | None = None
    mode: str | None = None
    config: Config | None = None
    # The family that the check of the config built: the run uses the same.
    family: TaskFamily | None = None
    # The config as Hydra composes it, with Hydra's own section: the run folder, the log.
    composed: DictConfig | None = None
    runs: tuple[RecordedRun, ...] = ()
    # The jobs of a sweep.
    plan: SweepPlan | None = None
    # What a search will try, and what an export writes.
    search: SearchCommand | None = None
    export: ExportCommand | None = None
    # What is worth knowing of the options without being a mistake.
    notes: tuple[str, ...] = ()


def read(words: Sequence[str]) -> CommandLine:
    """Read and check a command line; a mistake in it, or in any job of a multirun, is an `OptionError`."""
    # Users put -m anywhere; argparse wants it before or after all options.
    words = sorted(words, key=lambda word: word not in ("-m", "--multirun"))
    flags = _flags(words)

    # Hydra answers for its own flags.
    if any(getattr(flags, name, None) for name in PASSED_ON):
        return CommandLine(tuple(words))
    with Composer(flags.config_dir) as composer:
        # First what only shows a text.
        if text := _list(composer, flags.overrides):
            return CommandLine(tuple(words), text=text)
        if asks_for_a_search(flags.overrides):
            return _search(composer, flags, words)
        if asks_for_an_export(flags.overrides):
            return CommandLine(tuple(words), mode="export", export=read_export(composer, words))
        overrides = composer.parse(flags.overrides)
        if flags.help:
            return CommandLine(tuple(words), text=help_text(composer, overrides))

        # Then what works on a run that exists.
        modes = [
            mode
            for mode in MAY_CHANGE
            if any(override.key_or_group == mode and override.value() is not None for override in overrides)
        ]
        if modes:
            return _continue(composer, modes, overrides, words)

        # Then new runs: one, or the jobs of a sweep.
        if not _is_multirun(overrides, flags.multirun):
            return _single(
                composer, overrides, words, shown=any(getattr(flags, name) for name in SHOWN_BY_HYDRA)
            )
        return _sweep(composer, overrides, words)


def _list(composer: Composer, words: Sequence[str]) -> str | None:
    """The answer to `env=list` and its like, wherever it stands in the command line."""
    for word in words:
        group, _, name = word.partition("=")
        if group in GROUPS and name == "list":
            return list_text(group, composer.choices(group), composer.family)
        if word == "recipe=list":
            return recipes_text()
    return None


def _single(
    composer: Composer, overrides: list[Override], words: Sequence[str], *, shown: bool
) -> CommandLine:
    """One new run, or only its config to be shown by Hydra."""
    # The only composition and the only check of this run: main.py hands both on to the Learner.
    composed = composer.dict_config(overrides)
    config, family = checked(composed)
    folder = run_folder_of(composed)
    remarks = (*also_changed(composer, config, overrides), *notes(config, overrides))
    if folder is not None and not shown:
        check_can_be_made(folder)
        check_run_folder(folder, allow_links=config.allow_links)
        if config.resume_if_there and (run := found_again(composed, folder)) is not None:
            return CommandLine(tuple(words), mode="resume_if_there", runs=(run,), notes=remarks)
        refuse_folder(folder, allow_links=config.allow_links)
    if shown:
        return CommandLine(tuple(_for_hydra(composed, overrides, words)), notes=remarks)
    return CommandLine(
        tuple(words), mode="train", config=config, family=family, composed=composed, notes=remarks
    )


def _sweep(composer: Composer, overrides: list[Override], words: Sequence[str]) -> CommandLine:
    """The jobs of a sweep, which Hydra is told to keep in the folder that was found for them."""
    plan = plan_sweep(composer, overrides)
    named = any(override.key_or_group == SWEEP_FOLDER for override in overrides)
    if plan.folder is not None and not named:
        words = [*words, quoted_word(SWEEP_FOLDER, plan.folder)]
    composed = composer.dict_config(next(composer.jobs(overrides)))
    return CommandLine(tuple(_for_hydra(composed, overrides, words)), plan=plan, notes=plan.notes)


def _for_hydra(composed: DictConfig, overrides: Sequence[Override], words: Sequence[str]) -> list[str]:
    """The words with which Hydra composes by itself.

    It has to add options under names of the user's own, and merges no mapping into a list of pairs.
    """
    spelled: dict[str, str] = {}
    for override in overrides:
        name, word, value = override.key_or_group, str(override.input_line), override.value()
        if is_in_open_section(composed, name):
            spelled[word] = f"++{word}"
        elif isinstance(value, dict) and isinstance(OmegaConf.select(composed, name), ListConfig):
            spelled[word] = f"{name}={shown(as_pairs(value))}"
    return [spelled.get(word, word) for word in words]


def _search(composer: Composer, flags: argparse.Namespace, words: Sequence[str]) -> CommandLine:
    """A search, which makes many runs by itself."""
    for word in words:
        if word.startswith("-") and not word.startswith("--config-dir"):
            raise OptionError(f"search= makes its runs by itself: leave out {word}.")
    search = read_search(composer, flags.overrides, flags.config_dir)
    return CommandLine(tuple(words), mode="search", search=search, notes=search.notes)


def _is_multirun(overrides: Sequence[Override], flag: bool) -> bool:
    """Whether a sweep is asked for, by its flag or by Hydra's own option."""
    modes = [override for override in overrides if override.key_or_group == "hydra.mode"]
    return flag or any(str(mode.value()).upper() == "MULTIRUN" for mode in modes)


def _continue(
    composer: Composer, modes: list[str], overrides: list[Override], words: Sequence[str]
) -> CommandLine:
    # One run, one mode, and no flag: a sweep over a run on disk would overwrite it.
    if len(modes) > 1:
        raise OptionError("resume= continues a run and evaluate= measures one: give one of the two.")
    flags = [word for word in words if word.startswith("-")]
    if flags:
        raise OptionError(f"{modes[0]}= works on one run that exists already: leave out {flags[0]}.")
    if modes[0] == "evaluate":
        runs = evaluated(composer, overrides)
    else:
        runs = [continued(composer, modes[0], overrides)]
    return CommandLine(tuple(words), mode=modes[0], runs=tuple(runs))


def _refuse_flags(message: str) -> NoReturn:
    opening = f"{message[:1].upper()}{message[1:]}"
    raise OptionError(f"{opening}; flags are listed by --hydra-help, options by --help.")


def _flags(words: Sequence[str]) -> argparse.Namespace:
    """Hydra's flags of a command line; `overrides` of the result are all other words."""
    flags, unknown = flag_parser(_refuse_flags).parse_known_args(list(words))

    # Flags that do not exist, and words that argparse could not place.
    for word in unknown:
        if word.startswith("-"):
            raise OptionError(
                f"There is no flag {word.partition('=')[0]}; options are written without dashes: "
                f"{without_dashes(words, unknown)}"
            )
        raise OptionError(
            f"{word!r} stands after a flag that takes no value; write the flags first, then the options."
        )

    # Flags of Hydra's that would read another config than ours, or that exclude each other.
    for name, flag in REFUSED.items():
        if getattr(flags, name, None):
            raise OptionError(
                f"{flag} is not for Retrial's configs; add a folder of your own with --config-dir, "
                "and choose from it by name."
            )
    if sum(map(bool, (flags.multirun, flags.run, flags.cfg, flags.info, flags.shell_completion))) > 1:
        raise OptionError("Of --multirun, --run, --cfg, --info and --shell-completion only one can be given.")
    if (flags.package or flags.resolve) and not flags.cfg:
        raise OptionError("--package and --resolve go with --cfg.")
    if flags.config_dir and not Path(flags.config_dir).is_dir():
        raise OptionError(f"--config-dir {flags.config_dir} is not a folder.")
    return flags
