"""What a report says before it is a table or a figure: settings by environment, and how they compare."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean

import numpy as np

from utils.report.folders import Found, find_runs, jobs_not_begun
from utils.report.scores import (
    TRIAL,
    Array,
    improvement,
    performance_profile,
    setting_intervals,
    stratified_iqm,
)
from utils.report.settings import RunSetting, differences, group_runs, option_text
from utils.statistics import Interval

# So many settings can be told apart in one figure, and compared each with each.
MOST_COMPARED = 8
# How many thresholds a performance profile is computed at.
_THRESHOLDS = 201


@dataclass(frozen=True)
class Comparison:
    """Settings that were evaluated, by environment, and what is worth knowing of the runs."""

    # Where the runs were looked for.
    places: tuple[Path, ...]
    # By environment, in the order of the folders.
    rooms: dict[str, tuple[RunSetting, ...]]
    # Every option in which settings differ, those without an evaluation included.
    differing: tuple[str, ...]
    # Missing, unfinished, repeated and unreadable runs, a sentence each.
    remarks: tuple[str, ...]
    # How many runs were read.
    num_runs: int

    @property
    def settings(self) -> list[RunSetting]:
        """All settings that were evaluated."""
        return [setting for room in self.rooms.values() for setting in room]

    @cached_property
    def shared_labels(self) -> list[str]:
        """The settings that were evaluated in every environment, if returns there can be compared at all."""
        # Sums over trials of other lengths are no measure of who is better.
        if any(len(episode_counts(room)) > 1 for room in self.rooms.values()):
            return []
        first = next(iter(self.rooms.values()), ())
        labels = [{setting.label for setting in room} for room in self.rooms.values()]
        return [setting.label for setting in first if all(setting.label in names for names in labels)]

    def of(self, label: str) -> list[RunSetting]:
        """The settings of one name, one for each environment."""
        return [setting for setting in self.settings if setting.label == label]

    def levels(self, environment: str) -> dict[str, float]:
        """What an oracle and random actions return in an episode there, where all runs say the same.

        Measured on a run's own tasks they differ by its seed, so runs are compared with those of their seed,
        and the mean over seeds is returned.
        """
        by_seed: dict[int, dict[str, float]] = {}
        for run in itertools.chain.from_iterable(setting.counted for setting in self.rooms[environment]):
            levels = by_seed.setdefault(run.seed, dict(run.levels))
            # Other options of the environment (a larger circle) may make other levels: then none is shown.
            for name in [name for name, level in levels.items() if run.levels.get(name) != level]:
                del levels[name]
        first, *others = by_seed.values()
        names = [name for name in first if all(name in other for other in others)]
        return {name: fmean(levels[name] for levels in by_seed.values()) for name in names}

    def trial_levels(self, environment: str) -> dict[str, float]:
        """What an oracle and random actions return in a trial: k times an episode; none where k differs."""
        counts = episode_counts(self.rooms[environment])
        if len(counts) > 1:
            return {}
        return {name: sum(counts) * level for name, level in self.levels(environment).items()}

    def intervals(self, setting: RunSetting) -> dict[str, Interval]:
        """{measure: interquartile mean over the counted runs of a setting, with its interval}."""
        return self._intervals[setting.environment, setting.label]

    @cached_property
    def _intervals(self) -> dict[tuple[str, str], dict[str, Interval]]:
        return {(one.environment, one.label): setting_intervals(one) for one in self.settings}

    @cached_property
    def best(self) -> list[str]:
        """The names of all settings, or of too many to compare each with each those with the best returns."""
        labels = list(dict.fromkeys(setting.label for setting in self.settings))
        if len(labels) <= MOST_COMPARED:
            return labels

        # Of several environments the best rank counts: their returns have different sizes.
        ranks = {label: len(labels) for label in labels}
        for room in self.rooms.values():
            ordered = sorted(room, key=lambda one: -self.intervals(one)[TRIAL].mean)
            for rank, setting in enumerate(ordered):
                ranks[setting.label] = min(ranks[setting.label], rank)
        best = set(sorted(labels, key=lambda label: ranks[label])[:MOST_COMPARED])
        return [label for label in labels if label in best]

    @cached_property
    def improvements(self) -> list[tuple[str, str, Interval]]:
        """(X, Y, probability that a run of X beats one of Y), for each two of the best that are everywhere.

        Returns of different environments are never compared with each other, so nothing is normalised.
        """
        found: list[tuple[str, str, Interval]] = []
        for x, y in itertools.combinations([one for one in self.best if one in self.shared_labels], 2):
            both = zip(self.of(x), self.of(y), strict=True)
            found.append((x, y, improvement([(_trials(one), _trials(other)) for one, other in both])))
        return found


def compare(places: Sequence[Path]) -> Comparison:
    """Read the runs in these folders and compare them."""
    found = find_runs(places)
    settings, repeated = group_runs(found.runs)
    rooms: dict[str, tuple[RunSetting, ...]] = {}
    for setting in settings:
        if setting.counted:
            rooms[setting.environment] = (*rooms.get(setting.environment, ()), setting)
    remarks = [
        *_of_folders(found),
        *(f"{place}: {count} jobs of the sweep have not begun."
          for place in places if (count := jobs_not_begun(place))),
        *(f"{run.folder} repeats {other.folder} (same setting, same seed), and is left out."
          for run, other in repeated),
        *_of_runs(settings),
        *_missing_seeds(settings),
        *_of_lengths(rooms),
    ]  # fmt: skip
    names = tuple(differences(settings))
    return Comparison(tuple(places), rooms, names, tuple(remarks), len(found.runs))


# -- remarks -------------------------------------------------------------------------------------------------


def _of_folders(found: Found) -> Iterator[str]:
    return (f"{folder} is left out: {reason}." for folder, reason in found.left_out)


def _of_runs(settings: Iterable[RunSetting]) -> Iterator[str]:
    for setting in settings:
        for run in setting.runs:
            counts = ""
            if run not in setting.counted:
                counts = "; its numbers are left out"
            for remark in run.remarks:
                yield f"{setting_name(setting)}, seed {run.seed} ({run.folder}): {remark}{counts}."


def _missing_seeds(settings: Sequence[RunSetting]) -> Iterator[str]:
    """Seeds that other settings have: a comparison over unequal seeds is not one of the settings alone."""
    everywhere = sorted({seed for setting in settings for seed in setting.seeds})
    for setting in settings:
        missing = [seed for seed in everywhere if seed not in setting.seeds]
        if missing:
            yield f"{setting_name(setting)} has no run with seed {', '.join(map(str, missing))}."


def _of_lengths(rooms: dict[str, tuple[RunSetting, ...]]) -> Iterator[str]:
    """What makes two rows of a table another comparison than it seems."""
    for environment, room in rooms.items():
        episodes = episode_counts(room)
        if len(episodes) > 1:
            yield (
                f"{environment}: trials have {_either(episodes)} episodes, so sums over a trial and areas of "
                "different settings cannot be compared."
            )
        totals = {run.total for setting in room for run in setting.runs}
        if len(totals) > 1:
            yield (
                f"{environment}: settings train for {_either(totals)} env steps, so a row compares what each "
                "reached with its own."
            )


def episode_counts(room: Iterable[RunSetting]) -> set[int]:
    """The numbers of episodes that the trials of some settings have."""
    return {len(one.returns) for setting in room for one in setting.last}


def _either(numbers: Iterable[int]) -> str:
    return " or ".join(f"{number:,}" for number in sorted(numbers))


def setting_name(setting: RunSetting) -> str:
    """A setting with its environment, for a sentence."""
    return f"{setting.environment}, {setting.label}"


def option_rows(comparison: Comparison) -> list[tuple[str, list[str]]]:
    """(option, its value in each setting) for all that differ."""
    return [
        (name, [option_text(setting.value(name)) for setting in comparison.settings])
        for name in comparison.differing
    ]


# -- comparisons of two and more -----------------------------------------------------------------------------


def _trials(setting: RunSetting) -> Array:
    return np.array([one.trial_return for one in setting.last])


@dataclass(frozen=True)
class Profiles:
    """For each setting that all environments have: how many of its scores are above each threshold."""

    thresholds: Array
    # By label: (share, low, high), each [thresholds].
    curves: dict[str, tuple[Array, Array, Array]]
    # Whether returns were normalised, as they must be where there are several environments.
    normalised: bool


def profiles(comparison: Comparison) -> Profiles | None:
    """The performance profiles; None where there are neither several environments nor returns of tasks.

    In one environment the scores are the returns of its tasks. Over several, each environment's returns are
    scaled: 0 is the worst and 1 the best mean over tasks that a run reached in it.
    """
    normalised = len(comparison.rooms) > 1
    of_setting = _scaled(comparison) if normalised else _task_scores
    labels = [label for label in comparison.best if label in comparison.shared_labels]
    scores = {label: [of_setting(setting) for setting in comparison.of(label)] for label in labels}
    tables = [table for of_label in scores.values() for table in of_label]
    if not tables or not (normalised or any(table.shape[1] > 1 for table in tables)):
        return None
    values = np.concatenate([table.ravel() for table in tables])
    margin = 0.02 * (values.max() - values.min()) or 1.0
    thresholds = np.linspace(values.min() - margin, values.max() + margin, _THRESHOLDS)
    curves = {label: performance_profile(of_label, thresholds) for label, of_label in scores.items()}
    return Profiles(thresholds, curves, normalised)


def _task_scores(setting: RunSetting) -> Array:
    """[runs, tasks] the return of each task's trial; [runs, 1] means where runs do not list their tasks."""
    tables = [one.by_task for one in setting.last]
    sizes = {None if table is None else len(table) for table in tables}
    known = [table.sum(1) for table in tables if table is not None]
    if len(sizes) > 1 or len(known) < len(tables):
        return _trials(setting)[:, None]
    return np.stack(known)


def aggregates(comparison: Comparison) -> dict[str, Interval]:
    """{label: interquartile mean of the scaled scores over all environments}, as in `profiles`."""
    scaled = _scaled(comparison)
    return {
        label: stratified_iqm([scaled(setting).ravel() for setting in comparison.of(label)])
        for label in comparison.shared_labels
    }


def _scaled(comparison: Comparison) -> Callable[[RunSetting], Array]:
    """What turns a setting into scores [runs, 1] between the worst and the best run of its environment."""

    def scale(setting: RunSetting) -> Array:
        reached = np.concatenate([_trials(other) for other in comparison.rooms[setting.environment]])
        span = float(reached.max() - reached.min()) or 1.0
        return (_trials(setting)[:, None] - reached.min()) / span

    return scale
