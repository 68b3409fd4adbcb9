"""How long learning takes: minutes and env steps to a return on test tasks, each run by `main.py` itself.

    python -m benchmarks.learn              the demo by SAC and by PPO, from which the default is chosen
    python -m benchmarks.learn --recipe ant_dir_ppo --seeds 0 1 2 --minutes 60 --mark 2318 2608
    python -m benchmarks.learn --recipe ant_dir_ppo --name ant_dir_slow --set algorithm.learning_rate=3e-4
    python -m benchmarks.learn --recipe cart_pole_ppo --peer sb3-ppo        the same beside another library
    python -m benchmarks.learn --recipe ant_dir_ppo --peer sb3-recurrent-ppo --minutes 20   trials beside one
    python -m benchmarks.learn --show       the table and the picture again, of what has been recorded

A recipe is a file of configs/experiment, or one of benchmarks/parts/learning/recipes.py. A run ends when its
minutes are over or its env steps are taken; runs are played one after another. The curve of a run is its mean
return on the test list, by episode index, at each of its evaluations. A mark is reached by the first
evaluation whose sum over the trial's episodes is as high, whatever comes later. The clock is the run's own:
it starts when the Learner is made (a few seconds after the command) and includes evaluations and checkpoints,
since users wait for those too. Every run is stored in benchmarks/results/learn.json by its name and seed, in
place of an older run of that name and seed. After a run of PPO with the half cheetah or the ant it says which
share of the machine's limit that run has reached (`benchmarks/parts/learning/share_of_limit.py`).
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

from rich.console import Console

from benchmarks.parts.curves import Point, draw, point_of, summary_of, table_of
from benchmarks.parts.learning.processor import Busy, processor_seconds
from benchmarks.parts.learning.recipes import RECIPES, Recipe, recipe_of
from benchmarks.parts.learning.sb3_runs import PEERS
from benchmarks.parts.learning.sb3_trials import TRIAL_PEERS, TrialTask
from benchmarks.parts.machine import facts, write

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).parent / "results" / "learn.json"
PICTURE = "learn.png"
METRICS = "metrics.jsonl"
# How a run ended: its minutes were over, or its env steps were taken.
LIMIT, WHOLE = "limit", "env steps"
# What a run may take to write its last checkpoint when its time is over.
GRACE_S = 180.0
# The width of a table that goes to a file or a pipe, where there is no window to fit.
FILE_WIDTH = 180


USUAL = ("point_robot_sac", "point_robot_ppo")


@dataclass
class Run:
    """What one run has left."""

    name: str
    seed: int
    words: list[str]
    marks: list[float]
    # The limit, if there was one.
    minutes: float | None
    curve: list[Point]
    # `LIMIT` or `WHOLE`.
    ended: str
    # Of the whole process, its imports and its last checkpoint too.
    wall_s: float
    env_steps: int
    updates: int
    env_steps_per_s: float
    updates_per_s: float
    # Of the run's time, by what it did.
    shares: dict[str, float]
    # Cores that other programs took meanwhile, on average.
    others: float
    began: str
    machine: dict[str, Any] = field(default_factory=dict)
    # What this machine could at most do in a second; None where it was not measured.
    limit_env_steps_per_s: float | None = None
    # What the whole process has taken of the processor; 0 where it was not recorded.
    processor_s: float = 0.0

    @property
    def key(self) -> str:
        """By which it is kept."""
        return f"{self.name} seed {self.seed}"


class Reader:
    """The lines of a run that is still going on, as they are written from now on."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, path.stat().st_size if path.exists() else 0

    def new_lines(self) -> Iterator[dict[str, Any]]:
        """Those that have been finished since the last call."""
        if not self._path.exists():
            return
        with open(self._path, "rb") as file:
            file.seek(self._offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        yield from (json.loads(line) for line in whole.splitlines())


@contextmanager
def _leaving_at_sigterm() -> Iterator[None]:
    """As at Ctrl-C, so that what was started is ended, too."""
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def played(
    command: Sequence[str], folder: Path, limit: float | None, console: Console, title: str
) -> tuple[list[dict[str, Any]], str]:
    """Run a command that writes metrics into a folder, to its end or for so many seconds: the lines that it
    has written, and what ended it.
    """
    lines: list[dict[str, Any]] = []
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "output.txt", "ab") as output, console.status(title) as status, _leaving_at_sigterm():
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        try:
            ended = _followed(process, Reader(folder / METRICS), limit, lines, console, title, status)
        finally:
            if process.poll() is None:  # we were interrupted
                process.terminate()
                process.wait(GRACE_S)
    expected = (0, 128 + signal.SIGTERM, -signal.SIGTERM) if ended == LIMIT else (0,)
    if process.returncode not in expected:
        last_lines = (folder / "output.txt").read_text(errors="replace").splitlines()[-20:]
        raise SystemExit(
            "\n".join(
                [
                    f"{title} ended with exit code {process.returncode}; the end of {folder / 'output.txt'}:",
                    *last_lines,
                ]
            )
        )
    return lines, ended


def _followed(
    process: subprocess.Popen[bytes],
    reader: Reader,
    limit: float | None,
    lines: list[dict[str, Any]],
    console: Console,
    title: str,
    status: Any,
) -> str:
    """Show what it writes, and end it when its time is over."""
    began, ended, processor = perf_counter(), WHOLE, 0.0
    while process.poll() is None:
        sleep(0.2)
        # Read before the lines, so that a process which ends meanwhile has left its last number.
        processor = processor_seconds(process) or processor
        _show(reader, lines, console, title, status, processor)
        if limit is not None and ended != LIMIT and perf_counter() - began > limit:
            process.send_signal(signal.SIGTERM)
            ended = LIMIT
        if limit is not None and perf_counter() - began > limit + GRACE_S:
            process.kill()
    _show(reader, lines, console, title, status, processor)
    return ended


def _show(
    reader: Reader,
    lines: list[dict[str, Any]],
    console: Console,
    title: str,
    status: Any,
    processor: float,
) -> None:
    for line in reader.new_lines():
        lines.append(line | {"processor_s": processor})
        where = f"{title}: {line['env_steps']:,} env steps, {line['time/seconds']:,.0f} s"
        status.update(where)
        point = point_of(line)
        if point is not None:
            returns = " ".join(f"{value:.4g}" for value in point.returns)
            console.print(
                f"{where}, return on test tasks {point.trial_return:.4g} ({returns})",
                highlight=False,
                soft_wrap=True,
            )


def play_recipe(
    name: str,
    recipe: Recipe,
    seed: int,
    console: Console,
    parent: Path,
    minutes: float | None = None,
    before: tuple[Run, Path] | None = None,
) -> tuple[Run, Path]:
    """One run, played to its end or for so many minutes and measured, and its folder below the parent.

    `before` is a run of the same recipe that was ended by its limit: it goes on, and both are one run.
    """
    began, clock, busy = datetime.now(), perf_counter(), Busy()
    folder = (parent / f"{name}_seed{seed}_{began:%Y-%m-%d_%H-%M-%S_%f}").absolute()
    words = [*recipe.words, f"seed={seed}"]
    if before:
        folder = before[1].absolute()
    command = _command(recipe, words, seed, folder, goes_on=before is not None)
    limit = None if minutes is None else 60 * minutes
    lines, ended = played(command, folder, limit, console, f"{name} seed {seed}")
    if not lines and before:  # it had nothing left to do, or too little time
        return replace(before[0], ended=ended), folder
    if not lines:
        raise SystemExit(
            f"{name} seed {seed} was ended before it had written a line of metrics: give it more minutes."
        )
    last = lines[-1]
    run = Run(
        name=name,
        seed=seed,
        words=words,
        marks=list(recipe.marks),
        minutes=minutes,
        curve=[point for line in lines if (point := point_of(line)) is not None],
        ended=ended,
        wall_s=perf_counter() - clock,
        env_steps=last["env_steps"],
        updates=last["updates"],
        env_steps_per_s=last["env_steps"] / last["time/seconds"],
        updates_per_s=last["updates"] / last["time/seconds"],
        shares={key.removeprefix("time/"): last[key] for key in SHARES if key in last},
        others=busy.others(),
        began=f"{began:%Y-%m-%d %H:%M}",
        machine=facts(),
        processor_s=last["processor_s"],
    )
    return joined(before[0], run) if before else run, folder


def _command(recipe: Recipe, words: Sequence[str], seed: int, folder: Path, *, goes_on: bool) -> list[str]:
    if goes_on:
        return [sys.executable, "main.py", f"resume={folder}"]
    if recipe.peer and recipe.task:
        return recipe.task.command(recipe.peer, seed, folder)
    return [sys.executable, "main.py", *words, f"hydra.run.dir={folder}", "wandb.mode=disabled"]


def joined(before: Run, after: Run) -> Run:
    """A run that was ended by its limit and went on, as one."""
    curve = [replace(point, processor_s=before.processor_s + point.processor_s) for point in after.curve]
    wall_s = before.wall_s + after.wall_s
    return replace(
        after,
        minutes=None if after.minutes is None else (before.minutes or 0.0) + after.minutes,
        curve=[*before.curve, *curve],
        wall_s=wall_s,
        others=(before.others * before.wall_s + after.others * after.wall_s) / wall_s,
        began=before.began,
        processor_s=before.processor_s + after.processor_s,
    )


def beside_its_limit(run: Run, console: Console) -> Run:
    """The run with the machine's limit, where that is known; the share that it has reached is said."""
    from benchmarks.parts.learning.share_of_limit import limit_of
    from configs.compose import load

    limit = limit_of(load(run.words))
    if limit is None:
        return run
    console.print(f"{run.key}: {limit.text(run.env_steps_per_s)}", highlight=False, soft_wrap=True)
    return replace(run, limit_env_steps_per_s=limit.env_steps_per_s)


SHARES = [f"time/{part}" for part in ("act", "env", "buffer", "update", "evaluate", "checkpoint", "other")]


def load_runs(path: Path) -> dict[str, Run]:
    """The runs that have been recorded."""
    if not path.exists():
        return {}
    found = json.loads(path.read_text(encoding="utf-8"))["runs"]
    return {
        key: Run(**{**run, "curve": [Point(**point) for point in run["curve"]]}) for key, run in found.items()
    }


def store_runs(path: Path, runs: Sequence[Run]) -> dict[str, Run]:
    """Put runs among those that the file has, and draw the picture beside it; all of them."""
    merged = load_runs(path) | {run.key: run for run in runs}
    write(
        path,
        {"summary": summary_of(merged.values()), "runs": {key: asdict(run) for key, run in merged.items()}},
    )
    draw(path.with_name(PICTURE), merged.values())
    return merged


def _changed(recipe: Recipe, asked: argparse.Namespace) -> Recipe:
    """The recipe with the words and the marks of the command line."""
    marks = recipe.marks if asked.mark is None else tuple(asked.mark)
    words, task = (*recipe.words, *asked.set), recipe.task
    if isinstance(task, TrialTask):
        task = TrialTask(words)  # the peer plays the family of these words
    return replace(recipe, words=words, marks=marks, task=task)


def _beside(recipes: dict[str, Recipe], peer: str | None) -> dict[str, Recipe]:
    """The same recipes as a peer plays them; none without a peer."""
    if peer and not all(recipe.task for recipe in recipes.values()):
        known = ", ".join(name for name, recipe in RECIPES.items() if recipe.task)
        raise argparse.ArgumentTypeError(f"--peer={peer} plays {known} only.")
    if peer not in (None, *TRIAL_PEERS) and any(isinstance(one.task, TrialTask) for one in recipes.values()):
        raise argparse.ArgumentTypeError(f"--peer={peer} plays no trials; {', '.join(TRIAL_PEERS)} does.")
    return {f"{name} by {peer}": replace(recipe, peer=peer) for name, recipe in recipes.items() if peer}


def _parsed() -> tuple[argparse.Namespace, dict[str, Recipe]]:
    """The command line, and its recipes by the names that their runs are stored under."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--recipe", nargs="+", default=list(USUAL), help=f"{', '.join(RECIPES)}, or any other experiment"
    )
    parser.add_argument("--name", help="what to store the runs under, if not under the recipe's name")
    parser.add_argument(
        "--set",
        nargs="+",
        default=[],
        metavar="WORD",
        help="options of main.py that differ from the recipe's",
    )
    parser.add_argument("--peer", choices=PEERS, help="play each recipe's environment by this learner too")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument(
        "--minutes",
        type=float,
        help="of every run, from its command on; default: until its env steps are taken",
    )
    parser.add_argument(
        "--mark",
        nargs="+",
        type=float,
        help="returns per trial on test tasks, the sum of its episodes; default: the recipe's",
    )
    parser.add_argument(
        "--folder", type=Path, default=Path("outputs/learn"), help="where the runs' folders are made"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file that the runs are stored in")
    parser.add_argument("--show", action="store_true", help="run nothing")
    asked = parser.parse_args()
    try:
        recipes = {asked.name or name: recipe_of(name) for name in asked.recipe}
        recipes = {name: _changed(recipe, asked) for name, recipe in recipes.items()}
        recipes |= _beside(recipes, asked.peer)
    except argparse.ArgumentTypeError as mistake:
        parser.error(str(mistake))
    if asked.minutes is not None and asked.minutes <= 0:
        parser.error("--minutes has to be more than 0.")
    if asked.name and len(asked.recipe) > 1:
        parser.error("--name is for one recipe.")
    if asked.show and not asked.results.exists():
        parser.error(f"nothing has been recorded in {asked.results}.")
    return asked, recipes


def main() -> None:
    """Run, print and save."""
    asked, recipes = _parsed()
    console, mine = Console(width=None if sys.stdout.isatty() else FILE_WIDTH), list[str]()
    console.print(facts()["text"], highlight=False)
    runs = store_runs(asked.results, []) if asked.show else load_runs(asked.results)
    for seed in [] if asked.show else asked.seeds:
        for name, recipe in recipes.items():
            run, _ = play_recipe(name, recipe, seed, console, asked.folder, asked.minutes)
            if recipe.peer is None:
                run = beside_its_limit(run, console)
            # Stored after each run: hours of recording must not hang on the last one.
            runs = store_runs(asked.results, [run])
            mine.append(run.name)
    console.print(table_of([run for run in runs.values() if run.name in mine or asked.show]))


if __name__ == "__main__":
    main()
