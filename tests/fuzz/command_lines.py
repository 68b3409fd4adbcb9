"""Command lines: options that do not exist, values of other types, Hydra's syntax, words in odd places.

Promised: a sentence, or a config in which every typed option has the value that was typed; and nothing is
created.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import configs.cli
import configs.compose
from configs.compose import Composer
from configs.schema import GROUPS
from configs.values import option_names
from policies.run.config import Config
from tests.fuzz.engine import BrokenPromise, Mutation, Target, check_sentence, remove
from utils.options import OptionError

# Values as they may be typed. None of them asks for millions of anything that a user could not wait for.
PLAIN = """
    0 1 2 -1 3 64 0.5 1e-3 1e400 -0.0 nan inf 2147483648 99999999999999999999999999 0x10 1_000 0o7 01 1e3 6.0
    +1 yes on PPO gpu cpu auto list true False null None ~ ??? ${seed} ${oc.env:HOME} ${oc.env:NO} ${ $ % #
    [] [1,2] [[1],[2]] {} {a:1} {seed:3} [ { ] ) ( ' " '"' \\ 1,2 a,b , range(1,3) choice(a,b) glob(*)
    interval(0,1) sort(3,1) int('7') json_str('1') ü a=b = == @ :: ../.. / /etc/passwd .
"""
VALUES = [*PLAIN.split(), "", " ", "'a b'", "€\u2028", "\x1b[2J", "a\nb", "a\tb", "x" * 300]
FLAGS = """
    -m --multirun --help -h --cfg --cfg=job --resolve --package=a --info --run -r --hydra-help --version
    --config-dir --config-dir=/ --config-dir=nowhere --config-name=x --config-path=/ --seed --seed=1 -x -- -
    --shell-completion -c job env help resume= resume=nowhere evaluate=nowhere resume=null report=nowhere
    recipe=list experiment=x hydra.run.dir=x hydra.mode=MULTIRUN hydra.sweep.dir=/etc hydra=x
"""
LETTERS = "abc.=_,{[:\x00é"
SIGNS = ["+", "++", "~", "-", "--", " ", "env.", "@", "_"]
BASE = ("env=PointRobot", "device=cpu", "seed=1", "train.n_env_steps_total=500")


class CommandLines(Target):
    """The words after `python main.py`."""

    name = "command_lines"
    num_cases = 40
    kinds = ("option", "option", "option", "choice", "sign", "flag", "unknown", "letters", "repeat", "order")
    most = 4

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        with Composer() as composer:
            self._options = option_names(composer.dict_config([]))
            self._choices = {group: composer.choices(group) for group in GROUPS}
        # Each Composer registers all schemas anew, which takes longer than to read a command line.
        self.stack.enter_context(patch.object(configs.compose, "register"))
        self._home = folder / "home"
        self._home.mkdir()
        self.stack.callback(os.chdir, os.getcwd())
        os.chdir(self._home)

    def play(self, mutations: Sequence[Mutation]) -> None:
        """Change the words, and read them."""
        words: list[str] = list(BASE)
        for one in mutations:
            words = self._changed(words, one.kind, one.rng)
        try:
            command = configs.cli.read(words)
        except OptionError as error:
            check_sentence(error)
            return
        except SystemExit as end:  # of --version
            if end.code:
                raise
            return
        finally:
            if created := os.listdir(self._home):
                for name in created:
                    remove(self._home / name)
                raise BrokenPromise(f"{created} was created")
        for note in command.notes:
            check_sentence(ValueError(note))
        if command.config is not None:
            self._compare(words, command.config)

    def _changed(self, words: list[str], kind: str, rng: np.random.Generator) -> list[str]:
        """The words with one more of them, or one of them changed."""
        place, value = int(rng.integers(len(words) + 1)), VALUES[rng.integers(len(VALUES))]
        old = min(place, len(words) - 1)
        if kind == "option":
            words.insert(place, f"{self._options[rng.integers(len(self._options))]}={value}")
        elif kind == "choice":
            group = list(self._choices)[rng.integers(len(self._choices))]
            names = [*self._choices[group], value]
            words = [word for word in words if not word.startswith(f"{group}=")]
            words.append(f"{group}={names[rng.integers(len(names))]}")
        elif kind == "sign":
            words[old] = SIGNS[rng.integers(len(SIGNS))] + words[old]
        elif kind == "flag":
            words.insert(place, FLAGS.split()[rng.integers(len(FLAGS.split()))])
        elif kind == "unknown":
            words.insert(place, f"{VALUES[rng.integers(len(VALUES))]}={value}")
        elif kind == "letters":
            word = words[old]
            cut = int(rng.integers(len(word) + 1))
            rest = word[cut + int(rng.integers(2)) :]
            words[old] = word[:cut] + LETTERS[rng.integers(len(LETTERS))] + rest
        elif kind == "repeat":
            words.insert(place, words[rng.integers(len(words))])
        else:
            words = [words[index] for index in rng.permutation(len(words))]
        return words

    def _compare(self, words: Sequence[str], config: Config) -> None:
        """What was typed plainly is in the config; a name is typed once."""
        names = list[str]()
        for word in words:
            name, equals, typed = word.partition("=")
            if name not in self._options or not equals:
                continue
            names.append(name)
            if not _is_same(_found(config, name), typed):
                raise BrokenPromise(f"{word} became {_found(config, name)!r}")
        if len(set(names)) < len(names):
            raise BrokenPromise(f"one of {names} is given twice")


def _found(config: Config, name: str) -> Any:
    value: Any = config
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _is_same(value: Any, typed: str) -> bool:
    """Whether a value is what these letters say; of texts and lists, which have a syntax, nothing is said."""
    if isinstance(value, Enum):
        return typed.strip("'\"") == value.name or typed.lower() == str(value.name).lower()
    if isinstance(value, bool):
        return typed.lower() in {True: ("true", "1", "yes", "on"), False: ("false", "0", "no", "off")}[value]
    if isinstance(value, (int, float)):
        try:
            return float(typed.replace("_", "")) == float(value) or np.isnan(value)
        except ValueError:
            return typed.startswith(("int(", "0x", "0o", "'", '"', "${"))
    return value is not None or typed.strip() in ("null", "None", "", "~")
