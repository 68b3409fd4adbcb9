"""What a run would never look at is told where it is given, and nothing else is."""

from __future__ import annotations

import pytest

from configs.cli import read
from configs.compose import Composer
from configs.unread import _unread
from configs.values import option_names
from policies.algorithms import ALGORITHMS


@pytest.mark.parametrize(
    ("words", "about"),
    [
        (
            "algorithm=PPO train.updates_per_step=1",
            "train.updates_per_step=1 changes nothing here: PPO learns once from each wave",
        ),
        (
            "algorithm=PPO agent.normalise_obs=false agent.normalise_reward=false train.num_init_rollouts_pool=9",
            "train.num_init_rollouts_pool=9",
        ),
        ("algorithm=SAC agent=Markov memory.hidden_size=7", "memory.hidden_size=7"),
        ("algorithm=SAC agent=Markov algorithm.window=9", "in agent=Markov nobody remembers"),
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


def test_every_option_of_the_list_exists(composer: Composer) -> None:
    composed = [composer.dict_config(composer.parse([f"algorithm={name}"])) for name in ALGORITHMS]
    known = {name for config in composed for name in option_names(config)} | {"memory."}
    words = [
        "algorithm=PPO agent.normalise_obs=false agent.normalise_reward=false",
        "algorithm=SAC agent=Markov algorithm.temperature=1",
        "algorithm=SAC",
    ]
    named = {name for one in words for name, _ in _unread(composer.config(composer.parse(one.split())))}
    assert len(named) > 20 and named - known == set()
