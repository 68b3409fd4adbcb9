"""RemoteCollector: numbers that no two trials share, one wave in the buffer, exact resume, and overlap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envs.backends.base import BackendConfig, OnFault
from envs.base import Shard
from envs.parallel_env_manager import WorkerError
from policies.collection import remote
from policies.collection.remote.actor import CollectingActor
from policies.collection.remote.collector import RemoteCollector
from policies.collection.wave import WaveInterrupted
from policies.learner import Learner
from policies.run.config import Overlap
from tests.actors import NORMALISED, PoolHere, config_with_actors
from tests.runs import digest, state_of, stored_rows


@pytest.fixture(autouse=True)
def actors_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(remote.POOLS, "processes", PoolHere)


def pool_of(learner: Learner) -> PoolHere:
    pool = learner.actors
    assert isinstance(pool, PoolHere)
    return pool


@pytest.mark.parametrize("algorithm", ["SAC", "PPO"])
def test_no_two_trials_of_a_run_have_the_same_number(algorithm: str) -> None:
    with Learner(config_with_actors(algorithm)) as learner:
        for _ in range(3):
            sizes = learner.context.sizes
            learner.collect_wave(sizes.wave_trials, sizes.wave_env_steps)
        orders, played = pool_of(learner).orders, learner.counters
    spans = [(order.first, order.first + order.most) for order in orders]
    assert all(stop <= start for (_, stop), (start, _) in zip(spans, spans[1:], strict=False))
    # On-policy it is not known before how many trials a wave will have, so numbers are left out.
    assert (played.left_out > 0) == (algorithm == "PPO")
    assert played.next_number == spans[-1][1]


@pytest.mark.parametrize("algorithm", ["SAC", "PPO"])
def test_actors_normalise_as_the_learner_does(algorithm: str) -> None:
    with Learner(config_with_actors(algorithm, agent=NORMALISED)) as learner:
        learner.collect_wave(4, random=True)
        learned = learner.agent.state_dict()["normaliser._extra_state"]
        assert learned["return"]["count"] > 0, "by the rows of the random pool"
        before = digest(learner.agent.state_dict())
        learner.collect_wave(4)
        for actor in pool_of(learner).playing:
            assert digest(actor._agent.state_dict()) == before


def test_a_wave_has_the_trials_that_one_process_would_have_played() -> None:
    """The same tasks and seeds; last bits of actions may differ, since batches are of another size."""
    rows = []
    for name in ("processes", "local"):
        config = config_with_actors()
        config.collector.name = name
        with Learner(config) as learner:
            learner.collect_wave(5, random=True)
            rows.append(stored_rows(learner))
    assert digest(rows[0]) == digest(rows[1]), "random actions depend on no batch"


@pytest.mark.parametrize("options", [{}, {"learner": {"overlap": Overlap.bounded}}])
def test_a_resumed_run_equals_one_that_was_not_stopped(options: dict[str, Any], tmp_path: Path) -> None:
    def trained(folder: Path, steps: int) -> dict[str, str]:
        with Learner(config_with_actors(**options, train={"n_env_steps_total": steps}), folder) as learner:
            if (folder / "checkpoints").exists():
                learner.load()
            learner.train()
            return state_of(learner)

    whole = trained(tmp_path / "whole", 240)
    trained(tmp_path / "parts", 120)
    assert trained(tmp_path / "parts", 240) == whole


def test_a_wave_that_is_stopped_leaves_no_trace() -> None:
    with Learner(config_with_actors("PPO")) as learner:
        learner.collect_wave(4)
        before = digest(stored_rows(learner)), learner.counters.next_number
        stopped = RemoteCollector(
            learner.context,
            learner.progress,
            pool_of(learner),
            learner.agent,
            learner.buffer,
            lambda _: True,
        )
        with pytest.raises(WaveInterrupted):
            stopped.collect(4)
        assert (digest(stored_rows(learner)), learner.counters.next_number) == before
        with pytest.raises(ValueError, match="-1 trials"):
            stopped.collect(-1)
        assert stopped.collect(0).env_steps == 0


def test_a_pool_of_fewer_trials_than_actors_is_played_by_some_of_them() -> None:
    with Learner(config_with_actors(actors=4)) as learner:
        assert len(learner.collect_wave(3, random=True).dropped) == 3
        assert [order.most for order in pool_of(learner).orders] == [1, 1, 1]
        assert np.isfinite(learner.collect_wave(6).returns).all()
        assert [order.most for order in pool_of(learner).orders[3:]] == [2, 2, 1, 1]


@pytest.mark.parametrize("algorithm", ["SAC", "PPO"])
def test_an_actor_whose_trials_are_all_given_up_leaves_those_of_the_other(algorithm: str) -> None:
    backend = BackendConfig(name="serial", on_fault=OnFault.drop, fault_budget=1000)
    with Learner(config_with_actors(algorithm, backend=backend)) as learner:
        pool = pool_of(learner)
        pool.start()
        break_environments_of(pool.playing[1])

        # 1. The rows are those that the other one has played, and the numbers those of all trials.
        result = learner.collect_wave(4, random=True)
        assert result.dropped.tolist() == [False, False, True, True]
        assert np.isfinite(result.returns[:2]).all() and np.isnan(result.returns[2:]).all()
        assert (learner.buffer.num_added, learner.buffer.num_trials) == (4, 2)

        # 2. The run learns from them.
        sizes = learner.context.sizes
        result = learner.collect_wave(sizes.wave_trials, sizes.wave_env_steps)
        assert result.dropped.any() and not result.dropped.all()
        whole = np.flatnonzero(~result.dropped)
        assert whole.tolist() == list(range(len(whole))), "the first actor's"
        assert np.isfinite(list(learner.update().values())).all()

        # 3. With none left there is nothing to learn from.
        break_environments_of(pool.playing[0])
        with pytest.raises(WorkerError, match="All 4 trials of a collection were given up"):
            learner.collect_wave(4, random=True)


def break_environments_of(actor: CollectingActor) -> None:
    """From now on every step of this actor's environments fails."""
    family = actor._context.family
    make = family.make_shard

    def broken(num_slots: int, threads: int = 1) -> Shard:
        shard = make(num_slots, threads)
        shard.step = lambda slots, actions: 1 / 0  # pyright: ignore[reportAttributeAccessIssue]
        return shard

    family.make_shard = broken  # pyright: ignore[reportAttributeAccessIssue]
    actor.close()
    vars(actor._environments).pop("train_env", None)  # they are made anew
