"""Runs that differ in the seed alone are one setting: what settings differ in, and a short name for each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from utils.report.folders import Evaluation, RunFolder

# Options and sections that change nothing of what is learned, and the seed, over which a run is repeated.
UNLEARNED = (
    "seed",
    "num_parallel_workers",
    "backend",
    "wandb",
    "loggers",
    "profile",
    "checkpoint_every",
    "resume",
    "evaluate",
    "allow_links",
    "resume_without_damaged",
    "resume_if_there",
)
# Options that choose a class, the first words in which people tell runs apart.
_CHOICES = ("algorithm.name", "agent.arch", "memory.name")
# The name of the only setting of an environment.
ALIKE = "all runs"
# An option that a setting does not have: PPO has no temperature.
ABSENT = "-"


@dataclass(frozen=True)
class RunSetting:
    """The runs of one setting in one environment, one for each seed."""

    # What tells it from the other settings, as in `algorithm=SAC agent.arch=Markov`.
    label: str
    # The family, with what else makes returns incomparable: `Gymnasium id=CartPole-v1`.
    environment: str
    runs: tuple[RunFolder, ...]

    @cached_property
    def counted(self) -> tuple[RunFolder, ...]:
        """The runs whose numbers stand for the setting: those that finished, or else all with numbers."""
        evaluated = tuple(run for run in self.runs if run.evaluations)
        return tuple(run for run in evaluated if run.finished) or evaluated

    @cached_property
    def last(self) -> tuple[Evaluation, ...]:
        """The evaluation of each counted run that the numbers are taken from.

        Of runs that have not finished it is the last one that all of them have reached.
        """
        if all(run.finished for run in self.counted):
            return tuple(run.evaluations[-1] for run in self.counted)
        common = min(run.evaluations[-1].env_steps for run in self.counted)
        return tuple(_reached(run, common) for run in self.counted)

    @property
    def seeds(self) -> list[int]:
        """The seeds of all its runs, counted or not."""
        return [run.seed for run in self.runs]

    def value(self, name: str) -> Any:
        """The value of an option, or what it amounted to, which is the same in all its runs."""
        run = self.runs[0]
        return run.settings.get(name, run.used.get(name, ABSENT))


def _reached(run: RunFolder, env_steps: int) -> Evaluation:
    """The last evaluation up to there; a run whose first one comes later has that one."""
    reached = [one for one in run.evaluations if one.env_steps <= env_steps]
    return reached[-1] if reached else run.evaluations[0]


def group_runs(runs: Iterable[RunFolder]) -> tuple[list[RunSetting], list[tuple[RunFolder, RunFolder]]]:
    """The settings in the order in which they are found, and runs that repeat another, each with that one.

    A run of the same setting and seed holds the same numbers once more: to count it twice would make an
    interval narrower than the seeds allow.
    """
    of_setting: dict[str, dict[int, RunFolder]] = {}
    repeated: list[tuple[RunFolder, RunFolder]] = []
    for run in runs:
        key = json.dumps(_learned(run), sort_keys=True, default=str)
        seeds = of_setting.setdefault(key, {})
        present = seeds.setdefault(run.seed, run)
        if present is run:
            continue
        # Of the two, the one that came farther stays.
        if run.env_steps > present.env_steps:
            seeds[run.seed], present, run = run, run, present
        repeated.append((run, present))
    sorted_runs = [tuple(seeds[seed] for seed in sorted(seeds)) for seeds in of_setting.values()]
    return _named(sorted_runs), repeated


def _learned(run: RunFolder) -> dict[str, Any]:
    """The options that make up a setting."""
    return {
        name: value
        for name, value in run.settings.items()
        if name.partition(".")[0] not in UNLEARNED and name != "evaluation.films"
    }


def differences(settings: Sequence[RunSetting]) -> list[str]:
    """The names of all options in which settings differ, and of what they amounted to, in their order."""
    runs = [setting.runs[0] for setting in settings]
    return _differing([_learned(run) for run in runs]) + _differing([run.used for run in runs])


def _differing(learned: Sequence[Mapping[str, Any]]) -> list[str]:
    names = list(dict.fromkeys(name for one in learned for name in one))
    return [name for name in names if len({_text(one, name) for one in learned}) > 1]


def option_text(value: Any) -> str:
    """A value as it is typed on a command line."""
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(option_text, value))}]"
    if isinstance(value, float):
        return f"{value:.12g}"  # 0.036 and not 0.036000000000000004
    return {"True": "true", "False": "false", "None": "null"}.get(str(value), str(value))


# -- names ---------------------------------------------------------------------------------------------------


def _named(groups: Sequence[tuple[RunFolder, ...]]) -> list[RunSetting]:
    learned = [_learned(runs[0]) for runs in groups]
    environments = _environments(learned)

    # Names tell settings of one environment apart, so that they mean the same in each environment.
    rooms = [
        [one for one, room in zip(learned, environments, strict=True) if room == environment]
        for environment in dict.fromkeys(environments)
    ]
    names = _telling(rooms)
    return [
        RunSetting(_label(one, names), environment, runs)
        for one, environment, runs in zip(learned, environments, groups, strict=True)
    ]


def _label(learned: dict[str, Any], names: Sequence[str]) -> str:
    parts = [f"{_short(name)}={option_text(learned[name])}" for name in names if name in learned]
    return " ".join(parts) or ALIKE


def _short(name: str) -> str:
    """The name of a choice as it is typed: algorithm=SAC, not algorithm.name=SAC."""
    return name.partition(".")[0] if name in _CHOICES else name


def _environments(learned: Sequence[dict[str, Any]]) -> list[str]:
    """The name of each one's environment: its family, and the texts among its options that differ there.

    A text names a thing (the id of a Gymnasium environment, a kind of reward): with another one returns mean
    something else. A number turns a knob of the same environment.
    """
    texts: dict[str, list[str]] = {}
    for family in {one["env.family"] for one in learned}:
        options = _differing([one for one in learned if one["env.family"] == family])
        texts[family] = [name for name in options if name.startswith("env.")]

    def named(one: dict[str, Any]) -> str:
        family = one["env.family"]
        words = [name for name in texts[family] if isinstance(one.get(name), str)]
        return " ".join([family, *(f"{name.partition('.')[2]}={one[name]}" for name in words)])

    return [named(one) for one in learned]


def _telling(rooms: Sequence[Sequence[dict[str, Any]]]) -> list[str]:
    """As few options as tell the settings in each room apart; choices such as the algorithm come first."""
    candidates = list(dict.fromkeys(name for room in rooms for name in _differing(room)))
    candidates.sort(key=lambda name: name not in _CHOICES)
    chosen: list[str] = []

    def told_apart(names: Sequence[str]) -> int:
        """How many settings have a name of their own among those of their room."""
        return sum(len({tuple(_text(one, name) for name in names) for one in room}) for room in rooms)

    # One option after the other: that which tells most settings apart, and of equals the first.
    while told_apart(chosen) < sum(len(room) for room in rooms):
        best = max(candidates, key=lambda name: told_apart([*chosen, name]))
        chosen.append(best)
        candidates.remove(best)
    return sorted(chosen, key=lambda name: name not in _CHOICES)


def _text(learned: Mapping[str, Any], name: str) -> str:
    """A value to compare; JSON has no empty text, so it stands for an option that is not there."""
    return json.dumps(learned[name], sort_keys=True, default=str) if name in learned else ""
