"""Tasks of a service: what its reset is told of a task, and where the tasks come from.

    tasks: [opponent=0|1|2|3,wind=-1..1]      arguments: a choice, and a real number of a range
    test_tasks: [opponent=4]                   what the test split draws instead; [] draws the same
    task_by_seed: true                         the seed of every reset of a trial
    task_api: name                             an entry of the server's Task API

A task is a vector. With arguments it has a number for each: which of its choices, counted over those of both
splits, or the number itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.base import Split
from envs.remote.protocol import RemoteError, shown_url
from envs.remote.words import named_value, value_of
from utils.options import OptionError

# Seeds of tasks are below this number, since servers keep them in a signed int.
SEEDS = 2**31
SPLITS = ("train", "test")


@dataclass(frozen=True)
class TaskArgument:
    """One argument: the choices of each split, or the same range for both."""

    name: str
    train: tuple[Any, ...] = ()
    test: tuple[Any, ...] = ()
    range: tuple[float, float] | None = None

    @property
    def choices(self) -> list[Any]:
        """The values of both splits, each once, in the order in which they were given."""
        found: list[Any] = []
        for value in (*self.train, *self.test):
            # 1 and True are equal in Python and not in JSON.
            if not any(value == one and type(value) is type(one) for one in found):
                found.append(value)
        return found

    def draw(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        """[n] numbers of tasks."""
        if self.range is not None:
            return rng.uniform(*self.range, n)
        own = self.train if split == "train" else self.test
        numbers = np.array([self.choices.index(value) for value in own], np.float64)
        return numbers[rng.integers(len(numbers), size=n)]

    def value(self, number: float) -> Any:
        """The value that a number of a task stands for, or a `ValueError`."""
        if self.range is not None:
            return number
        if number not in range(len(self.choices)):
            raise ValueError(f"the task {self.name}={number:g} is none of 0 to {len(self.choices) - 1}")
        return self.choices[int(number)]


def task_arguments(tasks: Sequence[str], test_tasks: Sequence[str]) -> tuple[TaskArgument, ...]:
    """The arguments that two options describe."""
    train = dict(_values("tasks", text) for text in tasks)
    test = dict(_values("test_tasks", text) for text in test_tasks)
    for name in test:
        if name not in train or isinstance(train[name], tuple) or isinstance(test[name], tuple):
            raise OptionError(f"test_tasks: {name!r} should be an argument of tasks= that has choices.")
    made: list[TaskArgument] = []
    for name, values in train.items():
        if isinstance(values, tuple):
            made.append(TaskArgument(name, range=values))
        else:
            made.append(TaskArgument(name, tuple(values), tuple(test.get(name, values))))
    return tuple(made)


def are_disjoint(arguments: Sequence[TaskArgument]) -> bool:
    """Whether no task of the test split can be one of training."""
    return any(
        one.range is None and not {repr(value) for value in one.train} & {repr(value) for value in one.test}
        for one in arguments
    )


def _values(option: str, text: str) -> tuple[str, list[Any] | tuple[float, float]]:
    name, words = named_value(option, text)
    low, dots, high = words.partition("..")
    if not dots:
        return name, [value_of(word) for word in words.split("|")]
    try:
        limits = float(low), float(high)
    except ValueError:
        limits = np.nan, np.nan
    if not -np.inf < limits[0] < limits[1] < np.inf:
        raise OptionError(f"{option}: {text!r} should be name=low..high, or choices as in name=a|b|c.")
    return name, limits


@dataclass(frozen=True)
class TaskSource:
    """Tasks as arguments of reset, as seeds, or as entries of a server's Task API; else there is one task."""

    arguments: tuple[TaskArgument, ...] = ()
    by_seed: bool = False
    # The name of the environment in the paths of the Task API.
    api: str | None = None
    # Told to every reset.
    fixed: Mapping[str, Any] = field(default_factory=dict)
    # How many tasks the Task API has in each split that was asked for: a run draws from as many to its end,
    # also while its server starts again.
    _counts: dict[str, int] = field(default_factory=dict, compare=False)

    @property
    def task_dim(self) -> int:
        """The length of a task's vector."""
        if self.api is not None:
            return 2
        return max(1, len(self.arguments))

    @property
    def split(self) -> Split:
        """Only splits that cannot share a task are disjoint."""
        disjoint = self.by_seed or self.api is not None or are_disjoint(self.arguments)
        return Split.disjoint if disjoint else Split.shared

    @property
    def names(self) -> list[str]:
        """What reset is told by name, besides the seed."""
        return [*self.fixed, *(one.name for one in self.arguments)]

    def sample(
        self, rng: np.random.Generator, n: int, split: str, url: str | None, headers: Mapping[str, str]
    ) -> NDArray[np.float64]:
        """[n, task_dim] tasks of a split; only the Task API asks the server for how many there are."""
        if self.by_seed:
            # Even seeds are for training and odd ones for tests, so the splits never meet.
            return (2 * rng.integers(SEEDS // 2, size=(n, 1)) + (split == "test")).astype(np.float64)
        if self.api is not None:
            count = self._num_tasks(split, url, headers)
            return np.stack(
                [np.full(n, SPLITS.index(split), np.float64), rng.integers(count, size=n).astype(np.float64)],
                1,
            )
        if not self.arguments:
            return np.zeros((n, 1))
        return np.stack([argument.draw(rng, n, split) for argument in self.arguments], axis=1)

    def reset_arguments(self, task: NDArray[np.float64], seed: int) -> dict[str, Any]:
        """What a reset is told of this task and this seed of an episode."""
        told = {"seed": seed, **self.fixed}
        if self.by_seed:
            return told | {"seed": int(task[0])}
        if self.api is not None:
            return told | {"split": SPLITS[int(task[0])], "index": int(task[1])}
        drawn = zip(self.arguments, task.tolist(), strict=False)
        return told | {argument.name: argument.value(number) for argument, number in drawn}

    def _num_tasks(self, split: str, url: str | None, headers: Mapping[str, str]) -> int:
        if split in self._counts:
            return self._counts[split]
        from envs.remote.pages import post_json  # it costs a worker, which has no use for it

        answer = post_json(url or "", f"{self.api}/num_tasks", {"split": split}, headers)
        count = answer.get("num_tasks", answer.get("count")) if isinstance(answer, dict) else answer
        if not isinstance(count, int) or count < 1:
            said = json.dumps(answer)[:200]
            raise RemoteError(f"{shown_url(url or '')} has no tasks in the split {split!r}: {said}.")
        self._counts[split] = count
        return count
