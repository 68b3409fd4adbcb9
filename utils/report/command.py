"""`python main.py report=FOLDER`: compare the runs on disk, write tables and figures, say where."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from utils.disk.own_files import replace_file
from utils.options import OptionError, nearest
from utils.report.comparison import Comparison, compare
from utils.report.figures import draw_figures
from utils.report.tables import csv_files, main_table, report_text

_REPORT, _TO = "report", "report.to"
_FOLDER = "report"


def asks_for_a_report(words: Sequence[str]) -> bool:
    """Whether a command line is one of these, which need none of the configs."""
    names = [word.partition("=")[0] for word in words]
    return any(name == _REPORT or name.startswith(f"{_REPORT}.") for name in names)


def run_report(words: Sequence[str]) -> str:
    """Write the report that a command line asks for; returns what to show of it."""
    given: dict[str, list[str]] = {_REPORT: [], _TO: []}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in given:
            raise OptionError(_refusal(word, name))
        given[name].append(value)
    if len(given[_TO]) > 1:
        raise OptionError(f"{_TO}= is the one folder to write to, and it is given {len(given[_TO])} times.")
    if not given[_REPORT]:
        raise OptionError(f"{_TO}= goes with {_REPORT}=FOLDER, the runs to compare.")
    places = [place for value in given[_REPORT] for place in _places(value)]
    to = given[_TO][0] if given[_TO] else None
    if to == "":
        raise OptionError(f"{_TO}= needs the folder to write to.")
    return write_report(places, Path(to).expanduser() if to else None)


def _refusal(word: str, name: str) -> str:
    if name == _REPORT:
        return f"{_REPORT}= needs folders of runs: {_REPORT}=multirun/... or {_REPORT}=[one,other]."
    if name.startswith(f"{_REPORT}."):
        return f"There is no option {name!r}.{nearest(name, [_TO])}"
    return f"{_REPORT}= reads the folders of runs and trains nothing: leave out {word}."


def _places(value: str) -> list[Path]:
    """The folders in `a,b` or `[a,b]`; in `sweep/0,1,2` those beside the first."""
    names = [
        name.strip().strip("'\"") for name in value.strip().removeprefix("[").removesuffix("]").split(",")
    ]
    if not all(names):
        raise OptionError(
            f"{_REPORT}= needs folders of runs: {_REPORT}=multirun/... or {_REPORT}=[one,other]."
        )
    first = Path(names[0]).expanduser()
    places = [first]
    for name in names[1:]:
        place, beside = Path(name).expanduser(), first.parent / name
        places.append(beside if beside.is_dir() and not place.is_dir() else place)
    for place in places:
        if not place.is_dir():
            others = [str(other) for other in _siblings(place)]
            hint = nearest(str(place), others) if others else ""
            raise OptionError(f"{_REPORT}={place} is not a folder.{hint}")
    return places


def _siblings(place: Path) -> list[Path]:
    parent = place.parent
    if not parent.is_dir():
        return []
    return sorted(other for other in parent.iterdir() if other.is_dir() and not other.name.startswith("."))


def write_report(places: Sequence[Path], to: Path | None = None) -> str:
    """Compare the runs in these folders and write the report; returns its main table and where the rest is.

    Without `to` it is written into `report/` in the folder that holds them all.
    """
    comparison = compare(places)
    if not comparison.settings:
        raise OptionError(_nothing_evaluated(comparison))
    folder = to if to is not None else _common(places) / _FOLDER
    if to is None and folder.is_symlink():
        raise OptionError(f"{folder} is a link to somewhere else: say where to write with {_TO}=FOLDER.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        figures = draw_figures(comparison, folder)
        text = report_text(comparison, [(title, path.name) for title, path in figures])
        for name, content in {"report.md": text, **csv_files(comparison)}.items():
            replace_file(folder / name, content.encode())
    except OSError as error:
        raise OptionError(
            f"The report cannot be written: {error}. {_TO}=FOLDER writes it elsewhere."
        ) from error
    return "\n\n".join(_shown(comparison, folder))


def _common(places: Sequence[Path]) -> Path:
    """The nearest folder that holds all of these."""
    if len(places) == 1:
        return places[0]
    return Path(os.path.commonpath([place.absolute() for place in places]))


def _nothing_evaluated(comparison: Comparison) -> str:
    where = " and ".join(map(str, comparison.places))
    remark = comparison.remarks[0] if comparison.remarks else ""
    return f"No run in {where} was evaluated yet, so there is nothing to compare. {remark}".rstrip()


def _shown(comparison: Comparison, folder: Path) -> list[str]:
    parts = [main_table(comparison)]
    if comparison.remarks:
        most = 12
        lines = [f"note: {remark}" for remark in comparison.remarks[:most]]
        if len(comparison.remarks) > most:
            lines.append(f"note: {len(comparison.remarks) - most} more are in the report.")
        parts.append("\n".join(lines))
    parts.append(f"report  {folder / 'report.md'}, with its figures (PNG and SVG) and tables (CSV) beside it")
    return parts
