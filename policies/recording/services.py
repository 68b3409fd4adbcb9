"""The services that a run is recorded by, beside its own files: those that `loggers` names."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from policies.run.config import CHECKPOINTS, RECORD, TASKS, Config, LoggerName, plain, recordable
from policies.run.context import RunContext
from utils.checkpoint import SEGMENTS
from utils.report.settings import UNLEARNED
from utils.services.base import Service
from utils.services.tensorboard_run import TensorboardRun
from utils.services.wandb_run import WandbRun, redact

# Options of evaluation that change nothing of what is learned.
UNLEARNED_OF_EVALUATION = ("films", "tasks", "checkpoint")


class Services:
    """All of them, told at once; a run without a folder has none."""

    def __init__(self, context: RunContext, settings: Mapping[str, Any], resumed: Mapping[str, Any]) -> None:
        """`resumed` are the facts of the checkpoint that the run goes on from, or nothing."""
        self._context, self._wandb = context, WandbRun()
        self.followers: list[Service] = []
        if context.run_dir is None:
            return
        names = context.config.loggers
        if LoggerName.wandb in names:
            self._wandb = start_wandb(context, context.run_dir, settings, resumed.get("wandb_run_id"))
            self.followers.append(self._wandb)
        if LoggerName.tensorboard in names:
            env_steps = resumed.get("counters", {}).get("env_steps")
            self.followers.append(TensorboardRun(context.run_dir, redact(settings), env_steps))

    def facts(self) -> dict[str, Any]:
        """What a checkpoint has to hold, so that a resumed run goes on in the same ones."""
        return {"wandb_run_id": self._wandb.run_id}

    def conclude(self, env_steps: int, results: Mapping[str, Any], pictures: Sequence[Path]) -> None:
        """The run has come to its end."""
        for service in self.followers:
            service.summary(results)
            service.media(env_steps, pictures)
        if self._context.config.wandb.artifact and self._context.run_dir is not None:
            self._wandb.artifact(agent_files(self._context.run_dir))

    def media(self, env_steps: int, files: Sequence[Path]) -> None:
        """Films that were drawn after the end."""
        for service in self.followers:
            service.media(env_steps, files)

    def places(self) -> list[str]:
        """Lines that say where each can be looked at."""
        names = {WandbRun: "W&B", TensorboardRun: "TensorBoard"}
        return [f"{names[type(one)]:<12} {one.place}" for one in self.followers if one.place]

    def close(self, exit_code: int) -> None:
        """End the record of all of them."""
        for service in self.followers:
            service.close(exit_code)


def start_wandb(
    context: RunContext,
    folder: Path,
    settings: Mapping[str, Any],
    run_id: str | None = None,
    *,
    job_type: str | None = None,
) -> WandbRun:
    """A run of W&B's: seeds of one experiment share a group, and a resumed run goes on in its own."""
    config = context.config
    group = group_of(config)
    return WandbRun.start(
        config.wandb,
        folder=folder,
        settings=settings,
        name=f"{group}-seed{config.seed}",
        group=group,
        tags=[config.env.family, config.agent.arch.name, config.memory.name, config.algorithm.name],
        run_id=run_id,
        job_type=job_type,
    )


def record_evaluation(context: RunContext, env_steps: int, metrics: Mapping[str, Any]) -> None:
    """Record what `evaluate=` has found as a run of W&B's of its own, in the group of the run."""
    if context.run_dir is None or LoggerName.wandb not in context.config.loggers:
        return
    run = start_wandb(context, context.run_dir, recordable(context.config), job_type="evaluate")
    run.log(env_steps, metrics)
    run.close()


def agent_files(run_dir: Path) -> dict[str, Path]:
    """What `evaluate=` needs of a run folder, by its place there: all but the stored trials."""
    found = [run_dir / RECORD, run_dir / TASKS, *sorted((run_dir / CHECKPOINTS).rglob("*"))]
    files = [path for path in found if path.is_file() and SEGMENTS not in path.parts]
    return {path.relative_to(run_dir).as_posix(): path for path in files}


def group_of(config: Config) -> str:
    """One name for all seeds of one experiment: a digest of every option that changes what is learned."""
    # What is left defines the experiment; sorted, so that the order of options does not matter.
    settings = plain(config)
    for name in UNLEARNED:
        del settings[name]
    for name in UNLEARNED_OF_EVALUATION:
        del settings["evaluation"][name]
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:6]
    return f"{config.env.family}-{config.agent.arch.name}-{config.algorithm.name}-{digest}"
