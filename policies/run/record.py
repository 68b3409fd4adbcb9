"""What a run shows and leaves behind: console, metrics, W&B and, at the end, a picture."""

from __future__ import annotations

import cProfile
import io
import os
import platform
import pstats
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from envs.backends.base import withheld_sentence
from envs.remote.service_setup import in_few_words
from policies.agents.agent import Agent
from policies.agents.base import Encoders
from policies.evaluation.table import Levels, curves_of, evaluation_table
from policies.recording.services import Services
from policies.run.config import TASKS, Config, plain, recordable, save
from policies.run.context import RunContext, RunEnvironments, RunHost
from policies.run.forecast import forecast, recorded_minutes
from policies.run.progress import RunProgress
from policies.run.sizes import fitted_memory
from utils.console import Console, Progress, roughly
from utils.disk.source_state import source_state
from utils.disk.used_facts import save_used, used_before
from utils.environment import withheld
from utils.logger import METRICS, STEP_KEY, Logger, StopRun, read_metrics
from utils.machine import describe, resident_bytes
from utils.report.adaptation import draw_adaptation
from utils.report.tasks_played import draw_tasks_played
from utils.run_lock import RunLock
from utils.stopwatch import Stopwatch

PICTURE = "adaptation.png"
# When an iteration ends so late, there is a rate by which to say how long the run will take.
SECONDS_TO_TELL = 1.0
# The most variables that the line about withheld ones names; an environment that cannot be built names all.
MOST_NAMES = 8


class RunRecord:
    """Entered for as long as a run trains; without a folder it only shows."""

    def __init__(
        self,
        context: RunContext,
        progress: RunProgress,
        environments: RunEnvironments,
        watch: Stopwatch,
        resumed: dict[str, Any],
        host: RunHost | None = None,
    ) -> None:
        """`resumed` are the facts of the checkpoint that the run goes on from, or nothing."""
        self._context, self._config, self._folder = context, context.config, context.run_dir
        self._progress, self._environments, self._watch = progress, environments, watch
        self._resumed = resumed
        self._console = Console()
        self._profile = cProfile.Profile() if self._config.profile else None
        self._logger: Logger | None = None
        self._services: Services | None = None
        self._host, self._lock = host or RunHost(), None
        self._evaluation: dict[str, list[float]] = {}
        self._evaluated: dict[str, Any] = {}
        self._used: dict[str, Any] = {}
        self._has_told_time = False
        # Env steps and updates that the run had when this process took it over.
        self._begun_at = (progress.counters.env_steps, progress.counters.updates)
        self.final_return = float("nan")

    # -- begin and end ---------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def open(self, agent: Agent, note: str = "") -> None:
        """Show where everything goes, and start to record `agent`; `note` is a line below the headline."""
        self._console.headline(headline(self._context, self._environments))
        plan = forecast(self._config, self._context.sizes, self._progress.counters)
        for text in filter(None, (note, withheld_note(self._config, self._environments), *plan)):
            self._console.message(text)
        if self._folder is not None:
            if self._host.lock is None:
                self._lock = RunLock(self._folder)
            # Only now: a refused resume must not change what the run records.
            save_settings(self._context, self._folder)
            self._used = what_was_used(self._context, self._environments, agent)
            if self._resumed:
                self._used |= used_before(self._folder, self._used, self._progress.counters.env_steps)
            # Of an episode on the test list. What is not recorded with the family is measured at the end.
            self._used["levels"] = Levels(self._context.reference).of_list(self._context.tasks.test)
            save_used(self._used, self._folder)
            settings = recordable(self._config) | {"versions": versions()}
            self._services = Services(self._context, settings, self._resumed)
            followers = *self._services.followers, *self._host.followers
            self._logger = Logger(self._folder, followers, resume_at=self._resumed.get("metrics_offset", 0))
        self._console.__enter__()
        if self._profile is not None:
            self._profile.enable()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        # The display ends first: what else is printed must not be painted over.
        self._console.__exit__(None, None, None)
        if self._logger is not None:
            self._logger.close()
        if self._services is not None:
            self._services.close(0 if kind in (None, StopRun) else 1)
        if self._lock is not None:
            self._lock.release()

    # -- while the run goes on -------------------------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        """The facts about the record that a checkpoint holds."""
        return {
            "metrics_offset": 0 if self._logger is None else self._logger.offset,
            "versions": versions(),
            "spent": self._spent(),
            **(self._services.facts() if self._services is not None else {}),
        }

    def _spent(self) -> dict[str, float]:
        """The run's seconds and faults so far, those before a resume included."""
        # Those of this process, and those of the processes before it, from the checkpoint.
        faults = [env.faults for env in self._environments.made]
        own = {
            "seconds": self._watch.total,
            "restarts": sum(counts.restarts for counts in faults),
            "dropped_trials": sum(counts.dropped_trials for counts in faults),
        }
        before = self._resumed.get("spent", {})
        return {name: value + before.get(name, 0) for name, value in own.items()}

    def show(self, wave_steps: int) -> None:
        """Refresh the display, when it is due; `wave_steps` are the env steps of an unfinished wave."""
        if self._console.due:
            self._console.update(self._display(wave_steps))

    def _display(self, wave_steps: int = 0) -> Progress:
        """The numbers that the console shows."""
        counters, train = self._progress.counters, self._config.train
        env_steps, seconds = counters.env_steps + wave_steps, max(self._watch.total, 1e-9)
        first_step, first_update = self._begun_at

        # On-policy, how many updates there will be is not known before: a wave may take more env steps.
        planned = int(train.n_env_steps_total * self._context.sizes.updates_per_step)
        total_updates = 0 if self._context.needs.on_policy else planned

        # The means are taken over the trials that started last; at the beginning there is none.
        mean_length = mean_return = 0.0
        if counters.recent_returns:
            mean_length = float(np.mean(counters.recent_lengths))
            mean_return = float(np.sum(counters.mean_return_by_episode))
        return Progress(
            env_steps=env_steps,
            total_env_steps=train.n_env_steps_total,
            env_steps_per_s=(env_steps - first_step) / seconds,
            updates=counters.updates,
            total_updates=total_updates,
            updates_per_s=(counters.updates - first_update) / seconds,
            shares=self._watch.shares(),
            episodes=counters.episodes,
            trials=counters.trials + counters.warmup_trials,
            mean_length=mean_length,
            mean_return_100=mean_return,
            return_by_episode=counters.mean_return_by_episode,
            evaluation=self._evaluation,
            tasks=self._progress.played,
            servers=in_few_words(self._context.family.measured()),
            memory_parent=resident_bytes([os.getpid()]),
            memory_workers=resident_bytes(self._environments.worker_pids),
            phase=counters.stage.replace("_", " "),
        )

    def write_line(self, metrics: dict[str, Any]) -> None:
        """Write one line of metrics at the end of an iteration."""
        # An evaluation changes what the display and the end of the run show.
        if evaluated := curves_of(metrics):
            self._evaluation, self._evaluated = evaluated, metrics
            self.final_return = evaluated[self._context.tasks.test][-1]

        # The line itself: metrics that repeat exactly, and then those that do not.
        if self._logger is not None:
            self._logger.log(self._progress.counters.env_steps, {**metrics, **self._measured()})
        if evaluated:
            self._console.update(self._display())
        self._tell_time()

    def _tell_time(self) -> None:
        """Say once how long the run will take, as soon as it has a rate to tell that by."""
        if self._has_told_time or self._console.elapsed < SECONDS_TO_TELL:
            return
        self._has_told_time = True
        left = self._console.seconds_left(self._display())
        if left > 0:
            self._console.message(f"time         {roughly(left)} more, at the rate of the first iterations")

    def _measured(self) -> dict[str, float]:
        """The metrics that differ from machine to machine: times, faults and memory."""
        display, spent = self._display(), self._spent()
        return {
            **{f"time/{name}": share for name, share in display.shares.items()},
            "time/seconds": spent.pop("seconds"),
            "time/env_steps_per_s": display.env_steps_per_s,
            "time/updates_per_s": display.updates_per_s,
            **{f"faults/{name}": count for name, count in spent.items() if count},
            "time/memory_parent": display.memory_parent,
            "time/memory_workers": display.memory_workers,
            **self._context.family.measured(),
        }

    # -- at the end ------------------------------------------------------------------------------------------

    def finish(self, levels: Levels, *, stopped: bool) -> None:
        """Draw the picture, and show where everything is; `stopped` says that a signal ended the run.

        `levels` are what the returns are compared with.
        """
        self._console.update(self._display())  # the last line that is shown is where the run ended
        if self._profile is not None:
            self._profile.disable()
            text = io.StringIO()
            pstats.Stats(self._profile, stream=text).sort_stats("tottime").print_stats(25)
            self._console.message(text.getvalue())

        # A run can end before its first update, and its user should know why.
        if not self._progress.counters.updates and not stopped:
            self._console.message(f"Nothing was learned: {self._why_nothing()}.")
        if self._folder is None:
            return

        # The last evaluation, the picture, and the places of all that was written.
        if self._evaluated:
            self._console.message(evaluation_table(self._evaluated, self._context.family.spec, levels))
        if levels.measured:
            save_used(self._used | {"levels": levels.of_list(self._context.tasks.test)}, self._folder)
        self._console.message("\n".join(self._places(self._folder, levels)))

    def show_films(self, films: Sequence[Path]) -> None:
        """Show where the films are, and to the services the films themselves."""
        for path in films:
            self._console.message(f"film         {path}")
        if self._services is not None:
            self._services.media(self._progress.counters.env_steps, films)

    def _why_nothing(self) -> str:
        """The option because of which no update was made."""
        train, counters = self._config.train, self._progress.counters
        if counters.iteration:
            return (
                f"{counters.env_steps:,} env steps earn no update by "
                f"train.updates_per_step={self._context.sizes.updates_per_step:g}"
            )
        return (
            f"the random pool of train.num_init_rollouts_pool={train.num_init_rollouts_pool} trials alone "
            f"took {counters.env_steps:,} env steps"
        )

    def _places(self, folder: Path, levels: Levels) -> list[str]:
        """Lines that say where the parts of the run are, and with which commands to go on."""
        lines: list[str] = []
        if draw_curves(self._context, folder, levels):
            lines.append(f"picture      {folder / PICTURE}")
        title = f"{self._context.family.spec.name}: curriculum={self._config.curriculum.name}"
        if tasks := draw_tasks_played(folder, self._progress.curriculum.groups, title):
            lines.append(f"curriculum   {tasks}")
        lines += [f"metrics      {folder / METRICS}", f"checkpoints  {folder / 'checkpoints'}"]
        if self._services is not None:
            best = {"best/trial_return": self._progress.counters.best_return}
            pictures = [path for path in (folder / PICTURE,) if path.exists()]
            self._services.conclude(self._progress.counters.env_steps, best, pictures)
            lines += self._services.places()
        lines += [
            f"{verb:<12} python main.py {shlex.quote(f'{verb}={folder}')}" for verb in ("resume", "evaluate")
        ]
        if self._watch.seconds.get("checkpoint"):
            lines.append(f"checkpoints took {self._watch.shares()['checkpoint']:.1%} of the time")
        return lines


def save_settings(context: RunContext, folder: Path) -> None:
    """Write the files that make a folder that of a run: its config and its tasks."""
    folder.mkdir(parents=True, exist_ok=True)
    save(context.config, folder)
    context.tasks.save(folder / TASKS)


def what_was_used(context: RunContext, environments: RunEnvironments, agent: Agent) -> dict[str, Any]:
    """What the options amount to on this machine, from which source, and what returns are compared with."""
    config, sizes, env = context.config, context.sizes, environments.training
    return {
        "num_slots": sizes.num_slots,
        "backend": environments.backend.name,
        "environments": env.description,
        "num_workers": environments.num_workers,
        "device": context.device,
        "wave_trials": sizes.wave_trials,
        "wave_env_steps": sizes.wave_env_steps,
        "memory": plain(asdict(fitted_memory(config, context.family))),
        "encoders": (Encoders.shared if agent.shares else Encoders.separate).value,
        "parameters": {
            name: sum(values.numel() for values in part.parameters()) for name, part in agent.named_children()
        },
        "source": source_state(Path(__file__).parents[2]),
        "versions": versions(),
    }


def headline(context: RunContext, environments: RunEnvironments) -> str:
    """The first line of a run."""
    config, env = context.config, environments.training
    where = f"run {context.run_dir}" if context.run_dir else "nothing is written"
    minutes = recorded_minutes(config)
    time = "how long that takes is measured, and said below"
    if minutes is not None:
        time = (
            f"which took {minutes:.1f} minutes of a core when it was recorded; here it is measured, see below"
        )
    return (
        f"{config.env.family}, {config.agent.arch.name} agent: learns by {config.algorithm.name} until "
        f"{config.train.n_env_steps_total:,} env steps ({time}), "
        f"{env.num_envs} slots, {env.description}, device {context.device}, {where}"
    )


def withheld_note(config: Config, environments: RunEnvironments) -> str:
    """Name environment variables that the worker processes do not see; nothing without such processes."""
    names = withheld(os.environ, config.backend.keep_environment)
    return withheld_sentence(names, MOST_NAMES) if names and environments.training.pids else ""


def draw_curves(context: RunContext, folder: Path, levels: Levels) -> bool:
    """Draw return by episode index over training, from the metrics; False where nothing was evaluated."""
    # The file is the truth: a resumed run draws the lines of the processes before it, too.
    name = context.tasks.test
    lines = read_metrics(folder / METRICS)
    points = [(line[STEP_KEY], curve) for line in lines if (curve := curves_of(line).get(name))]
    if not points:
        return False
    draw_adaptation(
        folder / PICTURE,
        [step for step, _ in points],
        [curve for _, curve in points],
        levels=levels.of_list(name),
        tasks=name.replace("_", "-"),
        title=f"{context.family.spec.name}: {context.config.agent.arch.name} agent",
    )
    return True


def changes_since(facts: dict[str, Any]) -> list[str]:
    """The versions that have changed since a checkpoint with these facts was written.

    Another machine is no change, since cores and memory change no number.
    """
    before = facts.get("versions", {})
    return [
        f"{name} {before[name]} (now {now})"
        for name, now in versions().items()
        if name != "machine" and before.get(name, now) != now
    ]


def versions() -> dict[str, str]:
    """What the numbers depend on besides the config: versions, and the machine."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "gymnasium": version("gymnasium"),
        "mujoco": version("mujoco"),
        "machine": describe(),
    }
