"""What a run is made of: completed options, parts of the right size, environments made when needed."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from buffers.rollout import RolloutBuffer
from envs.meta.make_env import make_family
from policies.run.context import LearningParts, RunContext, RunEnvironments
from tests.runs import digest, tiny_config


def test_a_context_cannot_be_changed_and_has_the_completed_options() -> None:
    config = tiny_config()
    family = make_family(config.env)
    context = RunContext.of(config, family, "cpu", None)
    assert context.config.env is family.config and context.config.train is config.train
    with pytest.raises(FrozenInstanceError):
        context.device = "cuda"  # pyright: ignore[reportAttributeAccessIssue]


def test_evaluation_has_the_episodes_of_training_unless_it_is_given_others() -> None:
    for given, expected in ((None, 2), (5, 5)):
        config = tiny_config(evaluation={"episodes_per_trial": given})
        assert RunContext.of(config, make_family(config.env), "cpu", None).evaluation_episodes == expected


def test_parts_follow_from_the_seed_and_the_buffer_from_the_algorithm() -> None:
    def parts(learns: bool = True, **options: object) -> LearningParts:
        config = tiny_config(**options)  # pyright: ignore[reportArgumentType]
        return LearningParts.build(RunContext.of(config, make_family(config.env), "cpu", None), learns=learns)

    first, again, other = (digest(parts(seed=seed).agent.state_dict()) for seed in (0, 0, 1))
    assert first == again != other
    assert isinstance(parts(algorithm="PPO").buffer, RolloutBuffer)
    assert parts(learns=False).buffer.capacity == 14


def test_environments_are_made_when_they_are_asked_for_and_again_after_they_were_closed() -> None:
    config = tiny_config()
    context = RunContext.of(config, make_family(config.env), "cpu", None)
    environments = RunEnvironments(context, config.backend, 1)
    try:
        assert environments.made == [] and environments.train_env_parallel is None
        training = environments.training
        assert environments.made == [training] and environments.train_env is training
        assert environments.eval_env.num_envs == training.num_envs == 3
        assert len(environments.made) == 2 and environments.worker_pids == []
        environments.close()
        assert environments.made == [] and environments.training is not training
    finally:
        environments.close()
