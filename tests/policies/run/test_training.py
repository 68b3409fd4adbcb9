"""The training loop: its rhythm of collecting, updating, evaluating and saving."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from buffers.base import Batch
from policies.agents.base import Precision
from policies.algorithms.off_policy_config import OffPolicyConfig
from policies.algorithms.ppo import PPOConfig
from policies.learner import Learner
from policies.run.progress import Stage
from tests.runs import digest, metrics_of, stored_rows, tiny_config


def test_updates_follow_env_steps_with_the_fraction_carried_over() -> None:
    config = tiny_config(train={"updates_per_step": 0.03})
    with Learner(config) as learner:
        learner.training_loop().run()
        counters = learner.counters
    assert counters.updates == int(counters.env_steps * 0.03)
    assert counters.update_credit == pytest.approx(counters.env_steps * 0.03 % 1)


def test_a_run_without_a_pool_learns_from_its_own_trials() -> None:
    with Learner(tiny_config(train={"num_init_rollouts_pool": 0})) as learner:
        learner.training_loop().run()
        assert learner.counters.warmup_trials == 0 and learner.counters.updates > 0
        assert learner.counters.stage == Stage.collect


def test_evaluation_comes_at_multiples_of_its_interval_and_at_the_end(tmp_path: Path) -> None:
    with Learner(tiny_config(), tmp_path) as learner:
        learner.train()
    lines = metrics_of(tmp_path)
    evaluated = [line["env_steps"] for line in lines if "eval/held_out/return_episode_1" in line]
    first_past = [
        next(line["env_steps"] for line in lines if line["env_steps"] >= mark) for mark in (100, 200)
    ]
    assert evaluated == sorted({*first_past, lines[-1]["env_steps"]})


def test_only_the_pool_is_random_and_it_is_logged(tmp_path: Path) -> None:
    with Learner(tiny_config(), tmp_path) as learner:
        learner.train()
    pool, *rest = metrics_of(tmp_path)
    assert pool["trials"] == 5 and pool["iteration"] == 0 and "pool/return_episode_1" in pool
    assert all("pool/return_episode_1" not in line and "train/return_episode_1" in line for line in rest)


def test_two_runs_of_one_seed_are_the_same_run(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with Learner(tiny_config(), tmp_path / name) as learner:
            learner.train()
    assert metrics_of(tmp_path / "a") == metrics_of(tmp_path / "b")


def test_on_policy_there_is_one_update_for_each_wave_of_its_own_rows() -> None:
    config = tiny_config(
        algorithm="PPO",
        family="AntDir",
        env={"max_episode_steps": 40},
        train={"num_env_steps_per_iter": 120, "n_env_steps_total": 700},
    )
    with Learner(config) as learner:
        seen: list[int] = []
        update = learner.algorithm.update

        def noting(batch: Batch) -> dict[str, torch.Tensor]:
            seen.append(int(batch.trains.sum()))
            return update(batch)

        learner.algorithm.update = noting  # pyright: ignore[reportAttributeAccessIssue]
        learner.training_loop().run()
        counters = learner.counters
        assert counters.updates == counters.iteration == len(seen) and sum(seen) == counters.env_steps
        assert all(120 <= steps < 120 + 3 * 80 for steps in seen)
        assert counters.trials == learner.buffer.num_added


@pytest.mark.parametrize("normalises", [True, False])
def test_on_policy_a_random_pool_is_played_to_normalise_by_and_for_nothing_else(
    normalises: bool, tmp_path: Path
) -> None:
    config = tiny_config(algorithm="PPO")
    config.agent.normalise_obs = config.agent.normalise_reward = normalises
    with Learner(config, tmp_path) as learner:
        learner.train()
        assert learner.counters.warmup_trials == (5 if normalises else 0)
    first, second, *_ = metrics_of(tmp_path)
    assert first["updates"] == 0 and second["updates"] == 1
    assert ("pool/return_episode_1" in first) == normalises


@pytest.mark.parametrize("algorithm", ["PPO", "SAC"])
def test_rows_are_learned_from_as_they_were_acted_on(algorithm: str) -> None:
    """On-policy, the normalisation moves after the update of a wave, off-policy after the wave: either way it
    has seen every row once.
    """
    config = tiny_config(algorithm=algorithm)
    config.agent.normalise_obs = config.agent.normalise_reward = True
    if isinstance(config.algorithm, PPOConfig):
        config.algorithm.epochs = config.algorithm.minibatches = 1
    with Learner(config) as learner:
        normaliser, kinds = learner.agent.normaliser, []
        assert normaliser is not None
        update = learner.algorithm.update

        def noting(batch: Batch) -> dict[str, torch.Tensor]:
            metrics = update(batch)
            kinds.append(metrics.get("approx_kl", torch.zeros(())).item())
            return metrics

        learner.algorithm.update = noting  # pyright: ignore[reportAttributeAccessIssue]
        learner.training_loop().run()
        rows = normaliser.state_dict()["_extra_state"]["return"]["count"]
        counters = learner.counters
    assert rows == (counters.trials + counters.warmup_trials) * 2 * 7
    assert max(map(abs, kinds)) < 1e-5 and len(kinds) > 3


def test_off_policy_an_iteration_may_be_a_number_of_env_steps() -> None:
    with Learner(
        tiny_config(
            train={"num_env_steps_per_iter": 50, "num_init_rollouts_pool": 0, "n_env_steps_total": 200}
        )
    ) as learner:
        learner.training_loop().run()
        counters = learner.counters
        assert (
            counters.iteration == 3
            and counters.trials == learner.buffer.num_trials == counters.env_steps // 12
        )


@pytest.mark.parametrize("algorithm", ["SAC", "PPO"])
def test_in_bfloat16_acting_is_the_same_and_an_update_nearly(algorithm: str) -> None:
    updates, rows = [], []
    for precision in Precision:
        config = tiny_config(
            algorithm=algorithm,
            agent={"precision": precision, "hidden": [32, 32]},
            num_slots=30,
            train={"num_rollouts_per_iter": 30},
        )
        if isinstance(config.algorithm, OffPolicyConfig):
            config.algorithm.batch_size = 30
        with Learner(config) as learner:
            learner.collect_wave(30)
            rows.append(digest(stored_rows(learner)))
            updates.append(learner.update())
            assert {parameter.dtype for parameter in learner.agent.parameters()} == {torch.float32}
            assert {
                parameter.grad.dtype for parameter in learner.agent.parameters() if parameter.grad is not None
            } == {torch.float32}
    assert rows[0] == rows[1]
    assert updates[0] != updates[1] and updates[0] == pytest.approx(updates[1], rel=0.05, abs=0.02)
