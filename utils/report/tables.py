"""A comparison as text: Markdown for people, CSV for programs; every number of a figure is in one of them."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from utils.report.comparison import Comparison, aggregates, option_rows
from utils.report.scores import AREA, TRIAL, episode_name, episodes_of, run_scores
from utils.report.settings import ABSENT, RunSetting
from utils.statistics import FEWEST, Interval

# A table for people shows no more episodes and settings side by side; those for programs hold all.
_MOST_EPISODES = 4
_MOST_COLUMNS = 6
_LISTS = {"held_out": "held-out tasks", "in_distribution": "tasks of the training distribution"}


# -- for people ----------------------------------------------------------------------------------------------


def main_table(comparison: Comparison) -> str:
    """One row for each setting: what it reached, with how much, from how many seeds."""
    blocks: list[str] = []
    for environment, room in comparison.rooms.items():
        episodes = _shown_episodes(max(episodes_of(setting) for setting in room))
        whole = [TRIAL, AREA] if episodes_of(room[0]) > 1 else [AREA]
        titles = [
            "setting",
            *(f"episode {index + 1}" for index in episodes),
            *whole,
            "env steps",
            "minutes",
            "seeds",
        ]
        measures = [*map(episode_name, episodes), *whole]
        rows = [_row(comparison, setting, measures) for setting in room]
        rows += _level_rows(comparison, environment, measures)
        lists = " and ".join(
            sorted({_LISTS.get(run.tasks, run.tasks) for one in room for run in one.counted})
        )
        blocks.append(f"{environment}, returns on {lists}:\n\n{_markdown(titles, rows)}")
    return "\n\n".join(blocks)


def _shown_episodes(count: int) -> list[int]:
    """The episodes that stand in the table: all of a few, of many the first, the last and some between."""
    if count <= _MOST_EPISODES:
        return list(range(count))
    return sorted({0, 1, (count - 1) // 2, count - 1})


def _row(comparison: Comparison, setting: RunSetting, measures: Sequence[str]) -> list[str]:
    intervals = comparison.intervals(setting)
    shown = [str(intervals.get(name, ABSENT)) for name in measures]
    return [setting.label, *shown, f"{_env_steps(setting):,.0f}", f"{_minutes(setting):.1f}", _seeds(setting)]


def _level_rows(comparison: Comparison, environment: str, measures: Sequence[str]) -> list[list[str]]:
    """What an oracle and random actions return, in an episode and a trial, where that is known."""
    of_trial = comparison.trial_levels(environment)
    rows: list[list[str]] = []
    for name, level in comparison.levels(environment).items():
        known = {TRIAL: of_trial.get(name), AREA: None}
        values = [known.get(measure, level) for measure in measures]
        shown = [ABSENT if value is None else str(Interval(value)) for value in values]
        rows.append([name, *shown, ABSENT, ABSENT, ABSENT])
    return rows


def _env_steps(setting: RunSetting) -> float:
    return statistics.fmean(one.env_steps for one in setting.last)


def _minutes(setting: RunSetting) -> float:
    return statistics.fmean(one.seconds for one in setting.last) / 60


def _seeds(setting: RunSetting) -> str:
    """How many seeds count, and of how many if others do not; a star marks runs that have not finished."""
    counted, all_runs = len(setting.counted), len(setting.runs)
    star = ""
    if not all(run.finished for run in setting.counted):
        star = "*"
    return f"{counted}{star}" if counted == all_runs else f"{counted}{star} of {all_runs}"


def report_text(comparison: Comparison, figures: Iterable[tuple[str, str]]) -> str:
    """The whole report in Markdown; `figures` are (title, file name)."""
    where = ", ".join(f"`{place}`" for place in comparison.places)
    parts = [
        f"# Report\n\n{comparison.num_runs} runs in {where}. "
        "Runs that differ in the seed alone are one setting.",
        f"## Results\n\n{main_table(comparison)}\n\n{_legend()}",
    ]
    if comparison.remarks:
        parts.append(
            "## To know before you compare\n\n" + "\n".join(f"- {one}" for one in comparison.remarks)
        )
    if comparison.differing:
        parts.append(f"## Settings that differ\n\n{_differences(comparison)}")
    if comparison.improvements:
        parts.append(_improvement_text(comparison))
    if len(comparison.rooms) > 1 and comparison.shared_labels:
        parts.append(_aggregate_text(comparison))
    parts.append("## Figures\n\n" + "\n\n".join(f"![{title}]({name})" for title, name in figures))
    return "\n\n".join(parts) + "\n"


def _legend() -> str:
    return (
        "Interquartile means over seeds at the last evaluation, with 95 % bootstrap intervals from "
        f"{FEWEST} seeds on. `{TRIAL}` is the sum over a trial's episodes; `{AREA}` is its mean over the env "
        "steps of training (the area under the learning curve, divided by its length). Env steps and minutes "
        "are means over seeds. A star at the seeds marks runs that have not finished: their numbers stand "
        "where all of them have been."
    )


def _differences(comparison: Comparison) -> str:
    rows = option_rows(comparison)
    if len(comparison.settings) <= _MOST_COLUMNS:
        names = [_full_name(comparison, setting) for setting in comparison.settings]
        return _markdown(["option", *names], [[name, *values] for name, values in rows])
    distinct = [[name, ", ".join(dict.fromkeys(values))] for name, values in rows]
    return _markdown(["option", "values"], distinct) + "\n\nWhich setting has which: `settings.csv`."


def _full_name(comparison: Comparison, setting: RunSetting) -> str:
    """The label, with its environment where there are several."""
    if len(comparison.rooms) == 1:
        return setting.label
    return f"{setting.environment}: {setting.label}"


def _improvement_text(comparison: Comparison) -> str:
    rows = [[x, y, str(interval)] for x, y, interval in comparison.improvements]
    which = ""
    if len(comparison.best) < len({setting.label for setting in comparison.settings}):
        which = f" Among the {len(comparison.best)} settings with the highest returns."
    return (
        "## Probability of improvement\n\nHow often a run of X has a higher return per trial than a run of Y."
        f"{which}\n\n{_markdown(['X', 'Y', 'P(X > Y)'], rows)}"
    )


def _aggregate_text(comparison: Comparison) -> str:
    rows = [[label, str(interval)] for label, interval in aggregates(comparison).items()]
    return (
        "## Over all environments\n\nIn each environment 0 is the worst and 1 the best return per trial that "
        f"a run in this report reached.\n\n{_markdown(['setting', 'score'], rows)}"
    )


def _markdown(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose columns are as wide as what stands in them; numbers to the right."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (titles, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(titles))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
             for row in cells]  # fmt: skip
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


# -- for programs --------------------------------------------------------------------------------------------


def csv_files(comparison: Comparison) -> dict[str, str]:
    """{file name: content}: settings in numbers, runs in numbers, differing options, improvements."""
    names = [f"{setting.environment}: {setting.label}" for setting in comparison.settings]
    return {
        "results.csv": _csv(_results(comparison)),
        "runs.csv": _csv(_runs(comparison)),
        "settings.csv": _csv([["option", *names], *([name, *row] for name, row in option_rows(comparison))]),
        "improvement.csv": _csv(
            [
                ["x", "y", "probability", "low", "high"],
                *([x, y, one.mean, one.low, one.high] for x, y, one in comparison.improvements),
            ]
        ),
    }


def _measures(comparison: Comparison) -> list[str]:
    most = max(episodes_of(setting) for setting in comparison.settings)
    return [*map(episode_name, range(most)), TRIAL, AREA]


def _results(comparison: Comparison) -> list[list[Any]]:
    """A row for each setting: each measure with its bounds."""
    measures = _measures(comparison)
    bounds = [f"{name}{end}" for name in measures for end in ("", "_low", "_high")]
    table: list[list[Any]] = [["environment", "setting", "seeds", "runs", "env_steps", "minutes", *bounds]]
    for setting in comparison.settings:
        intervals = comparison.intervals(setting)
        numbers: list[float | None] = []
        for name in measures:
            one = intervals.get(name)
            numbers += [None, None, None] if one is None else [one.mean, one.low, one.high]
        seeds = " ".join(str(run.seed) for run in setting.counted)
        table.append(
            [
                setting.environment,
                setting.label,
                seeds,
                len(setting.runs),
                _env_steps(setting),
                _minutes(setting),
                *numbers,
            ]
        )
    return table


def _runs(comparison: Comparison) -> list[list[Any]]:
    """A row for each counted run: the numbers that the results are computed from."""
    measures = _measures(comparison)
    table: list[list[Any]] = [
        ["environment", "setting", "seed", "folder", "env_steps", "minutes", "finished", *measures]
    ]
    for setting in comparison.settings:
        scores = run_scores(setting)
        for index, (run, end) in enumerate(zip(setting.counted, setting.last, strict=True)):
            known = [scores[name][index] if name in scores else None for name in measures]
            table.append(
                [
                    setting.environment,
                    setting.label,
                    run.seed,
                    str(run.folder),
                    end.env_steps,
                    end.seconds / 60,
                    run.finished,
                    *known,
                ]
            )
    return table


def _csv(rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
