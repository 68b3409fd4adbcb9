"""`python main.py env=<any>`: every choice of env composes with its defaults, and its agent collects, learns
and is evaluated.
"""

from __future__ import annotations

from dataclasses import fields, replace
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from configs.compose import Composer
from envs.backends.base import BackendConfig
from envs.meta import FAMILIES
from envs.meta.make_env import make_family
from envs.meta.third_party.installed import missing
from policies.learner import Learner
from policies.run.config import Config, DeviceName
from utils.services.wandb_run import WandbConfig, WandbMode

with Composer() as _composer:
    CHOICES = _composer.choices("env")
# Those whose package is in requirements-partners.txt.
PARTNERS = ("MiniGrid", "POPGym")

SMALLER = {"batch_size": 2, "transitions_batch_size": 8, "hidden_size": 8, "num_eval_tasks": 1}


def smaller(options: Any, **changes: Any) -> Any:
    """The same options with less work to do."""
    here = {item.name for item in fields(options)}
    return replace(options, **{name: value for name, value in SMALLER.items() if name in here}, **changes)


def tiny(config: Config) -> Config:
    """The same run, with one trial in each wave and a few updates in all."""
    env = make_family(config.env).config  # some families complete H themselves
    episodes = min(env.max_rollouts_per_task, 2)
    trial = episodes * env.max_episode_steps
    sizes = {
        "num_rollouts_per_iter": 1,
        "num_init_rollouts_pool": 1,
        "buffer_size": 3 * trial,
        "updates_per_step": 1 / trial,
        "num_env_steps_per_iter": None,
    }
    return replace(
        config,
        env=smaller(config.env, max_rollouts_per_task=episodes),
        agent=replace(config.agent, hidden=[8], picture_embedding=8),
        memory=smaller(config.memory),
        algorithm=smaller(config.algorithm),
        backend=BackendConfig(name="serial"),
        train=replace(config.train, n_env_steps_total=trial + 1, **sizes),
        evaluation=replace(config.evaluation, every=10**9),
        wandb=WandbConfig(mode=WandbMode.disabled),
        device=DeviceName.cpu,
        num_slots=1,
    )


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.peers] * (name in PARTNERS)) for name in CHOICES]
)
def test_an_environment_trains_with_its_defaults(composer: Composer, name: str) -> None:
    words = composer.parse([f"env={name}"])
    env = composer.dict_config(words).env
    package = str(env.get("id", "")).rpartition(":")[0]
    lacks = missing(FAMILIES[env.family]) or (package and find_spec(package) is None)
    if lacks:
        pytest.skip(f"{lacks if isinstance(lacks, str) else package} is not installed")
    with Learner(tiny(composer.config(words))) as learner:
        before = [parameter.detach().clone() for parameter in learner.agent.parameters()]
        learner.train()
        assert learner.counters.updates >= 1 and learner.counters.iteration >= 1
        everything = learner.counters.env_steps == learner.buffer.num_transitions
        assert learner.context.needs.on_policy or everything or learner.buffer.oldest > 0
        after = list(learner.agent.parameters())
        assert any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))
        assert all(parameter.isfinite().all() for parameter in after)
        assert "held_out" in learner.report() or "in_distribution" in learner.report()
