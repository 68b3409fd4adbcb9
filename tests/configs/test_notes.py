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
    (note,) = notes_on_unread(words)
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
    assert not notes_on_unread(words)


def notes_on_unread(words: str) -> list[str]:
    return [note for note in read(words.split()).notes if " also changed: " not in note]


def notes_on_choices(words: str) -> list[str]:
    return [note for note in read(words.split()).notes if " also changed: " in note]


def test_what_a_choice_brought_beside_its_own_section_is_one_short_note() -> None:
    (note,) = notes_on_choices("algorithm=SAC")
    assert note.startswith("With algorithm=SAC also changed: ") and len(note) < 220
    with Composer() as composer:
        now, before = (composer.config(composer.parse(words)) for words in (["algorithm=SAC"], []))
    assert before.algorithm.name == "PPO", "the demo's own choice"
    total = f"train.n_env_steps_total={now.train.n_env_steps_total} ({before.train.n_env_steps_total})"
    assert total in note and "algorithm." not in note.partition(":")[2]


@pytest.mark.parametrize(
    "words", ["", "algorithm=PPO", "seed=1 num_slots=8", "env=AntDir", "agent=Memory backend=serial"]
)
def test_what_is_the_default_of_the_environment_brings_nothing(words: str) -> None:
    assert not notes_on_choices(words)


def test_what_was_typed_is_no_news_and_each_job_of_a_sweep_is_compared_with_the_default() -> None:
    (note,) = notes_on_choices("algorithm=SAC train.n_env_steps_total=5000")
    assert "n_env_steps_total" not in note
    sweep = notes_on_choices("-m algorithm=PPO,SAC,TD3 seed=0,1")
    assert [one.split()[1] for one in sweep] == ["algorithm=SAC", "algorithm=TD3"]


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
