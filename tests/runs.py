"""Tiny runs for tests: a config that trains for seconds, and what a run amounts to."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from envs.backends.base import BackendConfig
from envs.meta import FAMILIES
from envs.meta.toy.point_robot import PointReward
from policies.agents.actions import actions_of
from policies.agents.base import AgentConfig, Arch
from policies.algorithms import ALGORITHMS
from policies.collection.wave import WaveResult
from policies.learner import Learner
from policies.memory import MEMORIES
from policies.run.checkpointing import BEST
from policies.run.config import CHECKPOINTS, Config, DeviceName, EvaluationConfig, LearnerConfig, TrainConfig
from utils.checkpoint import CheckpointStore
from utils.services.wandb_run import WandbConfig, WandbMode


def tiny_config(
    family: str = "PointRobot",
    arch: Arch = Arch.Memory,
    *,
    algorithm: str | None = None,
    workers: int | None = None,
    env: dict[str, Any] | None = None,
    agent: dict[str, Any] | None = None,
    **root: Any,
) -> Config:
    """A run of a few hundred env steps with small networks, W&B off, and the algorithm named or the first
    that can learn the actions.
    """
    dense = (
        {"reward": PointReward.dense} if family == "PointRobot" else {}
    )  # so that no return is 0 by lack of luck
    options: dict[str, Any] = {"max_episode_steps": 6, "num_eval_tasks": 3} | dense | (env or {})
    train = {
        "n_env_steps_total": 240,
        "num_rollouts_per_iter": 4,
        "num_init_rollouts_pool": 5,
        "updates_per_step": 0.05,
        "buffer_size": 2000,
    }
    plain: dict[str, Any] = {"num_slots": 3, "checkpoint_every": 60} | root
    settings = FAMILIES[family].Config(family=family, **options)
    kind = actions_of(FAMILIES[family](settings).spec.action_space).kind
    name = algorithm or next(name for name, one in ALGORITHMS.items() if kind in one.serves)
    sizes: dict[str, Any] = {"batch_size": 4, "transitions_batch_size": 16}
    learning = ALGORITHMS[name].Config
    small: dict[str, Any] = {
        f"{part}_embedding": size
        for part, size in {"action": 4, "reward": 4, "obs": 8, "shortcut": 8, "picture": 8}.items()
    }
    return Config(
        env=settings,
        agent=AgentConfig(**({"arch": arch, "hidden": [16]} | small | (agent or {}))),
        memory=MEMORIES["GRU"].Config(name="GRU", hidden_size=16),
        algorithm=learning(
            name=name, **{size: value for size, value in sizes.items() if hasattr(learning, size)}
        ),
        backend=plain.pop("backend", BackendConfig(name="process" if (workers or 1) > 1 else "serial")),
        train=TrainConfig(**(train | plain.pop("train", {}))),
        evaluation=EvaluationConfig(**({"every": 100} | plain.pop("evaluation", {}))),
        learner=LearnerConfig(**plain.pop("learner", {})),
        wandb=WandbConfig(mode=WandbMode.disabled),
        device=DeviceName.cpu,
        num_parallel_workers=workers,
        **plain,
    )


def stored_rows(learner: Learner) -> dict[str, np.ndarray[Any, Any]]:
    """Everything in the replay."""
    replay = learner.buffer
    return replay.export(replay.oldest, replay.num_added)


def digest(value: Any) -> str:
    """One hash of nested arrays, tensors and numbers."""
    found = hashlib.sha256()

    def take(part: Any) -> None:
        if isinstance(part, dict):
            for key in part:
                found.update(str(key).encode())
                take(part[key])
        elif isinstance(part, (list, tuple)):
            for one in part:
                take(one)
        elif isinstance(part, torch.Tensor):
            take(part.detach().cpu().numpy())
        elif isinstance(part, np.ndarray):
            found.update(str((part.dtype, part.shape)).encode() + np.ascontiguousarray(part).tobytes())
        else:
            found.update(repr(part).encode())

    take(value)
    return found.hexdigest()


def state_of(learner: Learner) -> dict[str, str]:
    """Hashes of all that a resumed run must share with an uninterrupted one."""
    return {
        "algorithm": digest(learner.algorithm.state_dict()),
        "replay": digest(stored_rows(learner)),
        "sampling": digest(learner._sampling.bit_generator.state),
        "counters": digest(asdict(learner.counters)),
    }


def metrics_of(folder: Path) -> list[dict[str, Any]]:
    """The metrics of a run, wall-clock fields and counts of faults apart."""
    lines = [json.loads(text) for text in (folder / "metrics.jsonl").read_text().splitlines()]
    return [
        {key: value for key, value in line.items() if not key.startswith(("time/", "faults/"))}
        for line in lines
    ]


def best_agent(run_dir: Path) -> str:
    """A hash of the agent that a run keeps as its best, and of how far the run was with it."""
    best = CheckpointStore(run_dir / CHECKPOINTS / BEST).latest()
    assert best is not None
    return digest([best.tensors, best.facts])


def stop_at(learner: Learner, moment: str) -> None:
    """Send SIGTERM to this process in the middle of a wave, between two updates, or in an evaluation."""
    tick, stages = learner.tick, {"wave": "collect", "update": "update", "evaluation": "evaluate"}
    calls = [0]

    def interrupting(wave: WaveResult | None = None) -> bool:
        calls[0] += learner.counters.stage == stages[moment] and learner.counters.iteration > 0
        if calls[0] == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return tick(wave)

    learner.tick = interrupting  # pyright: ignore[reportAttributeAccessIssue]
