"""Outcome: what an evaluation of a run on disk has found, to be shown and to be kept in its folder."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from envs.base import EnvSpec
from policies.evaluation.levels import EvaluatedRun, levels_of
from policies.evaluation.table import Levels, RunRow, evaluation_table, runs_table
from policies.evaluation.training import Difference
from policies.run.progress import Counters
from utils.disk.own_files import replace_file
from utils.options import OptionError
from utils.report.folders import find_runs
from utils.report.settings import ALIKE, group_runs

# The file of a run folder that holds what `evaluate=` found last.
EVALUATION = "evaluation.json"
NOT_AS_TRAINED = "not as in training"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """The numbers of one evaluation, and what they are about."""

    # `eval/<list>/...`, as in a line of metrics.
    metrics: Mapping[str, Any]
    # The family that was played.
    spec: EnvSpec
    # Which checkpoint was evaluated, and how far the run was then.
    checkpoint: str
    counters: Counters
    # What differs from training, by option.
    differs: Mapping[str, Difference]
    # What to compare the returns with.
    levels: Levels

    @property
    def moment(self) -> str:
        """Which checkpoint this is about, in a few words."""
        return f"{self.checkpoint}, {self.counters.env_steps:,}"

    def table(self) -> str:
        """The table of returns, under a line on the checkpoint and one on what differs from training."""
        counters = self.counters
        steps, updates = f"{counters.env_steps:,} env steps", f"{counters.updates:,} updates"
        lines = [f"the {self.checkpoint} checkpoint: {steps}, {updates}"]
        if self.differs:
            lines.append(f"{NOT_AS_TRAINED}: {self.differences()}")
        return "\n".join([*lines, evaluation_table(self.metrics, self.spec, self.levels)])

    def differences(self) -> str:
        """What differs from training, as words of a command line."""
        return ", ".join(
            f"{name}={_plain(both['here'])} ({_plain(both['in_training'])} in training)"
            for name, both in self.differs.items()
        )

    def write(self, run_dir: Path) -> None:
        """Write it into the run folder; where that fails a warning says so."""
        facts = {
            "env_steps": self.counters.env_steps,
            "updates": self.counters.updates,
            "checkpoint": self.checkpoint,
            "differs_from_training": dict(self.differs),
            **self.metrics,
        }
        if self.levels.measured:
            facts["measured"] = self.levels.measured
        # One metric a line, however many tasks it lists.
        lines = [f" {json.dumps(name)}: {json.dumps(_json_of(value))}" for name, value in facts.items()]
        try:
            replace_file(run_dir / EVALUATION, ("{\n" + ",\n".join(lines) + "\n}\n").encode())
        except OSError as error:
            _log.warning("The evaluation is shown here only: %s.", error)


class Evaluated(EvaluatedRun, Protocol):
    """The run that is evaluated: the Learner offers this."""

    @property
    def counters(self) -> Counters: ...

    def evaluate(self) -> dict[str, Any]: ...


def assess(run: Evaluated) -> Outcome:
    """Evaluate a run, and write what was found into its folder."""
    context, metrics = run.context, run.evaluate()
    config, training = context.config, context.training
    differs = {} if training is None else training.differences(config)
    which = config.evaluation.checkpoint.value
    outcome = Outcome(metrics, context.family.spec, which, run.counters, differs, levels_of(run))
    if context.run_dir is not None:
        outcome.write(context.run_dir)
    return outcome


def side_by_side(outcomes: Mapping[Path, Outcome]) -> str:
    """The table of several runs, by their folders, and what differs from the training of each."""
    if not outcomes:
        return "No run could be evaluated."
    above = os.path.commonpath([folder.parent for folder in outcomes])
    names = {folder: os.path.relpath(folder, above) for folder in outcomes}
    settings = _settings_of(outcomes)
    table = runs_table(
        [
            RunRow(f"{names[folder]} {settings.get(folder, '')}", one.moment, one.metrics, one.levels)
            for folder, one in outcomes.items()
        ]
    )
    notes = [
        f"{names[folder]} {NOT_AS_TRAINED}: {one.differences()}"
        for folder, one in outcomes.items()
        if one.differs
    ]
    return "\n".join([table, *notes])


def _settings_of(folders: Iterable[Path]) -> dict[Path, str]:
    """What tells runs apart, as in a report: `agent=Markov seed=1`; a run that repeats another has none."""
    try:
        settings, _ = group_runs(find_runs(folders).runs)
    except OptionError:  # what a report cannot read was evaluated nonetheless
        return {}
    return {
        run.folder: f"{setting.label} seed={run.seed}".removeprefix(f"{ALIKE} ")
        for setting in settings
        for run in setting.runs
    }


def _json_of(value: Any) -> Any:
    """A metric with null for what is no number: JSON has no NaN."""
    if isinstance(value, list):
        return [_json_of(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _plain(value: Any) -> str:
    """A value as it is typed."""
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"))
