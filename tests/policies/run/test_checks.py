"""Runs that cannot work are refused before anything is started."""

from __future__ import annotations

import pytest

from policies.run.checks import check_family
from tests.runs import tiny_config
from utils.options import OptionError


def test_a_replay_that_does_not_fit_is_refused_with_its_size() -> None:
    check_family(tiny_config())
    with pytest.raises(OptionError, match=r"The replay needs \d+.\d GiB .* lower train.buffer_size"):
        check_family(tiny_config(train={"buffer_size": 10**12}))
    for algorithm, train, named in (
        ("PPO", {"num_env_steps_per_iter": 10**12}, r"train\.num_env_steps_per_iter or num_slots"),
        ("SAC", {"num_init_rollouts_pool": 10**12}, r"train\.num_init_rollouts_pool"),
        ("SAC", {"num_rollouts_per_iter": 10**12}, r"train\.num_rollouts_per_iter"),
    ):
        with pytest.raises(OptionError, match=rf"lower {named} or free some memory\.$"):
            check_family(tiny_config(algorithm=algorithm, train=train))


def test_a_learner_that_only_evaluates_needs_no_room_for_a_replay() -> None:
    config = tiny_config(train={"buffer_size": 10**12})
    with pytest.raises(OptionError, match="The replay needs"):
        check_family(config)
    assert check_family(config, learns=False).spec.name == "PointRobot"
