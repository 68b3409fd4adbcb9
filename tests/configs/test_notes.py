"""An option that a run never reads is worth a note where it is given; any other option is not."""

from __future__ import annotations

from dataclasses import fields

import pytest

from configs.cli import read
from configs.compose import Composer
from configs.schema import root, schemas
from policies.run.sizes import needs_of
from utils.options import unread_options


@pytest.mark.parametrize(
    ("words", "about"),
    [
        (
            "algorithm=PPO train.updates_per_step=1",
            "train.updates_per_step=1 changes nothing here: PPO learns once from each wave",
        ),
        (
            "algorithm=PPO agent.normalise_obs=false agent.normalise_reward=false "
            "train.num_init_rollouts_pool=9",
            "train.num_init_rollouts_pool=9",
        ),
        ("algorithm=SAC agent=Markov memory.hidden_size=7", "memory.hidden_size=7"),
        ("algorithm=SAC agent=Markov algorithm.window=9", "agent=Markov has no memory"),
        ("algorithm=SAC algorithm.transitions_batch_size=9", "algorithm.transitions_batch_size=9"),
        ("algorithm=SAC algorithm.window=8 algorithm.state_every=4", "algorithm.state_every=4"),
        (
            "algorithm=SAC algorithm.temperature=0.1 algorithm.target_entropy=-1",
            "algorithm.target_entropy=-1",
        ),
        ("agent.task_inference.latent=3", "agent.task_inference.weight is 0"),
        ("agent.hyper_embedding=4", "agent.conditioning=hypernetwork"),
        ("-m seed=0,1 agent.hyper_embedding=4", "agent.hyper_embedding=4"),
    ],
)
def test_an_option_that_does_nothing_is_told_once(words: str, about: str) -> None:
    (note,) = read(words.split()).notes
    assert about in note


@pytest.mark.parametrize(
    "words",
    [
        "seed=3",
        "algorithm=SAC train.updates_per_step=1 train.buffer_size=5000 algorithm.window=8",
        "algorithm=PPO train.num_init_rollouts_pool=9 algorithm.window=8",
        "algorithm=SAC agent=Markov algorithm.transitions_batch_size=9",
        "algorithm=SAC algorithm.window=8 algorithm.window_start=stored algorithm.state_every=4",
        "-m algorithm=SAC agent=Markov,Memory algorithm.window=8",
        "agent.task_inference.weight=1 agent.task_inference.latent=3",
        "agent.conditioning=hypernetwork agent.hyper_embedding=4",
    ],
)
def test_of_what_is_read_by_some_job_nothing_is_said(words: str) -> None:
    assert read(words.split()).notes == ()


def test_the_conditions_of_all_options_can_be_checked_in_every_run(composer: Composer) -> None:
    """A condition reads options of the run by name: it must hold or not hold, and never fail."""
    unread: set[str] = set()
    for env, algorithm in [
        ("PointRobot", "PPO"),
        ("PointRobot", "SAC"),
        ("PointRobot", "TD3"),
        ("GridNavi", "DQN"),
    ]:
        for agent in ("Memory", "Markov"):
            words = [f"env={env}", f"algorithm={algorithm}", f"agent={agent}"]
            config = composer.config(composer.parse(words))
            unread |= {name for name, _ in unread_options(config, config, needs_of(config))}
    assert {"memory", "algorithm.window", "train.buffer_size", "agent.task_inference.rows"} <= unread


def test_every_choice_declares_the_readers_of_its_options_where_they_stand() -> None:
    nodes = [root(), *(node for choices in schemas().values() for node in choices.values())]
    declared = {
        (type(node).__name__, item.name)
        for node in nodes
        for item in fields(node)
        if item.metadata.get("only_if") is not None
    }
    assert {("Config", "memory"), ("SACConfig", "target_entropy"), ("PPOConfig", "window")} <= declared
