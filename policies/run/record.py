"""What a run shows and leaves behind: console, metrics, W&B and, at the end, a picture."""

from __future__ import annotations

import cProfile
import hashlib
import io
import json
import os
import platform
import pstats
import shlex
import traceback
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from policies.evaluation import curves_of, evaluation_table, held_out_name
from policies.run.config import TASKS, Config, plain, save
from policies.run.film import film
from utils.console import Console, Progress
from utils.logger import Logger
from utils.machine import describe, resident_bytes
from utils.report import draw_adaptation
from utils.run_lock import RunLock
from utils.wandb_run import WandbRun

if TYPE_CHECKING:
    from policies.learner import Learner

PICTURE = "adaptation.png"
ERRORS = "error.log"
"""The file of a run folder that holds the tracebacks of our own errors."""


class RunRecord:
    """Entered for as long as a learner trains; without a folder it only shows."""

    def __init__(self, config: Config, folder: Path | None, resumed: dict[str, Any]) -> None:
        self._config = config
        self._folder = folder
        self._resumed = resumed
        self._console = Console()
        self._profile = cProfile.Profile() if config.profile else None
        self._logger: Logger | None = None
        self._wandb: WandbRun | None = None
        self._evaluation: dict[str, list[float]] = {}
        self._table = ""
        self._begun = (0, 0)
        self._lock: RunLock | None = None
        self.final_return = float("nan")

    def __enter__(self) -> Self:
        return self

    def open(self, learner: Learner) -> None:
        """Say where everything goes, and start to record."""
        self._console.headline(headline(learner))
        if learner.backend.reason:
            self._console.message(learner.backend.reason)
        self._begun = (learner.counters.env_steps, learner.counters.updates)
        if self._folder is not None:
            self._lock = RunLock(self._folder)
            save_settings(learner, self._folder)  # a refused resume must not change what the run goes by
            self._wandb = self._start_wandb(self._folder)
            self._logger = Logger(self._folder, self._wandb, resume_at=self._resumed.get("metrics_offset", 0))
        self._console.__enter__()
        if self._profile is not None:
            self._profile.enable()

    def _start_wandb(self, folder: Path) -> WandbRun:
        config = self._config
        group = group_of(config)
        return WandbRun.start(
            config.wandb,
            folder=folder,
            settings=plain(config) | {"versions": versions()},
            name=f"{group}-seed{config.seed}",
            group=group,
            tags=[config.env.family, config.agent.arch.name, config.memory.name, config.algorithm.name],
            run_id=self._resumed.get("wandb_run_id"),
        )

    def facts(self, learner: Learner) -> dict[str, Any]:
        """What a checkpoint keeps of the record."""
        return {
            "metrics_offset": self._logger.offset if self._logger else 0,
            "wandb_run_id": self._wandb.run_id if self._wandb else None,
            "versions": versions(),
            "spent": self._spent(learner),
        }

    def _spent(self, learner: Learner) -> dict[str, float]:
        """The run's seconds and faults so far, those before a resume included."""
        faults = [env.faults for env in learner.environments]
        mine = {
            "seconds": learner.watch.total,
            "restarts": sum(one.restarts for one in faults),
            "dropped_trials": sum(one.dropped_trials for one in faults),
        }
        before = self._resumed.get("spent", {})
        return {name: value + before.get(name, 0) for name, value in mine.items()}

    def show(self, learner: Learner, wave_steps: int) -> None:
        """Refresh the display, when it is time to."""
        if self._console.due:
            self._console.update(self._progress(learner, wave_steps))

    def _progress(self, learner: Learner, wave_steps: int) -> Progress:
        counters, watch = learner.counters, learner.watch
        env_steps, seconds = counters.env_steps + wave_steps, max(watch.total, 1e-9)
        returns = counters.recent_returns
        return Progress(
            env_steps=env_steps,
            total_env_steps=self._config.train.n_env_steps_total,
            env_steps_per_s=(env_steps - self._begun[0]) / seconds,
            updates=counters.updates,
            total_updates=0
            if learner.needs.on_policy
            else int(self._config.train.n_env_steps_total * self._config.train.updates_per_step),
            updates_per_s=(counters.updates - self._begun[1]) / seconds,
            shares=watch.shares(),
            episodes=counters.episodes,
            trials=counters.trials + counters.warmup_trials,
            mean_length=float(np.mean(counters.recent_lengths)) if returns else 0.0,
            mean_return_100=float(np.sum(counters.mean_return_by_episode)) if returns else 0.0,
            return_by_episode=counters.mean_return_by_episode,
            evaluation=self._evaluation,
            memory_parent=resident_bytes([os.getpid()]),
            memory_workers=resident_bytes(learner.worker_pids),
            phase=counters.stage.replace("_", " "),
        )

    def line(self, learner: Learner, values: dict[str, Any]) -> None:
        """One line of metrics at the end of an iteration."""
        progress = self._progress(learner, 0)
        times = {f"time/{name}": share for name, share in progress.shares.items()}
        spent = self._spent(learner)
        times |= {
            "time/seconds": spent.pop("seconds"),
            "time/env_steps_per_s": progress.env_steps_per_s,
            "time/updates_per_s": progress.updates_per_s,
        }
        times |= {f"faults/{name}": count for name, count in spent.items() if count}
        times |= {
            "time/memory_parent": progress.memory_parent,
            "time/memory_workers": progress.memory_workers,
        }
        evaluated = curves_of(values)
        if evaluated:
            self._evaluation = evaluated
            self.final_return = evaluated[held_out_name(learner.family.spec)][-1]
            self._table = evaluation_table(values, learner.family.spec)
        if self._logger is not None:
            self._logger.log(learner.counters.env_steps, {**values, **times})
        if evaluated:
            self._console.update(self._progress(learner, 0))

    def finish(self, learner: Learner) -> None:
        """Draw the picture, and say where everything is."""
        self._console.update(self._progress(learner, 0))  # what is shown last is where the run ended
        if self._profile is not None:
            self._profile.disable()
            text = io.StringIO()
            pstats.Stats(self._profile, stream=text).sort_stats("tottime").print_stats(25)
            self._console.message(text.getvalue())
        if not learner.counters.updates and learner.stop_signal is None:
            train, steps = self._config.train, learner.counters.env_steps
            pool = f"the random pool of train.num_init_rollouts_pool={train.num_init_rollouts_pool} trials alone took {steps:,} env steps"
            short = f"{steps:,} env steps earn no update by train.updates_per_step={train.updates_per_step}"
            self._console.message(f"Nothing was learned: {short if learner.counters.iteration else pool}.")
        if self._folder is None:
            return
        if self._wandb is not None:
            self._wandb.summary({f"final/{name}": values for name, values in self._evaluation.items()})
        lines = [
            f"metrics      {self._folder / 'metrics.jsonl'}",
            f"checkpoints  {self._folder / 'checkpoints'}",
        ]
        if self._wandb is not None and self._wandb.place:
            lines.append(f"W&B          {self._wandb.place}")
        if draw_curves(self._folder, learner):
            lines.insert(0, f"picture      {self._folder / PICTURE}")
        lines += [
            f"resume       python main.py {shlex.quote(f'resume={self._folder}')}",
            f"evaluate     python main.py {shlex.quote(f'evaluate={self._folder}')}",
        ]
        if learner.watch.seconds.get("checkpoint"):
            lines.append(f"checkpoints took {learner.watch.shares()['checkpoint']:.1%} of the time")
        self._console.message("\n".join([self._table, *lines] if self._table else lines))
        for path in film(learner):  # last, since it may take a while
            self._console.message(f"film         {path}")

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._console.__exit__(None, None, None)
        if self._logger is not None:
            self._logger.close()
        if self._wandb is not None:
            self._wandb.finish(exit_code=0 if kind is None else 1)
        if self._lock is not None:
            self._lock.release()


def save_settings(learner: Learner, folder: Path) -> None:
    """Write what makes a folder that of a run."""
    folder.mkdir(parents=True, exist_ok=True)
    save(learner.config, folder)
    learner.tasks.save(folder / TASKS)


def write_error(run_dir: Path) -> Path | None:
    """Append the traceback of the exception that is being handled to the run's `error.log`.

    Returns the file, or None where it cannot be written, since the disk may be what has failed.
    """
    path = run_dir / ERRORS
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S %z}\n{traceback.format_exc()}\n")
    except OSError:
        return None
    return path


def group_of(config: Config) -> str:
    """One name for all seeds of one experiment: a digest of every option that changes what is learned."""
    settings = plain(config)
    for name in (
        "seed",
        "num_parallel_workers",
        "backend",
        "wandb",
        "profile",
        "checkpoint_every",
        "resume",
        "evaluate",
    ):
        settings.pop(name)
    settings["evaluation"].pop("films")
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:6]
    return f"{config.env.family}-{config.agent.arch.name}-{config.algorithm.name}-{digest}"


def headline(learner: Learner) -> str:
    """The first line of a run."""
    config, env = learner.config, learner.env
    where = f"run {learner.run_dir}" if learner.run_dir else "nothing is written"
    return f"{config.env.family}, {config.agent.arch.name} agent: {env.num_envs} slots, {env.description}, device {learner.device}, {where}"


def draw_curves(folder: Path, learner: Learner) -> bool:
    """Draw return by episode index over training, from the metrics file; False where nothing was evaluated."""
    spec = learner.family.spec
    name = held_out_name(spec)
    steps: list[int] = []
    values: list[list[float]] = []
    for text in (folder / "metrics.jsonl").read_text().splitlines():
        line = json.loads(text)
        curve = curves_of(line).get(name)
        if curve:
            steps.append(line["env_steps"])
            values.append(curve)
    if not steps:
        return False
    reference = spec.reference
    draw_adaptation(
        folder / PICTURE,
        curves={name.replace("_", "-"): (steps, values)},
        oracle=reference.oracle if reference else None,
        random=reference.random if reference else None,
        title=f"{spec.name}: {learner.config.agent.arch.name} agent",
    )
    return True


def changes_since(facts: dict[str, Any]) -> list[str]:
    """What was another version when a checkpoint with these facts was written. (Cores and memory change no
    number.)
    """
    before = facts.get("versions", {})
    return [
        f"{name} {before[name]} (now {now})"
        for name, now in versions().items()
        if name != "machine" and before.get(name, now) != now
    ]


def versions() -> dict[str, str]:
    """What the numbers depend on besides the config."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "gymnasium": version("gymnasium"),
        "mujoco": version("mujoco"),
        "machine": describe(),
    }
