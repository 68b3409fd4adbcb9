"""What a run takes of the machine: device, determinism, workers, and a copy of the buffer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from envs.backends.auto import BackendChoice
from envs.backends.base import BackendConfig
from policies.learner import Learner
from policies.run.config import Config, DeviceName, ReplayDevice
from policies.run.context import RunHost
from policies.run.hardware import BACKENDS_FILE, copies_to_device, most_workers, prepare_torch
from policies.run.sizes import RunSizes, check_family
from tests.runs import tiny_config
from utils.machine import available_cores
from utils.options import OptionError


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
        assert learner.environments.training.num_envs == 3


def test_one_job_of_a_sweep_measures_for_all_with_such_environments(tmp_path: Path) -> None:
    asked: list[BackendChoice] = []

    def measured(config: Config) -> bool:
        """Whether the environments were measured for this config."""
        before = len(asked)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("policies.run.hardware.choose_backend", choose)
            with Learner(config, host=RunHost(backends=tmp_path / BACKENDS_FILE)) as learner:
                assert (learner.backend.backend.name, learner.backend.num_workers) == ("process", 2)
        return len(asked) > before

    def choose(*_: Any, **__: Any) -> BackendChoice:
        asked.append(BackendChoice(BackendConfig(name="process"), 2, "since it is faster"))
        return asked[-1]

    auto = BackendConfig(name="auto")
    assert measured(tiny_config(backend=auto))
    assert not measured(tiny_config(backend=auto, seed=1, checkpoint_every=7))
    assert measured(tiny_config(backend=auto, num_slots=2))
    assert measured(tiny_config(backend=auto, env={"max_episode_steps": 5}))
    assert measured(tiny_config(workers=2)), "what is given is not noted"


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


def test_the_replay_has_an_image_on_a_device_where_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(asked: ReplayDevice, device: str, free: float = 2**40, **options: Any) -> bool:
        config = tiny_config(train={"replay_device": asked}, **options)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free, 2**41))
        return copies_to_device(config, RunSizes.of(config, check_family(config)), device)

    assert not any(found(asked, "cpu") for asked in ReplayDevice)
    assert not any(found(asked, "cuda", algorithm="PPO") for asked in ReplayDevice)
    assert [found(asked, "cuda") for asked in ReplayDevice] == [True, False, True]
    assert not found(ReplayDevice.auto, "cuda", free=1000)
    assert [found(asked, "mps") for asked in ReplayDevice] == [False, False, True]
    with pytest.raises(
        OptionError, match=r"lower train\.buffer_size \(rows\) or use train\.replay_device=host"
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
