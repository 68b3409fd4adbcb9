"""The wave loop: exactly the trials that were started, keyed by their numbers, in one batch per round."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from buffers.replay import Replay
from envs.base import ActionSpace
from envs.parallel_env_manager import ParallelEnvManager, SlotGroup
from policies.collection.actors import AgentActor, GroupActor, RandomActor
from policies.collection.wave import Sink, WaveInterrupted, WavePlan, run_wave
from policies.learner import Learner
from policies.memory import MEMORIES
from tests.runs import tiny_config
from tests.toys import CountingConfig, CountingFamily
from utils.seeding import Phase

ACTIONS = CountingFamily().spec.action_space


def manager_of(num_envs: int = 3, *, falls: bool = True, k: int = 2, horizon: int = 9) -> ParallelEnvManager:
    return ParallelEnvManager(
        CountingFamily(CountingConfig(max_episode_steps=horizon, falls=falls)),
        num_envs,
        episodes_per_trial=k,
        seed=0,
    )


def plan_of(n: int, *, root: int = 0, first: int = 0) -> WavePlan:
    return WavePlan.of_tasks(root, Phase.TRAIN, first, tasks_of(n))


def tasks_of(n: int) -> NDArray[np.float64]:
    return np.random.default_rng(0).uniform(size=(n, 2))


TASKS = tasks_of(4)


def trial_key(plan: WavePlan, index: int) -> tuple[list[float], int, float]:
    """The task, the seed and the first number of the action noise of a trial."""
    start = plan.start(index)
    assert start.seed is not None
    return np.asarray(start.task).tolist(), start.seed, plan.action_rng(index).random()


class Recorder(Sink):
    """A sink that stores every row it is given."""

    def __init__(self) -> None:
        self.reserved = 0
        self.rows: dict[int, list[tuple[int, bytes, bytes]]] = {}
        self.lengths: list[int] = []
        self.discarded = False

    def reserve(self, n: int) -> None:
        self.reserved = n

    def write(
        self,
        trials: NDArray[np.int64],
        times: NDArray[np.int64],
        rows: Any,
        slots: NDArray[np.int64],
        actions: NDArray[Any],
        extras: Any,
    ) -> None:
        for trial, time, slot in zip(trials.tolist(), times.tolist(), slots.tolist(), strict=True):
            self.rows.setdefault(trial, []).append(
                (time, rows.obs[slot].tobytes() + rows.reward[slot].tobytes(), actions[slot].tobytes())
            )

    def commit(self, lengths: NDArray[np.int64]) -> None:
        self.lengths = lengths.tolist()

    def discard(self) -> None:
        self.discarded = True


class CountingActor(RandomActor):
    """Random actions, and how often they were asked for."""

    def __init__(self, space: ActionSpace) -> None:
        super().__init__(space)
        self.calls = 0

    def for_group(self, manager: ParallelEnvManager, group: SlotGroup) -> GroupActor:
        actor = super().for_group(manager, group)
        act = actor.act

        def counted(noise: NDArray[Any]) -> NDArray[Any]:
            self.calls += 1
            return act(noise)

        actor.act = counted  # pyright: ignore[reportAttributeAccessIssue]
        return actor


@pytest.mark.parametrize("n", [1, 3, 7])
def test_every_trial_is_written_whole_and_in_order(n: int) -> None:
    sink = Recorder()
    with manager_of() as manager:
        result = run_wave(manager, RandomActor(ACTIONS), plan_of(n), sink=sink)
    assert sink.reserved == n and sorted(sink.rows) == list(range(n))
    for trial, rows in sink.rows.items():
        assert [time for time, _, _ in rows] == list(range(sink.lengths[trial]))
    assert result.lengths.sum() == result.env_steps
    assert sink.lengths == (result.lengths.sum(1) + 2).tolist(), (
        "a trial has a row more than steps in each of its k=2 episodes"
    )


def test_a_trial_is_the_same_in_any_wave_that_plays_it() -> None:
    """Its rows depend on its number, not on its slot or on what else is played: here alone in a slot, or as
    one of seven in three.
    """
    alone, among = Recorder(), Recorder()
    plan, tasks = plan_of(7), tasks_of(7)
    with manager_of() as manager:
        run_wave(manager, RandomActor(ACTIONS), plan, sink=among)
    for number in (0, 4, 6):
        with manager_of(1) as manager:
            run_wave(
                manager,
                RandomActor(ACTIONS),
                WavePlan.of_tasks(0, Phase.TRAIN, number, tasks[number : number + 1]),
                sink=alone,
            )
        assert alone.rows.pop(0) == among.rows[number]


def test_other_roots_phases_and_numbers_are_other_trials() -> None:
    def rows_of(plan: WavePlan) -> list[tuple[int, bytes, bytes]]:
        sink = Recorder()
        with manager_of(1) as manager:
            run_wave(manager, RandomActor(ACTIONS), plan, sink=sink)
        return sink.rows[0]

    tasks = tasks_of(1)
    plans = [
        WavePlan.of_tasks(0, Phase.TRAIN, 0, tasks),
        WavePlan.of_tasks(1, Phase.TRAIN, 0, tasks),
        WavePlan.of_tasks(0, Phase.WARMUP, 0, tasks),
        WavePlan.of_tasks(0, Phase.TRAIN, 1, tasks),
    ]
    assert len({tuple(rows_of(plan)) for plan in plans}) == 4


def test_a_free_slot_takes_the_next_trial_at_once() -> None:
    """The ancestor split trials over workers beforehand; here six trials of fixed length fill three slots
    twice, with no round between.
    """
    actor = CountingActor(ACTIONS)
    with manager_of(falls=False, horizon=4) as manager:
        run_wave(manager, actor, plan_of(6))
    assert actor.calls == 2 * 2 * (4 + 1), "one batched act a round, for all slots, and no idle round"


def test_the_returns_are_those_of_all_started_trials_whoever_ends_first() -> None:
    """Mean over what was started: short trials are not over-represented."""
    with manager_of(4) as manager:
        many = run_wave(manager, RandomActor(ACTIONS), plan_of(64))
        assert (many.lengths > 0).all(), "every episode of every trial was played"
        assert len(set(many.lengths.flatten().tolist())) > 1


def test_an_interrupted_wave_counts_nothing_and_the_next_is_not_disturbed() -> None:
    sink, again = Recorder(), Recorder()
    with manager_of() as manager:
        with pytest.raises(WaveInterrupted):
            run_wave(
                manager,
                RandomActor(ACTIONS),
                plan_of(5),
                sink=sink,
                tick=lambda result: result.env_steps > 12,
            )
        assert sink.discarded and sink.rows and not sink.lengths
        run_wave(manager, RandomActor(ACTIONS), plan_of(5), sink=again)
    fresh = Recorder()
    with manager_of() as manager:
        run_wave(manager, RandomActor(ACTIONS), plan_of(5), sink=fresh)
    assert again.rows == fresh.rows


def budget_of(most: int, budget: int | None, *, first: int = 0) -> WavePlan:
    """Tasks by the number of the trial."""
    return WavePlan(
        0, Phase.TRAIN, first, most, lambda number: np.random.default_rng(number).uniform(size=2), budget
    )


@pytest.mark.parametrize("budget", [1, 40, 200])
def test_with_a_budget_no_trial_starts_once_it_is_spent_and_all_that_run_end(budget: int) -> None:
    sink = Recorder()
    with manager_of(3) as manager:
        result = run_wave(manager, RandomActor(ACTIONS), budget_of(500, budget), sink=sink)
        started = len(result.lengths)
        assert 3 <= started < 500 and sink.reserved == 500
        assert len(sink.lengths) == len(sink.rows) == len(result.returns) == len(result.dropped) == started
        assert (result.lengths > 0).all() and result.env_steps == result.lengths.sum() >= budget
        assert result.env_steps - result.lengths[-3:].sum() < budget, (
            "the last trials of three slots were started before it was spent"
        )


def test_a_budget_decides_how_many_trials_there_are_and_not_what_they_are() -> None:
    short, whole = Recorder(), Recorder()
    with manager_of(3) as manager:
        started = len(run_wave(manager, RandomActor(ACTIONS), budget_of(500, 60), sink=short).lengths)
        run_wave(manager, RandomActor(ACTIONS), budget_of(started, None), sink=whole)
    assert short.rows == whole.rows


def test_a_wave_is_over_when_all_trials_of_its_plan_are_whatever_the_budget() -> None:
    with manager_of(3) as manager:
        assert len(run_wave(manager, RandomActor(ACTIONS), budget_of(5, 10**9)).lengths) == 5


def test_tasks_are_drawn_for_the_trials_that_start_only_and_by_their_numbers() -> None:
    drawn: list[int] = []

    def task(number: int) -> NDArray[np.float64]:
        drawn.append(number)
        return np.full(2, number / 1000)

    with manager_of(3) as manager:
        result = run_wave(manager, RandomActor(ACTIONS), WavePlan(0, Phase.TRAIN, 7, 500, task, 50))
    assert drawn == list(range(7, 7 + len(result.lengths)))


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_round_in_which_a_row_is_late_changes_nothing_of_what_its_slot_remembers(
    memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also right after the first row of a trial, whose flag is still there."""
    monkeypatch.setattr(ParallelEnvManager, "may_lag", True)
    config = tiny_config()
    config.memory = MEMORIES[memory].Config(name=memory, hidden_size=16)

    def played(late: bool) -> list[bytes]:
        actor = AgentActor(learner.agent, device="cpu", deterministic=True).for_group(env, group)
        rng, found = np.random.default_rng(0), list[bytes]()
        for time in range(4):
            obs[:], rows.reward[:] = rng.standard_normal(obs.shape), rng.standard_normal(group.size)
            rows.episode_start[:] = rows.trial_start[:] = time == 0
            for there in (True, False) if late else (True,):
                rows.valid[:] = there
                with torch.inference_mode():
                    action = actor.act(noise).tobytes()
                found += [action] if there else []
        return found

    with Learner(config) as learner:
        env = learner.environments.training
        group = env.groups[0]
        rows, noise = group.rows, learner.agent.draw_noise(np.random.default_rng(0), group.size)
        obs: Any = rows.obs
        assert played(late=True) == played(late=False)


def test_what_an_agent_says_of_its_rows_is_kept_with_them() -> None:
    with Learner(tiny_config()) as learner:
        learner.agent.extras = ("log_prob",)
        shape: dict[str, Any] = learner.context.sizes.buffer_shape | {"extras": ("log_prob",)}
        replay = Replay(**shape)
        env, tasks = (
            learner.environments.training,
            learner.family.sample_tasks(np.random.default_rng(0), 5, "train"),
        )
        plan = WavePlan.of_tasks(0, Phase.TRAIN, 0, tasks)
        run_wave(env, AgentActor(learner.agent, device="cpu"), plan, sink=replay)
        batch = replay.whole(0, 5)
        with torch.no_grad():
            expected = learner.agent.unroll(batch).policy.log_prob(batch.action)
    torch.testing.assert_close(
        batch.extras["log_prob"][batch.valid], expected[batch.valid], rtol=1e-4, atol=1e-3
    )
    assert batch.extras["log_prob"][batch.valid].unique().numel() > 10


def test_a_list_is_played_in_its_order_whatever_its_first_number() -> None:
    plan = WavePlan.of_tasks(0, Phase.TRAIN, 10, TASKS)
    assert (plan.most, plan.budget) == (4, None)
    assert [trial_key(plan, index)[0] for index in range(4)] == TASKS.tolist()


def test_the_same_number_is_the_same_trial_in_any_plan() -> None:
    early = WavePlan(0, Phase.TRAIN, 3, 5, lambda number: TASKS[number % 4])
    late = WavePlan(0, Phase.TRAIN, 5, 1, lambda number: TASKS[number % 4], budget=7)
    assert trial_key(early, 2) == trial_key(late, 0)


def test_another_root_phase_or_number_is_another_trial() -> None:
    plans = [
        WavePlan.of_tasks(root, phase, first, TASKS)
        for root, phase, first in (
            (0, Phase.TRAIN, 0),
            (1, Phase.TRAIN, 0),
            (0, Phase.WARMUP, 0),
            (0, Phase.TRAIN, 1),
        )
    ]
    assert len({trial_key(plan, 0)[1:] for plan in plans}) == 4
