"""From the words of a command line to a checked `Config`; a mistake is one sentence with the nearest name.

Hydra composes from the choices alone (`env=`, `algorithm=`, ..., and options of `hydra.`). All other options
are assigned to the result one by one, so that a mistake can be named together with the option that has it.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from types import TracebackType
from typing import Any, Self, get_args, get_origin, get_type_hints

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from configs.hydra_private import CONFIG, JOB, job_words, merged_configs, record_overrides, search_also
from configs.schema import EXPERIMENT, FOLDER, GROUPS, list_text, register
from configs.spellings import answer, choices_with, environment, translated
from configs.validation import check
from configs.values import assign, near_option, option_names
from envs.base import TaskFamily
from envs.meta import FAMILIES
from policies.run.config import Config
from utils.options import OptionError, near, nearest

# The options that name the folder of a run, to continue it or to measure it.
MODES = ("resume", "evaluate")

# The launchers of others that are tested here, and the line that installs them.
LAUNCHERS = ("joblib", "submitit_local", "submitit_slurm")
LAUNCHERS_INSTALLED_BY = "pip install -c requirements.txt '.[launchers]'"

# What Hydra raises for a mistake in a word or in a file of one's own.
ERRORS = (HydraException, OmegaConfBaseException, yaml.YAMLError, OSError, ValueError)


def checked(composed: DictConfig, *, learns: bool = True) -> tuple[Config, TaskFamily]:
    """The one crossing from OmegaConf to dataclasses: a checked config, and the family of the check."""
    try:
        config = OmegaConf.to_object(without_hydra(composed))
    except OmegaConfBaseException as error:
        raise OptionError(_sentence(error)) from error
    assert isinstance(config, Config)
    for problem in _misreferred(config):
        raise OptionError(problem)
    return config, check(config, learns=learns)


def _misreferred(config: Any, prefix: str = "") -> Iterator[str]:
    """One sentence for each list and each section that `${...}` has made something else.

    OmegaConf converts what an interpolation gives where an option is a number, a text or a choice, and takes
    anything for a list or a section.
    """
    hints = get_type_hints(type(config))
    for item in fields(config):
        name, value, kind = f"{prefix}{item.name}", getattr(config, item.name), hints[item.name]
        kinds = [get_origin(one) for one in (kind, *get_args(kind))]
        if isinstance(kind, type) and is_dataclass(kind):
            if isinstance(value, kind):
                yield from _misreferred(value, f"{name}.")
            else:
                yield f"{name} is a section of options, and what it refers to is none of its kind."
        elif list in kinds and not isinstance(value, (list, type(None))):
            shown = "a section of options" if is_dataclass(value) else value
            yield f"{name} should be a list, and what it refers to is {shown}."


def without_hydra(composed: DictConfig) -> DictConfig:
    """A composed config without Hydra's own section."""
    if "hydra" in composed:  # a shallow copy: the section stays where it is for Hydra
        composed = copy.copy(composed)
        with open_dict(composed):
            del composed["hydra"]
    return composed


def load(words: Sequence[str] = ()) -> Config:
    """The checked config of a new run, from the words of a command line: `load(["env=AntDir", "seed=1"])`."""
    with Composer() as composer:
        overrides = composer.parse(words.split() if isinstance(words, str) else words)
        for override in overrides:
            if override.key_or_group in MODES:
                raise OptionError(
                    f"{override.input_line} names a run on disk: "
                    "configs.runs.load_run(folder) gives its config."
                )
        return composer.config(overrides)


def composed_settings(words: Sequence[str]) -> dict[str, Any]:
    """All options that a command line makes, as the types of YAML; nothing is checked, started or asked."""
    with Composer() as composer:
        composed = without_hydra(composer.dict_config(composer.parse(words)))
    settings = OmegaConf.to_container(composed, enum_to_str=True)
    assert isinstance(settings, dict)
    return {str(name): value for name, value in settings.items()}


class Composer:
    """Composes configs, within a `with`: nothing is created, and a mistake is an `OptionError`."""

    def __init__(self, config_dir: str | None = None) -> None:
        self._config_dir = config_dir
        self._composed: dict[tuple[str, ...], DictConfig] = {}

    def __enter__(self) -> Self:
        register()
        self._context = initialize_config_dir(version_base="1.3", config_dir=str(FOLDER), job_name=JOB)
        self._context.__enter__()  # on leaving it gives back the Hydra that was there before
        if self._config_dir:
            search_also(self._config_dir, FOLDER)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._context.__exit__(kind, error, trace)

    def choices(self, group: str) -> list[str]:
        """The names of a group."""
        return sorted(GlobalHydra.instance().config_loader().get_group_options(group))

    def family(self, name: str) -> str:
        """The family of a choice of env, which a YAML file may choose; '' where none can be read."""
        if name in FAMILIES:
            return name
        try:
            return str(self.dict_config(self.parse([f"env={name}"])).env.family)
        except OptionError:  # a broken file of one's own is reported when it is chosen
            return ""

    def parse(self, words: Sequence[str]) -> list[Override]:
        """The overrides that these words are, none of them given twice."""
        # Without the names of the choices Hydra's parser could not tell `env=AntDir` from an option.
        parser = OverridesParser.create(config_loader=GlobalHydra.instance().config_loader())
        seen: dict[str, str] = {}
        overrides: list[Override] = []
        for word in words:
            try:
                override = parser.parse_override(_verbatim(word))
                if not override.key_or_group:
                    raise HydraException("it has no name")
            except HydraException as error:
                raise OptionError(self._unreadable(word)) from error
            # Hydra would silently take the last of two values.
            key = override.get_key_element().lstrip("+")
            if key in seen:
                raise OptionError(f"{key} is given twice: {seen[key]} and {word}.")
            seen[key] = word
            overrides.append(override)
        return overrides

    def jobs(self, overrides: Sequence[Override]) -> Iterator[list[Override]]:
        """The overrides of every job of a multirun."""
        for words in job_words(overrides):
            yield self.parse(words)

    def dict_config(self, overrides: Sequence[Override]) -> DictConfig:
        """What Hydra would compose from one job's overrides, its own section `hydra` included."""
        for override in overrides:
            if override.is_sweep_override():
                raise OptionError(
                    f"{override.input_line} gives several values: add -m to run one job for each, "
                    "or write a list as [a,b]."
                )

        # Hydra merges the files of the choices, which must exist.
        groups = [override for override in overrides if _is_group(override)]
        for override in groups:
            self._check_choice(override)
        composed = self._compose(groups)

        # The command line comes last and wins; all of its mistakes are named at once, a sentence each.
        mistakes: list[str] = []
        for override in overrides:
            try:
                if not _is_group(override):
                    assign(composed, override)
            except OptionError as mistake:
                mistakes.append(str(mistake))
        if mistakes:
            raise OptionError("\n".join(mistakes))
        # Hydra's section records what was typed.
        record_overrides(composed, overrides)
        return composed

    def config(self, overrides: Sequence[Override]) -> Config:
        """The checked config of one job."""
        return checked(self.dict_config(overrides))[0]

    def layers(self, overrides: Sequence[Override]) -> dict[str, str]:
        """For each option that something sets: the last layer that does, a group or the command line."""
        groups = [str(override.input_line) for override in overrides if _is_group(override)]
        layers: dict[str, str] = {}

        # The files in the order in which they are merged: a later one takes an option over.
        for name, package, content in merged_configs(groups):
            prefix = f"{package}." if package else ""
            layers |= dict.fromkeys(option_names(content, prefix), name.partition("/")[0])

        # The command line, where `train={buffer_size: 9}` sets some options of a section.
        for override in overrides:
            if not _is_group(override):
                name, value = override.key_or_group, override.value()
                if isinstance(value, dict):
                    layers |= dict.fromkeys((f"{name}.{key}" for key in value), "command line")
                layers[name] = "command line"
        return layers

    def _compose(self, groups: Sequence[Override]) -> DictConfig:
        """What Hydra makes of these choices: once for all jobs of a sweep that have them, copied for each."""
        words = tuple(str(override.input_line) for override in groups)
        if words not in self._composed:
            try:
                self._composed[words] = compose(CONFIG, list(words), return_hydra_config=True)
            except ERRORS as error:
                raise OptionError(_sentence(error)) from error
        return copy.deepcopy(self._composed[words])

    def _check_choice(self, override: Override) -> None:
        """Refuse a choice that does not exist: Hydra's own sentence would not know the nearest name."""
        group = override.key_or_group
        if group not in GROUPS:
            return
        if override.is_delete() or (override.value() is None and group != EXPERIMENT):
            raise OptionError(
                f"{override.input_line}: a run needs a choice of {group}. "
                f"Known: {', '.join(self.choices(group))}."
            )
        if override.is_add():
            raise OptionError(f"{override.input_line}: leave out the +, {group} is there already.")
        # A choice may be a list, as for groups of which several can be chosen.
        chosen: Any = override.value()
        for name in chosen if isinstance(chosen, list) else [chosen]:
            if name is not None and str(name) not in self.choices(group):
                raise OptionError(f"{group}={name} is not known.{self._known(group, str(name))}")

    def _known(self, group: str, typed: str) -> str:
        """The nearest choice; of environments there are so many that all are listed under it."""
        choices = self.choices(group)
        if group != "env":
            return nearest(typed, choices)
        if environment(typed) != typed:
            return f" It is written env={environment(typed)} here."
        return f"{near(typed, choices)}\n\n{list_text(group, choices, self.family)}"

    def _unreadable(self, word: str) -> str:
        """Why a word is no override, in one sentence."""
        if re.fullmatch(r"[\w.]+", word):  # a name alone: of a choice, of an option, or misspelled
            for group in GROUPS:
                if word in self.choices(group):
                    return f"{word!r} is not an option. Did you mean '{group}={word}'?"
            names = [*option_names(self._compose([])), *GROUPS]
            if word in names:
                return f"{word!r} has no value: write {word}=VALUE, without spaces."
            near_name = near_option(word, names)
            return f"{word!r} is not an option: options are written name=value.{near_name}"
        if re.match(r"[+~]*[\w./@]+=", word):
            return (
                f"Cannot read the value in {word!r}: a list is [a,b], and text with special characters "
                "stands in two pairs of quotes, 'name=\"a=b\"'."
            )
        return f"Cannot read {word!r}: options are written name=value, without spaces around the =."


def _verbatim(word: str) -> str:
    """A run folder is taken as it is typed, whatever Hydra's grammar would make of its name."""
    name, _, value = word.partition("=")
    if name not in MODES or value in ("", "null") or value[0] in "'\"":
        return word
    return quoted_word(name, value)


def quoted_word(name: str, value: object) -> str:
    """The word that gives an option this text, whatever Hydra's grammar would make of it."""
    escaped = str(value).replace("'", "\\'")
    return f"{name}='{escaped}'"


def _is_group(override: Override) -> bool:
    """Whether Hydra needs it to compose: a choice, or a setting of Hydra's own."""
    key = override.key_or_group
    return key in GROUPS or key.startswith(("hydra/", "hydra."))


def _first_line(text: str) -> str:
    """The text of an error in one line, without Hydra's hints at its documentation."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    shown = [line for line in lines if not line.startswith(("See https", "Error parsing override"))]
    return " ".join(shown or lines)[:200].rstrip(".")


def _sentence(error: BaseException) -> str:
    """Hydra's or OmegaConf's error, which may have many lines and causes, as one sentence."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, name = error.missing_cfg_file.rpartition("/")
        if group == "hydra/launcher" and name in LAUNCHERS:
            return f"{group}={name} is not installed: {LAUNCHERS_INSTALLED_BY}"
        return f"{group}={name} is not known.{nearest(name, error.options or [])}"

    # A file sets an option that is not there: under another spelling, or only with another choice.
    pattern = r"In '(\w+)/(\w+)'.*Key '(\w+)' not in '(\w+)Config'\s+full_key: ([\w.]+)"
    written = re.search(pattern, str(error), re.DOTALL)
    if written:
        group, name, key, choice, option = written.groups()
        if translated(option, "VALUE") is not None and not choices_with(option):
            return f"In {group}={name}: {answer(option, None, ())}"
        return (
            f"{group}={name} sets {key}, which {choice} does not have: it was written for another choice, "
            "so leave one of the two out."
        )

    # Anything else: the causes after one another, each with the option that it is about.
    parts: list[str] = []
    current: BaseException | None = error
    while current is not None:
        key = getattr(current, "full_key", None)
        text = _first_line(str(current).partition("\n    full_key:")[0])
        if key and key not in text:
            text = f"{key}: {text}"
        parts.append(text)
        current = current.__cause__
    return ": ".join(dict.fromkeys(parts)) + "."
