"""Actors: windows from a stored state are read as they were acted on; storing changes nothing else."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from buffers.base import Batch
from buffers.replay import Replay
from policies.agents.base import Arch, Encoders, PolicyRows
from policies.algorithms.off_policy_config import OffPolicyConfig, WindowStart
from policies.collection.actors import RandomActor
from policies.collection.wave import WavePlan, run_wave
from policies.learner import Learner
from policies.memory import MEMORIES
from policies.run.config import Config
from policies.run.sizes import RunSizes, check_family, state_leaves
from tests.runs import digest, metrics_of, state_of, stored_rows, tiny_config
from utils.options import OptionError
from utils.seeding import Phase

STORING = [name for name, memory in MEMORIES.items() if memory.stores_state]
TOLERANCE = 1e-5


def windows_config(memory: str = "GRU", start: WindowStart = WindowStart.stored, **options: Any) -> Config:
    """Windows of 4 rows and 2 before them; trials have 14, and the state is kept before every other row."""
    config = tiny_config(**options)
    config.memory = MEMORIES[memory].Config(name=memory, hidden_size=16)
    assert isinstance(config.algorithm, OffPolicyConfig)
    config.algorithm.window, config.algorithm.burn_in, config.algorithm.window_start = 4, 2, start
    return config


def keys_of(rows: Batch | PolicyRows) -> list[bytes]:
    """The contents of each row, in bytes."""
    assert isinstance(rows.obs, Tensor)
    contents = torch.cat([rows.obs, rows.prev_action, rows.reward[..., None]], -1).flatten(0, -2).numpy()
    return [row.tobytes() for row in contents]


def noting(learner: Learner) -> dict[bytes, tuple[Tensor, float] | None]:
    """(features, log-probability) at each row that is acted on from now on; None for different rows that
    look the same.
    """
    agent, acted = learner.agent, {}
    agent.extras = ("log_prob",)
    act, step = agent.act, agent.actor.step
    features: list[Tensor] = []

    def noting_step(rows: PolicyRows, state: dict[str, Tensor]) -> Any:
        seen, state = step(rows, state)
        features.append(seen.context.clone())
        return seen, state

    def noting_act(rows: PolicyRows, *inputs: Any) -> Any:
        action, extras, state = act(rows, *inputs)
        for key, one, log_prob in zip(
            keys_of(rows), features.pop(), extras["log_prob"].tolist(), strict=True
        ):
            known = acted.setdefault(key, (one, log_prob))
            if known is not None and not torch.equal(known[0], one):
                acted[key] = None
        return action, extras, state

    agent.act, agent.actor.step = noting_act, noting_step  # pyright: ignore[reportAttributeAccessIssue]
    return acted


@pytest.mark.parametrize("memory", STORING)
@pytest.mark.parametrize("encoders", Encoders, ids=lambda encoders: encoders.name)
@pytest.mark.parametrize("pool", [False, True], ids=["acted", "random pool"])
def test_a_window_from_a_stored_state_is_read_as_it_was_acted_on(
    memory: str, encoders: Encoders, pool: bool
) -> None:
    """By the agent as it is, which unrolls it; in a random pool, as the agent read along."""
    with Learner(
        windows_config(memory, agent={"encoders": encoders}, env={"max_rollouts_per_task": 2})
    ) as learner:
        acted = noting(learner)
        learner.collect_rollouts_parallel(8, random_actions=pool)
        batch = learner.buffer.sample(learner.context.needs, np.random.default_rng(0))
        compared, from_nothing = 0, []
        for _ in range(8):
            batch = learner.buffer.sample(learner.context.needs, np.random.default_rng(compared))
            with torch.no_grad():
                outputs, empty = (
                    learner.agent.unroll(batch),
                    learner.agent.actor.unroll(learner.agent.normalise(batch)).context.flatten(0, 1),
                )
            log_prob, features = (
                outputs.policy.log_prob(batch.action).flatten(),
                outputs.actor.context.flatten(0, 1),
            )
            keys = keys_of(batch)
            for row in batch.trains.flatten().nonzero().flatten().tolist():
                then = acted[keys[row]]
                if then is None:
                    continue
                compared += 1
                torch.testing.assert_close(features[row], then[0], rtol=0, atol=TOLERANCE)
                assert pool or log_prob[row].item() == pytest.approx(then[1], abs=1e-4)
                from_nothing.append((empty[row] - then[0]).abs().max().item())
            assert torch.equal(outputs.critic.context, outputs.actor.context) == (encoders is Encoders.shared)
    assert compared > 50 and max(from_nothing) > 100 * TOLERANCE, "and not from an empty memory"


@pytest.mark.parametrize("groups", [1, 2])
def test_storing_changes_no_row_and_does_not_depend_on_the_workers(groups: int) -> None:
    found = []
    for start, workers in ((WindowStart.zero, 1), (WindowStart.stored, 1), (WindowStart.stored, 2)):
        with Learner(windows_config(start=start, workers=workers, num_slots=4, num_groups=groups)) as learner:
            learner.collect_rollouts_parallel(3, random_actions=True, parallel_env=learner.train_env_parallel)
            learner.collect_rollouts_parallel(5, parallel_env=learner.train_env_parallel)
            rows = stored_rows(learner)
        states = {name: rows.pop(name) for name in list(rows) if name.startswith("state.")}
        found.append((digest(rows), digest(states), [values.shape for values in states.values()]))
    assert found[0][0] == found[1][0] == found[2][0]
    assert found[0][2] == [] and found[1][2] == [(8 * 6, 16)]
    assert found[1][1] == found[2][1] != found[0][1]


@pytest.mark.parametrize("memory", ["LSTM", "Aggregation"])
def test_a_run_with_stored_states_is_resumed_bit_for_bit(memory: str, tmp_path: Path) -> None:
    final = []
    for folder in ("whole", "cut"):
        with Learner(windows_config(memory), tmp_path / folder) as learner:
            if folder == "cut":
                update = learner.algorithm.update

                def stopping(
                    batch: Batch, learner: Learner = learner, update: Any = update
                ) -> dict[str, Tensor]:
                    if learner.counters.updates == 4:
                        os.kill(os.getpid(), signal.SIGTERM)
                    return update(batch)

                learner.algorithm.update = stopping  # pyright: ignore[reportAttributeAccessIssue]
            learner.train()
            final.append(state_of(learner))
            assert any(
                name.startswith("state.") and values.any() for name, values in stored_rows(learner).items()
            )
    assert final[0] != final[1]
    with Learner(windows_config(memory), tmp_path / "cut") as resumed:
        resumed.load()
        resumed.train()
        assert state_of(resumed) == final[0]
    assert metrics_of(tmp_path / "cut") == metrics_of(tmp_path / "whole")


def test_states_are_part_of_what_must_fit_in_memory() -> None:
    sizes = []
    for start in WindowStart:
        config = windows_config(start=start, train={"buffer_size": 10**6})
        sizes.append(Replay.bytes_needed(**RunSizes.of(config, check_family(config)).buffer_shape))
    # The pool has five trials, of 14 rows; a state of 16 numbers stands before every second row.
    assert sizes[1] - sizes[0] == (10**6 + 5 * 14) // 2 * 16 * 4
    config = windows_config(train={"buffer_size": 10**12})
    with pytest.raises(OptionError, match="The replay needs"):
        check_family(config)


def test_without_windows_that_start_from_them_nothing_is_kept() -> None:
    for config in (
        tiny_config(),
        windows_config(start=WindowStart.zero),
        windows_config(arch=Arch.Markov),
        tiny_config(algorithm="PPO"),
    ):
        shape = RunSizes.of(config, check_family(config)).buffer_shape
        assert (shape["state_every"], shape["states"]) == (0, None)


def test_an_actor_that_remembers_nothing_has_no_state_to_store() -> None:
    with Learner(windows_config()) as learner:
        env, tasks = learner.environments.training, learner.eval_tasks
        actor, plan = RandomActor(env.single_action_space), WavePlan.of_tasks(0, Phase.TRAIN, 0, tasks)
        with pytest.raises(ValueError, match="let an agent's memory read along"):
            run_wave(env, actor, plan, sink=learner.buffer)


@pytest.mark.parametrize("memory", MEMORIES)
def test_the_shapes_are_those_of_the_state_and_asking_for_them_draws_nothing(memory: str) -> None:
    kind = MEMORIES[memory]
    config = kind.fitted(kind.Config(name=memory, hidden_size=8), 10)
    before = torch.get_rng_state()
    leaves = state_leaves(kind, config)
    assert torch.equal(before, torch.get_rng_state())
    state = kind(config, 5).initial_state(3)
    assert {name: (3, *shape) for name, (shape, _) in leaves.items()} == {
        name: leaf.shape for name, leaf in state.items()
    }
    assert {name: dtype for name, (_, dtype) in leaves.items()} == {
        name: leaf.numpy().dtype for name, leaf in state.items()
    }
