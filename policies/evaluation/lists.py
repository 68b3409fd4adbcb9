"""Lists of tasks: those that a run trains and is evaluated on, and those of one's own from a file."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.base import EnvSpec, Split, TaskFamily
from utils.disk.own_files import replace_file
from utils.options import OptionError
from utils.seeding import Phase, generator

# The list of tasks drawn as test tasks in an environment whose tasks are others than those of training.
CHANGED = "changed"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")

Lists = dict[str, NDArray[np.float64]]


@dataclass(frozen=True)
class TaskLists:
    """The tasks that a run trains and is evaluated on, fixed by its seed."""

    # None: a new task for every trial.
    train: NDArray[np.float64] | None
    # By name: `train`, and `held_out` or (where test tasks can be training tasks) `in_distribution`.
    evaluation: Lists

    @classmethod
    def draw(cls, family: TaskFamily, seed: int) -> TaskLists:
        """The lists of a seed."""
        config, spec = family.config, family.spec
        train = None
        if config.num_train_tasks is not None:
            train = family.sample_tasks(generator(seed, Phase.TASKS, 0), config.num_train_tasks, "train")

        # Evaluation on training tasks: the first of the list, or draws of the training split.
        seen = train
        if seen is None:
            seen = family.sample_tasks(generator(seed, Phase.TASKS, 1), config.num_eval_tasks, "train")

        # Evaluation on test tasks; a family that calls its splits disjoint is taken at its word, and checked.
        unseen = family.sample_tasks(generator(seed, Phase.TASKS, 2), config.num_eval_tasks, "test")
        repeated = (unseen[:, None] == seen[None]).all(-1)
        if spec.split is Split.disjoint and repeated.any():
            raise ValueError(
                f"{spec.name} says that its splits are disjoint, but a test task is also a training task."
            )
        # A family with one task would be evaluated on it twice: one list is enough.
        seen = seen[: config.num_eval_tasks]
        if np.array_equal(seen, unseen):
            return cls(train, {held_out_name(spec): unseen})
        return cls(train, {"train": seen, held_out_name(spec): unseen})

    @property
    def test(self) -> str:
        """The name of the list that an agent is judged by: the last, which is that of test tasks."""
        return list(self.evaluation)[-1]

    def beside(self, trained: TaskLists) -> TaskLists:
        """These lists by names that are true of an agent which was trained on those of `trained`.

        Where ranges of tasks have changed, draws of the training split are no tasks of its training any more,
        and draws of the test split are neither held out nor in distribution.
        """
        named: Lists = {}
        for name, tasks in self.evaluation.items():
            if name in trained.evaluation and np.array_equal(tasks, trained.evaluation[name]):
                named[name] = tasks
            elif name == self.test:
                named[CHANGED] = tasks
        return TaskLists(self.train, named)

    def save(self, path: Path) -> None:
        """Write the lists as JSON, for readers and other programs."""
        lists: dict[str, Any] = {"training": None if self.train is None else self.train.tolist()}
        lists |= {f"evaluation_{name}": tasks.tolist() for name, tasks in self.evaluation.items()}
        replace_file(path, (json.dumps(lists, indent=1) + "\n").encode())


def held_out_name(spec: EnvSpec) -> str:
    """The name of the test list: held-out only where no test task can be a training task."""
    return "held_out" if spec.split is Split.disjoint else "in_distribution"


def read_tasks(path: Path, spec: EnvSpec) -> Lists:
    """The lists of a JSON file: one list of tasks, which has the name of the file, or lists by name.

    A task is a list of as many numbers as the tasks of this environment have. Lists that are null are left
    out, so a run's `tasks.json` is such a file too.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OptionError(f"evaluation.tasks={path} cannot be read as JSON: {error}.") from error
    named = content if isinstance(content, dict) else {path.stem: content}
    lists = {name: _tasks_of(path, name, tasks, spec) for name, tasks in named.items() if tasks is not None}
    if not lists:
        raise OptionError(f"evaluation.tasks={path} holds no list of tasks.")
    return lists


def _tasks_of(path: Path, name: str, tasks: Any, spec: EnvSpec) -> NDArray[np.float64]:
    """[n, task_dim] a list of a file, checked."""
    where = f"evaluation.tasks={path}: the list {name!r}"
    if not _NAME.fullmatch(name):
        raise OptionError(f"{where} needs another name, of letters, digits, '_', '.' and '-' alone.")
    if not isinstance(tasks, list) or not tasks:
        raise OptionError(f"{where} should be a list of tasks, such as [[0.0, 1.0], [1.0, 0.0]].")
    for number, task in enumerate(tasks):
        numbers = task if isinstance(task, list) else []
        if len(numbers) != spec.task_dim or not all(map(_is_finite, numbers)):
            raise OptionError(
                f"{where}: task {number} should be a list of {spec.task_dim} finite numbers, as every task "
                f"of {spec.name} is, and it is {json.dumps(task)[:60]}."
            )
    return np.array(tasks, np.float64)


def _is_finite(value: Any) -> bool:
    return (
        isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    )
