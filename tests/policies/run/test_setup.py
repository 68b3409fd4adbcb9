"""What a run settles before it starts."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from envs.backends.base import BackendConfig
from policies.learner import Learner
from policies.run.config import DeviceName, ReplayDevice
from policies.run.setup import (
    MOST_SLOTS,
    check_family,
    copies_to_device,
    most_workers,
    prepare_torch,
    slots_of,
    wave_of,
)
from tests.runs import tiny_config
from utils.machine import available_cores
from utils.options import OptionError


def test_slots_are_the_rollouts_of_an_iteration_capped_whatever_the_workers() -> None:
    assert slots_of(tiny_config(num_slots=None)) == 4
    assert slots_of(tiny_config(num_slots=None, workers=6)) == 4
    assert slots_of(tiny_config(num_slots=None, train={"num_rollouts_per_iter": 1000})) == MOST_SLOTS
    assert slots_of(tiny_config(num_slots=7)) == 7


def test_what_is_given_is_obeyed_and_what_is_not_follows_from_a_measurement() -> None:
    for workers, name, expected in (
        (3, "auto", ("process", 3)),
        (2, "thread", ("thread", 2)),
        (None, "serial", ("serial", 1)),
    ):
        config = tiny_config(workers=workers, backend=BackendConfig(name=name))
        with Learner(config) as learner:
            assert (learner.backend.backend.name, learner.backend.num_workers) == expected
    with Learner(tiny_config(backend=BackendConfig(name="auto"))) as learner:
        assert learner.backend.backend.name == "serial", "a toy is not worth a process"
        assert (
            learner.backend.reason.startswith("backend=auto: serial, since a step of 3 slots takes ")
            and "the policy " in learner.backend.reason
        )
        assert learner.env.num_envs == 3


def test_the_most_workers_are_known_before_anything_is_measured() -> None:
    assert most_workers(tiny_config(workers=3)) == 3
    assert most_workers(tiny_config()) == 1
    assert most_workers(tiny_config(num_slots=64, backend=BackendConfig(name="process"))) == available_cores()


def test_deterministic_turns_torchs_deterministic_algorithms_on() -> None:
    try:
        assert prepare_torch(tiny_config(deterministic=True)) == "cpu"
        assert torch.are_deterministic_algorithms_enabled() and torch.get_num_threads() == 1
    finally:
        torch.use_deterministic_algorithms(False)


def test_auto_is_the_best_device_there_is() -> None:
    expected = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    config = tiny_config()
    config.device = DeviceName.auto
    assert prepare_torch(config) == expected


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


def test_an_on_policy_iteration_is_a_long_trial_in_each_slot_and_an_off_policy_one_so_many_trials() -> None:
    """k=2 and H=6; room is made for trials of a tenth of that."""

    def wave(**options: Any) -> tuple[int, int | None]:
        config = tiny_config(**options)
        return wave_of(config, config.env)

    assert wave() == (4, None)
    assert slots_of(tiny_config(algorithm="PPO", num_slots=None)) == MOST_SLOTS
    assert wave(algorithm="PPO") == (3 + 30, 3 * 12)
    for algorithm in ("PPO", "SAC"):
        assert wave(algorithm=algorithm, train={"num_env_steps_per_iter": 100}) == (3 + 84, 100)


def test_a_rollout_has_room_for_one_wave_and_a_replay_for_many() -> None:
    def capacity(algorithm: str, **train: int) -> int:
        with Learner(tiny_config(algorithm=algorithm, train=train)) as learner:
            return learner.buffer.capacity

    assert capacity("SAC") == 2000 // 12
    assert capacity("PPO") == 33
    assert capacity("PPO", num_init_rollouts_pool=50) == 50


def test_the_replay_has_an_image_on_a_device_where_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(asked: ReplayDevice, device: str, free: float = 2**40, **options: Any) -> bool:
        config = tiny_config(train={"replay_device": asked}, **options)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free, 2**41))
        return copies_to_device(config, check_family(config), device)

    assert not any(found(asked, "cpu") for asked in ReplayDevice)
    assert not any(found(asked, "cuda", algorithm="PPO") for asked in ReplayDevice)
    assert [found(asked, "cuda") for asked in ReplayDevice] == [True, False, True]
    assert not found(ReplayDevice.auto, "cuda", free=1000)
    assert [found(asked, "mps") for asked in ReplayDevice] == [False, False, True]
    with pytest.raises(
        OptionError, match=r"lower train\.buffer_size \(env steps\) or use train\.replay_device=host"
    ):
        found(ReplayDevice.device, "cuda", free=1000)


def test_determinism_is_switched_off_again_for_the_next_job_of_a_sweep() -> None:
    try:
        prepare_torch(tiny_config(deterministic=True))
        assert torch.are_deterministic_algorithms_enabled()
        prepare_torch(tiny_config())
        assert not torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def test_who_does_not_learn_needs_no_room_for_a_replay() -> None:
    config = tiny_config(train={"buffer_size": 10**12})
    with pytest.raises(OptionError, match="The replay needs"):
        check_family(config)
    assert check_family(config, learns=False).spec.name == "PointRobot"
