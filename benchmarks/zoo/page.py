"""The page of the zoo: a row and a curve for each entry, from what was recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.learn import ROOT
from benchmarks.parts.curves import COLOURS, INK, QUIET, Point
from benchmarks.zoo.entries import ENTRIES, INFORMED, LEFT_OUT, MARKOV, Entry, Recording, jobs_of
from benchmarks.zoo.records import Recorded, is_current, kept_agent, load_entry, store_minutes
from configs.compose import composed_settings
from policies.evaluation.table import ORACLE, RANDOM
from utils.statistics import interquartile_mean, iqm_interval

PAGE = ROOT / "docs" / "zoo.md"
PICTURES = ROOT / "docs" / "pictures" / "zoo"
ARTICLES = {MARKOV: "a Markov", INFORMED: "an informed"}
COLOURS_BESIDE = {MARKOV: COLOURS[1], INFORMED: COLOURS[3]}

OPENING = """\
# The zoo: what curve comes of each default?

Every section is one command, run and recorded: to its end, for 45 minutes of a core, or for as long as there
was time; where it was not to its end, the line below the table says so. The return is that of each episode of
a trial on the test list at the last evaluation, deterministic; of three seeds it is the interquartile mean,
with an interval of 95 % by stratified bootstrap. The oracle is given the task, which an agent has to find out
first, so not all of its return can be had in an early episode; where there is a script that is told nothing,
and searches, it shows how much. The Markov agent has the same recipe and no memory; the informed agent has
the same recipe and is given the task (`env.oracle=true`). Published numbers are of other simulators and often
of longer runs. Minutes are those of one core (CPU time of the whole process) of one run; the cores were
shared with other programs.

`python -m benchmarks.zoo` records what is missing, or has other settings by now, the cheapest first, and
writes this page anew; `python -m benchmarks.zoo Wind --seeds 0 1 2` records some rows; with `--minutes 20` a
run that has had fewer goes on, if its folder is still in `outputs/zoo`.
"""
# Runs that differ more in their env steps were not recorded as far.
ABOUT_AS_FAR = 1.05


def zoo_page(entries: Sequence[Entry] = ENTRIES) -> str:
    """The whole page."""
    recorded = {entry.name: load_entry(entry) for entry in entries}
    shown = [entry for entry in entries if recorded[entry.name]]
    missing = [entry for entry in entries if not recorded[entry.name]]
    blocks = [OPENING, *(_block(entry, recorded[entry.name]) for entry in shown)]
    if missing:
        names = "\n".join(f"- {entry.name}: `{entry.command}`" for entry in missing)
        blocks.append(f"## Not recorded yet\n\n{names}\n")
    left_out = "\n".join(f"- {name}: {why}." for name, why in LEFT_OUT.items())
    blocks.append(f"## Left out\n\n{left_out}\n")
    return "\n".join(blocks)


def _block(entry: Entry, runs: Mapping[str, Recorded]) -> str:
    """The section of one entry."""
    found = [(job, runs[job.label]) for job in jobs_of(entry) if job.label in runs]
    seeds = [run for job, run in found if job.companion is None]
    newest = min(seeds or [run for _, run in found], key=lambda run: run.last.env_steps)
    rows = ["| | return, by episode |", "|---|---|"]
    if seeds:
        count = f"{len(seeds)} seeds" if len(seeds) > 1 else f"seed {seeds[0].run.seed}"
        rows.append(f"| the agent, {count} | **{_returns(seeds)}** |")
    for job, run in found:
        if job.companion is not None:
            far = "" if _as_far(run, newest) else f", {run.last.env_steps:,} env steps"
            rows.append(f"| {ARTICLES[job.companion]} agent, seed {job.seed}{far} | {_returns([run])} |")
    rows += [f"| {policy} | {score:.4g} |" for policy, score in newest.levels.items()]
    if entry.searching is not None:
        rows.append(f"| a script that is told nothing | {entry.searching} |")
    rows += [f"| {whose} | {returns} |" for whose, returns in entry.published]
    informed = [run for job, run in found if job.companion == INFORMED]
    steps, share = newest.last.env_steps, _share(seeds, newest.levels, informed)
    taken = f"{steps:,} env steps"
    if not newest.is_whole:
        taken = f"As far as it was recorded: {taken} of {_total(entry):,}"
    circumstances = f"{share}{taken}, {newest.minutes:.1f} minutes of a core; commit {newest.commit}."
    stale = [job.label for job, _ in found if not is_current(job, runs)]
    if stale:
        circumstances += f"\n**Recorded with other settings than today's: {', '.join(stale)}.**"
    if kept_agent(entry).exists():
        circumstances += f"\nSee it play: `python main.py evaluate=zoo/{entry.name} evaluation.films=2`."
    return "\n".join(
        [
            f"## {entry.name}",
            "",
            f"`{entry.command}`",
            "",
            f"![return by env steps](pictures/zoo/{entry.name}.svg)",
            "",
            *rows,
            "",
            circumstances,
            "",
        ]
    )


def _total(entry: Entry) -> int:
    """The env steps that its command takes to its end."""
    return int(composed_settings(entry.words)["train"]["n_env_steps_total"])


def _share(seeds: Sequence[Recorded], levels: Mapping[str, float], informed: Sequence[Recorded]) -> str:
    """A sentence: where the last episode lies between random actions and who is given the task."""
    if ORACLE in levels:
        whose, top = "the oracle", levels[ORACLE]
    elif informed:
        whose, top = "the informed agent", informed[0].last.returns[-1]
    else:
        return ""
    if not seeds or RANDOM not in levels:
        return ""
    found = interquartile_mean([point.returns[-1] for point in _last_common(seeds)])
    share = (found - levels[RANDOM]) / (top - levels[RANDOM])
    return f"The last episode has {share:.2f} of the way from random actions to {whose}.\n"


def _as_far(run: Recorded, other: Recorded) -> bool:
    """Whether one run has about the env steps of the other."""
    few, many = sorted((run.last.env_steps, other.last.env_steps))
    return many <= ABOUT_AS_FAR * few


def _last_common(runs: Sequence[Recorded]) -> list[Point]:
    """Of each run the evaluation nearest to where the shortest of them ends."""
    least = min(run.last.env_steps for run in runs)
    return [min(run.run.curve, key=lambda point: abs(point.env_steps - least)) for run in runs]


def _returns(runs: Sequence[Recorded]) -> str:
    """The last returns by episode index, of one run or over seeds."""
    points = _last_common(runs)
    episodes = min(len(point.returns) for point in points)
    shown = [0, 1, 2, episodes - 1] if episodes > 4 else list(range(episodes))
    if len(runs) == 1:
        texts = [f"{points[0].returns[index]:.4g}" for index in shown]
    else:
        texts = [str(iqm_interval([point.returns[index] for point in points])) for index in shown]
    if episodes > 4:
        texts.insert(3, "...")
    return ", ".join(texts)


def draw_entry(entry: Entry, runs: Mapping[str, Recorded], folder: Path = PICTURES) -> None:
    """Draw the curves of an entry: the first and the last episode of a trial, beside reference scores."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    figure = Figure(figsize=(5.6, 2.6), layout="constrained")
    FigureCanvasSVG(figure)
    panel = figure.subplots()
    for policy, score in next(iter(runs.values())).levels.items():
        panel.axhline(score, color=QUIET, linewidth=1, linestyle=(0, (5, 4)))
        panel.annotate(policy, (0.01, score), xycoords=("axes fraction", "data"), fontsize=8, color=QUIET)
    labels = set[str]()
    for job in jobs_of(entry):
        if job.label not in runs:
            continue
        for index, label, colour in _lines(job, runs[job.label]):
            points = runs[job.label].run.curve
            panel.plot(
                [point.env_steps for point in points],
                [point.returns[index] for point in points],
                color=colour,
                linewidth=1.6,
                label=None if label in labels else label,
            )
            labels.add(label)
    panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    panel.set_xlabel("env steps", color=INK, fontsize=9)
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(colors=INK, labelsize=8)
    panel.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    folder.mkdir(parents=True, exist_ok=True)
    # The same curves make the same file.
    with matplotlib.rc_context({"svg.hashsalt": entry.name, "svg.fonttype": "none"}):
        figure.savefig(folder / f"{entry.name}.svg", format="svg", metadata={"Date": None})


def _lines(job: Recording, recorded: Recorded) -> list[tuple[int, str, str]]:
    """(episode index, label, colour) of the curves of one run."""
    last = len(recorded.last.returns) - 1
    if job.companion is not None:
        return [(last, job.companion, COLOURS_BESIDE[job.companion])]
    if last == 0:
        return [(0, "the agent", COLOURS[0])]
    return [(0, "episode 1", COLOURS[2]), (last, f"episode {last + 1}", COLOURS[0])]


def write_page() -> None:
    """Write the page and the pictures anew."""
    for entry in ENTRIES:
        if runs := load_entry(entry):
            draw_entry(entry, runs)
    store_minutes(ENTRIES)
    PAGE.write_text(zoo_page(), encoding="utf-8")
