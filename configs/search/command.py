"""`python main.py search=FOLDER ...`: all of it is read and checked before anything is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig

from configs.compose import MODES, Composer, checked, quoted_word
from configs.help import also_changed
from configs.records import is_among
from configs.runs import MAY_CHANGE, TOTAL
from configs.search.space import Space, Value, space_of, to_check, words_of
from configs.search.study import OPTION, check_optuna
from configs.validation import notes
from policies.run.config import Config
from utils.disk.own_files import check_can_be_made, replace_file
from utils.disk.plain_yaml import read_plain_yaml
from utils.options import OptionError, from_keywords, option

# The file of a search's folder that says what is searched.
RECORD = "search.yaml"
# So many runs, if neither their number nor hours are given.
RUNS = 20
# Options that say how the runs are made and not what they are: a command that joins in may have other ones.
HOW = (*(name for name in MAY_CHANGE["resume"] if name != TOTAL), "backend", "wandb.")


class Objective(Enum):
    """What a search makes as high as it can, at the last evaluation on the test list."""

    last_episode = "last_episode"
    trial = "trial"


@dataclass
class SearchConfig:
    """How a search draws settings, and how long."""

    trials: int | None = option(
        None,
        "runs of the study, those of earlier commands included; null: 20, or all that hours allow",
        low=1,
    )
    hours: float | None = option(None, "hours after which this command begins no further run", above=0)
    objective: Objective = option(
        Objective.last_episode, "return to make high: of the last_episode, or of the whole trial"
    )
    seed: int = option(0, "stream of the settings that are drawn; the runs have seed=", low=0)
    prune: bool = option(True, "stop runs whose return is below the median of the others'")

    @property
    def most(self) -> int | None:
        """How many runs the study is to have; None: no limit."""
        return RUNS if self.trials is None and self.hours is None else self.trials


@dataclass(frozen=True)
class SearchCommand:
    """A checked search."""

    folder: Path
    options: SearchConfig
    space: Space
    # What was typed for all runs.
    fixed: tuple[str, ...]
    config_dir: str | None
    # Of the first settings of the space: what runs have in common can be read from it.
    example: Config
    notes: tuple[str, ...] = ()

    def compose(self, values: Any, number: str) -> DictConfig:
        """The config of one run of the study."""
        with Composer(self.config_dir) as composer:
            return _composed(composer, [*self.fixed, *words_of(values)], self.folder / number)

    def record(self) -> dict[str, Any]:
        """What makes this search another one if it changes."""
        fixed = [word for word in self.fixed if not is_among(word.partition("=")[0], HOW)]
        space = {name: repr(dimension) for name, dimension in self.space.items()}
        options = {"objective": self.options.objective.name, "seed": self.options.seed}
        return {"space": space, "options": sorted(fixed), **options}

    def claim(self) -> None:
        """Make the folder, and record there what is searched."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / RECORD).exists():
            replace_file(self.folder / RECORD, yaml.safe_dump(self.record(), sort_keys=False).encode())


def asks_for_a_search(words: Sequence[str]) -> bool:
    """Whether a command line is one of these."""
    names = [word.partition("=")[0] for word in words]
    return any(name == OPTION or name.startswith(f"{OPTION}.") for name in names)


def read_search(composer: Composer, words: Sequence[str], config_dir: str | None) -> SearchCommand:
    """Read and check the words of a command line that are no flags; a mistake is an `OptionError`."""
    own = [word for word in words if asks_for_a_search([word])]
    fixed_and_searched = composer.parse([word for word in words if word not in own])
    folder, options = _own_options(composer, own)
    check_optuna()
    for override in fixed_and_searched:
        _refuse_where_a_search_decides(override)
    space = space_of(fixed_and_searched)
    if not space:
        raise OptionError(
            f"{OPTION}= has nothing to try: give an option several values, such as "
            "'algorithm.learning_rate=tag(log,interval(1e-5,1e-2))'."
        )
    typed = [override for override in fixed_and_searched if not override.is_sweep_override()]
    fixed = tuple(str(override.input_line) for override in typed)

    # Every end of every option, as any run could have it.
    examples: list[tuple[Config, list[Override]]] = []
    for values in to_check(space):
        overrides = composer.parse([*fixed, *words_of(values)])
        config, _ = checked(_composed(composer, [*fixed, *words_of(values)], folder / "0"))
        examples.append((config, overrides))
    config, overrides = examples[0]
    remarks = [*also_changed(composer, config, typed), *notes(config, overrides), *_pruning(config, options)]
    command = SearchCommand(folder, options, space, fixed, config_dir, config, tuple(remarks))
    _check_folder(command)
    return command


def _own_options(composer: Composer, own: Sequence[str]) -> tuple[Path, SearchConfig]:
    """The folder of the study and the options that begin with `search.`."""
    given: dict[str, Value] = {}
    place = ""
    for word in own:
        name, _, value = word.partition("=")
        if name == OPTION:
            if place:
                raise OptionError(f"{OPTION} is given twice: {OPTION}={place} and {word}.")
            place = value.strip("'\"")
            continue
        (override,) = composer.parse([word])
        if override.is_sweep_override():
            raise OptionError(f"{word} gives several values, and a search has one.")
        given[name.partition(".")[2]] = override.value()  # pyright: ignore[reportArgumentType]
    if not place:
        raise OptionError(f"{OPTION}= needs the folder of the study: {OPTION}=searches/...")
    return Path(place).expanduser().absolute(), from_keywords(SearchConfig, OPTION, given)


def _refuse_where_a_search_decides(override: Override) -> None:
    """Refuse what a search does itself, and what it could not compare."""
    name, word = override.key_or_group, override.input_line
    if name.startswith(("hydra.", "hydra/")):
        raise OptionError(f"{OPTION}= makes the folders and processes of its runs: leave out {word}.")
    if name in MODES:
        raise OptionError(f"{OPTION}= makes runs of its own: leave out {name}=.")
    if name == "seed" and override.is_sweep_override():
        raise OptionError(
            f"{word}: a seed is no setting to choose. Search with one seed, and confirm the best "
            "settings with others."
        )


def _composed(composer: Composer, words: Sequence[str], run_dir: Path) -> DictConfig:
    """What Hydra makes of the words of one run, in its folder."""
    return composer.dict_config(composer.parse([*words, quoted_word("hydra.run.dir", run_dir)]))


def _pruning(config: Config, options: SearchConfig) -> list[str]:
    """A word on a search that cannot stop a run before its end."""
    every, total = config.evaluation.every, config.train.n_env_steps_total
    if not options.prune or every < total:
        return []
    return [
        f"No run will be stopped before its end, since it is evaluated once: evaluation.every={every} of "
        f"{total} env steps."
    ]


def _check_folder(command: SearchCommand) -> None:
    """Refuse a folder that holds anything else than this search."""
    folder, file = command.folder, command.folder / RECORD
    check_can_be_made(folder)
    if not folder.is_dir() or {path.name for path in folder.iterdir()} <= {".lock"}:
        return
    if not file.is_file() or file.is_symlink():
        raise OptionError(f"{folder} holds something else than a search: take another folder.")
    try:
        known, mine = read_plain_yaml(file), command.record()
    except ValueError as error:
        raise OptionError(f"{file} cannot be read: {error}.") from error
    for part, value in mine.items():
        there = known.get(part) if isinstance(known, dict) else None
        if there != value:
            raise OptionError(
                f"{folder} holds another search, with {part} {there}, and this one has {value}: "
                "take another folder, or type that search again."
            )
