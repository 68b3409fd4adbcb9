"""The sizes of a run, and runs that are refused before anything is started since they cannot work."""

from __future__ import annotations

from typing import Any

import pytest

from envs.meta.make_env import make_family
from policies.agents.base import Arch
from policies.learner import Learner
from policies.run.sizes import MOST_SLOTS, RunSizes, check_family, slots_of
from tests.runs import tiny_config
from utils.options import OptionError


def test_slots_are_the_rollouts_of_an_iteration_capped_whatever_the_workers() -> None:
    assert slots_of(tiny_config(num_slots=None)) == 4
    assert slots_of(tiny_config(num_slots=None, workers=6)) == 4
    assert slots_of(tiny_config(num_slots=None, train={"num_rollouts_per_iter": 1000})) == MOST_SLOTS
    assert slots_of(tiny_config(num_slots=7)) == 7


def test_an_on_policy_iteration_is_a_long_trial_in_each_slot_and_an_off_policy_one_so_many_trials() -> None:
    """k=2 and H=6; room is made for trials of a tenth of that."""

    def wave(**options: Any) -> tuple[int, int | None]:
        config = tiny_config(**options)
        sizes = RunSizes.of(config, make_family(config.env))
        return sizes.wave_trials, sizes.wave_env_steps

    assert wave() == (4, None)
    assert slots_of(tiny_config(algorithm="PPO", num_slots=None)) == MOST_SLOTS
    assert wave(algorithm="PPO") == (3 + 30, 3 * 12)
    for algorithm in ("PPO", "SAC"):
        assert wave(algorithm=algorithm, train={"num_env_steps_per_iter": 100}) == (3 + 84, 100)


def test_an_env_step_earns_so_many_updates_that_the_replay_ratio_is_kept_with_and_without_a_memory() -> None:
    """k H is 12; a batch has 4 trials, or 16 transitions."""

    def earned(arch: Arch, **train: Any) -> float:
        config = tiny_config(arch=arch, train={"updates_per_step": None} | train)
        return RunSizes.of(config, make_family(config.env)).updates_per_step

    assert earned(Arch.Memory, replay_ratio=24) == 24 / (4 * 12)
    assert earned(Arch.Markov, replay_ratio=24) == 24 / 16
    assert earned(Arch.Markov, replay_ratio=24, updates_per_step=3) == 3
    config = tiny_config(algorithm="PPO")
    assert RunSizes.of(config, make_family(config.env)).updates_per_step == 0, "a wave earns one update"


def test_a_rollout_has_room_for_one_wave_and_a_replay_for_many() -> None:
    def capacity(algorithm: str, **train: int) -> tuple[int, int]:
        with Learner(tiny_config(algorithm=algorithm, train=train)) as learner:
            return learner.buffer.capacity, learner.context.sizes.buffer_shape["wave_trials"]

    assert capacity("SAC") == (2000, 5)
    assert capacity("SAC", num_rollouts_per_iter=500) == (500 * 14, 500)
    assert capacity("PPO") == (33 * 14, 33)
    assert capacity("PPO", num_init_rollouts_pool=50) == (50 * 14, 50)


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
