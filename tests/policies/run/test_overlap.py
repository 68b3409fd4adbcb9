"""Updates beside a wave: the same bits however fast either side is, one wave's updates stale, and resumed
exactly.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from buffers.base import Batch
from envs.parallel_env_manager import WorkerError
from policies.collection.collector import LocalCollector
from policies.collection.wave import WaveResult
from policies.learner import Learner
from policies.run.config import Config, Overlap
from tests.runs import digest, metrics_of, state_of, tiny_config

NAP = 0.003


def overlapped(**options: Any) -> Config:
    """A tiny run of a pool and four waves, with a replay that they wrap around and a normalisation that every
    wave changes.
    """
    train = {"updates_per_step": 0.1, "buffer_size": 14 * 9}
    agent = {"normalise_obs": True, "normalise_reward": True}
    return tiny_config(train=train, agent=agent, learner={"overlap": Overlap.bounded}, **options)


def before_each_update(learner: Learner, act: Callable[[], object]) -> None:
    update = learner.algorithm.update

    def acting(batch: Batch) -> dict[str, torch.Tensor]:
        act()
        return update(batch)

    learner.algorithm.update = acting  # pyright: ignore[reportAttributeAccessIssue]


def before_each_tick(learner: Learner, act: Callable[[], object]) -> None:
    tick = learner.tick

    def acting(wave: WaveResult | None = None) -> bool:
        act()
        return tick(wave)

    learner.tick = acting  # pyright: ignore[reportAttributeAccessIssue]


def collecting(learner: Learner) -> bool:
    """In a wave that has updates beside it."""
    return bool(learner.progress.acting_agent) and learner.counters.iteration > 0


def trained(
    config: Config, folder: Path, prepare: Callable[[Learner], None] = lambda _: None
) -> dict[str, str]:
    with Learner(config, folder) as learner:
        prepare(learner)
        learner.train()
        return state_of(learner)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A run that nothing disturbs."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, trained(overlapped(), folder)


@pytest.mark.parametrize("slow", ["updates", "wave"])
def test_neither_side_may_be_so_slow_that_it_shows(
    slow: str, whole: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    delay = {"updates": before_each_update, "wave": before_each_tick}[slow]
    assert (
        trained(
            overlapped(),
            tmp_path,
            lambda learner: delay(learner, lambda: time.sleep(NAP * (10 if slow == "updates" else 1))),
        )
        == whole[1]
    )
    assert metrics_of(tmp_path) == metrics_of(whole[0])


def test_a_wave_is_played_by_the_agent_before_the_updates_of_the_last_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And these updates see all trials up to the last wave's, whatever the present one will overwrite, and
    none of its own.
    """
    played: list[str] = []
    ready: list[tuple[int, str]] = []
    seen: list[tuple[int, int]] = []

    collect = LocalCollector.collect

    def noting(collector: LocalCollector, most: int, budget: int | None = None) -> WaveResult:
        if not collector.random_actions:
            played.append(digest(collector.agent.state_dict()))
        return collect(collector, most, budget)

    monkeypatch.setattr(LocalCollector, "collect", noting)
    with Learner(overlapped()) as learner:
        before_each_update(
            learner, lambda: seen.append((learner.buffer.num_added, learner.buffer.num_trials))
        )
        training = learner.training_loop()
        conclude = training._conclude

        def concluding() -> None:
            ready.append((learner.counters.updates, digest(learner.agent.state_dict())))
            conclude()

        training._conclude = concluding  # pyright: ignore[reportAttributeAccessIssue]
        training.run()
    assert [updates for updates, _ in ready] == [6, 6, 10, 15, 25], (
        "those of the first wave beside the second, those of the last after it"
    )
    assert played == [state for _, state in ready[:4]] and len(set(played)) == 4
    assert seen == [(5, 5)] * 6 + [(9, 9)] * 4 + [(13, 9)] * 5 + [(17, 9)] * 5 + [(21, 9)] * 5


@pytest.mark.parametrize("moment", ["wave", "updates", "end", "evaluation"])
def test_a_stopped_run_is_resumed_as_if_nothing_had_happened(
    moment: str, whole: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    def prepare(learner: Learner) -> None:
        counters, sent = learner.counters, []

        def once(now: bool) -> None:
            if now and not sent:
                sent.append(True)
                os.kill(os.getpid(), signal.SIGTERM)

        def in_wave() -> None:
            started = counters.updates
            while collecting(learner) and counters.updates_due > 3 and counters.updates == started:
                time.sleep(NAP)  # so that some updates have been made, and others have not
            once(collecting(learner))

        if moment == "wave":
            before_each_tick(learner, in_wave)
            before_each_update(learner, lambda: time.sleep(10 * NAP if collecting(learner) else 0))
        elif moment == "updates":  # the wave is complete long before
            before_each_update(
                learner, lambda: (collecting(learner) and time.sleep(0.3), once(collecting(learner)))
            )
        else:
            stage = {"end": "update", "evaluation": "evaluate"}[moment]
            before_each_tick(
                learner,
                lambda: once(counters.stage == stage and counters.iteration == (4 if moment == "end" else 3)),
            )

    cut = trained(overlapped(), tmp_path, prepare)
    assert cut != whole[1]
    if moment == "wave":
        with Learner(overlapped(), tmp_path) as resumed:
            resumed.load()
            assert resumed.progress.acting_agent and 0 < resumed.counters.updates_due < 5
    assert trained(overlapped(), tmp_path, Learner.load) == whole[1]
    assert metrics_of(tmp_path) == metrics_of(whole[0])


def test_a_prolonged_run_ends_as_one_that_was_as_long_from_the_start(tmp_path: Path) -> None:
    long, short = overlapped(), overlapped()
    short.train.n_env_steps_total = long.train.n_env_steps_total // 2
    trained(short, tmp_path / "prolonged")
    whole, prolonged = trained(long, tmp_path / "whole"), trained(long, tmp_path / "prolonged", Learner.load)
    assert prolonged == whole


def test_the_lines_of_metrics_have_the_fields_that_they_ever_had(
    whole: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    config = overlapped()
    config.learner.overlap = Overlap.none
    trained(config, tmp_path)
    plain, lines = metrics_of(tmp_path), metrics_of(whole[0])
    assert [line["env_steps"] for line in lines] == [line["env_steps"] for line in plain] and lines[-1][
        "updates"
    ] == plain[-1]["updates"]
    assert {name for line in lines for name in line} == {name for line in plain for name in line}
    assert not any(name.startswith("loss/") for name in lines[1]), "no update was made beside the first wave"


@pytest.mark.parametrize("side", ["updates", "wave"])
def test_what_goes_wrong_on_one_side_ends_the_other_and_is_raised(side: str) -> None:
    error = ArithmeticError("broken") if side == "updates" else WorkerError("broken")

    with Learner(overlapped()) as learner:

        def fail() -> None:
            if collecting(learner):
                raise error

        before_each_update(learner, fail) if side == "updates" else before_each_tick(learner, fail)
        with pytest.raises(type(error), match="broken"):
            learner.training_loop().run()
        assert not any(thread.name.startswith("updates") for thread in threading.enumerate())


def test_an_algorithm_that_needs_its_own_policys_rows_is_refused() -> None:
    with Learner(overlapped(algorithm="PPO")) as learner, pytest.raises(ValueError, match="older policy"):
        learner.training_loop()
