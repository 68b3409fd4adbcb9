"""What a run on disk was trained with, and what an evaluation of it does differently."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from envs.base import TaskFamily
from envs.meta.make_env import make_family
from policies.evaluation.lists import TaskLists, read_tasks
from policies.run.config import RECORD, Config, read_record, recordable

# What an option is here and what it was in training.
Difference = dict[str, Any]


@dataclass(frozen=True)
class RecordedTraining:
    """The settings that a run folder records, as the types of YAML."""

    settings: dict[str, Any]

    @classmethod
    def of(cls, run_dir: Path | None) -> Self | None:
        """Those of a folder; None where it records no run, so there is nothing to differ from."""
        if run_dir is None or not (run_dir / RECORD).is_file():
            return None
        return cls(read_record(run_dir / RECORD))

    def differences(self, config: Config) -> dict[str, Difference]:
        """The options of the environment that `config` changes, and the episodes of a trial."""
        # What is permitted to this command alone is in no record, and no difference.
        now, then = recordable(config), self.settings
        found = {
            f"env.{name}": _difference(value, then["env"].get(name))
            for name, value in now["env"].items()
            if value != then["env"].get(name)
        }
        episodes, trained = now["evaluation"]["episodes_per_trial"], then["env"]["max_rollouts_per_task"]
        if episodes not in (None, trained):
            found["evaluation.episodes_per_trial"] = _difference(episodes, trained)
        return found

    def family(self, num_eval_tasks: int) -> TaskFamily:
        """The family that the run was trained on, with lists of that length."""
        options = self.settings["env"] | {"num_eval_tasks": num_eval_tasks}
        return make_family(options["family"], **{name: options[name] for name in options if name != "family"})


def evaluation_lists(config: Config, family: TaskFamily, training: RecordedTraining | None) -> TaskLists:
    """The lists to evaluate a run on: those of a file, or those of its seed by names that are true of it."""
    if config.evaluation.tasks is not None:
        return TaskLists(None, read_tasks(Path(config.evaluation.tasks), family.spec))
    drawn = TaskLists.draw(family, config.seed)
    if training is None or not any(name.startswith("env.") for name in training.differences(config)):
        return drawn
    return drawn.beside(TaskLists.draw(training.family(config.env.num_eval_tasks), config.seed))


def _difference(here: Any, trained: Any) -> Difference:
    return {"here": here, "in_training": trained}
