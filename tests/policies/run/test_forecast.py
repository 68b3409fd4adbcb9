"""What a run says at its start: iterations, gradient steps, and what there is to mind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from configs.compose import load
from configs.schema import FOLDER
from envs.meta.make_env import make_family
from policies.agents.actions import actions_of
from policies.algorithms import ALGORITHMS
from policies.run import forecast as forecasts
from policies.run.config import RECORD, read_record, save
from policies.run.forecast import forecast, learned_digest, recorded_minutes
from policies.run.progress import Counters, Stage
from policies.run.sizes import RunSizes, check_family
from utils.options import OptionError


def lines(words: str, counters: Counters | None = None) -> list[str]:
    config = load(words.split())
    family = check_family(config)
    config = replace(config, env=family.config)
    return list(forecast(config, RunSizes.of(config, family), counters))


def test_on_policy_it_counts_waves_epochs_and_minibatches() -> None:
    """64 slots x 75 env steps; 3 epochs of 4 minibatches, of 16 trials each."""
    (plan,) = lines("env=Wind algorithm=PPO train.n_env_steps_total=960000 train.num_init_rollouts_pool=0")
    assert plan.split(None, 1)[1] == (
        "200 iterations of 4,800 env steps with 3 x 4 gradient steps each, over 1,200 rows: "
        "2,400 gradient steps in all"
    )


def test_off_policy_it_counts_updates_and_the_rows_that_a_replay_holds() -> None:
    plan, replay = lines("env=Gymnasium algorithm=SAC agent=Markov train.n_env_steps_total=10000")
    assert plan.endswith("with 200 gradient steps each, over 256 rows: 10,000 gradient steps in all")
    assert replay.split(None, 1)[1] == "the last 1,000,000 rows: 4,975 trials of full length"


def test_too_few_gradient_steps_are_a_warning() -> None:
    few = lines("env=Wind algorithm=PPO train.n_env_steps_total=48000 train.num_init_rollouts_pool=0")
    assert "Warning: 120 gradient steps in all teach hardly anything" in few[-1]
    assert "train.num_env_steps_per_iter" in few[-1]


def test_minibatches_that_cannot_be_made_and_a_budget_that_is_passed_are_said() -> None:
    ppo = "env=Wind algorithm=PPO train.num_init_rollouts_pool=0"
    words = f"{ppo} algorithm.minibatches=99 num_slots=8 train.n_env_steps_total=1000000"
    assert "algorithm.minibatches=99 makes 8 here" in lines(words)[-1]
    assert len(lines(f"{words} agent=Markov")) == 1, "rows are mixed, of which there are enough"
    assert "this run may take up to 4,600 env steps more" in "".join(
        lines(f"{ppo} train.n_env_steps_total=5000")
    )


def test_the_random_pool_comes_first_and_counts_as_env_steps_and_as_updates() -> None:
    """20 trials of 2 x 20 env steps, and 24 such trials in each wave."""
    words = "env=PointRobot algorithm=SAC train.num_init_rollouts_pool=20 train.num_rollouts_per_iter=24"
    words += " train.updates_per_step=0.5"
    plan, _, *_ = lines(f"{words} train.n_env_steps_total=10400")
    assert plan.startswith(
        "plan         800 env steps of random actions, then 10 iterations of 960 env steps"
    )
    assert plan.endswith(": 5,200 gradient steps in all")
    # What it takes by itself may be all that a run was to take: then the pool is to blame, not the waves.
    plan, _, *warnings = lines(f"{words} train.n_env_steps_total=100")
    assert "800 env steps of random actions, then 0 iterations" in plan and "400 gradient steps" in plan
    assert [line for line in warnings if "num_init_rollouts_pool=20 trials takes up to 800 env steps" in line]
    assert not [line for line in warnings if "waves are whole" in line]


def test_a_run_that_goes_on_is_told_what_is_left_of_it() -> None:
    """The demo after 19 of its waves: 4,000 env steps of the pool and 18 waves of 2,560, say."""
    words = "env=PointRobot train.n_env_steps_total=100000"
    made = Counters(stage=Stage.collect, env_steps=50_080, updates=18, warmup_trials=100)
    plan, warning = lines(words, made)
    assert plan.split(None, 1)[1] == (
        "50,080 env steps and 18 updates are made; now 20 iterations of 2,560 env steps with "
        "3 x 4 gradient steps each, over 640 rows: 240 gradient steps more"
    )
    # What teaches is all that was made: here 38 updates of 3 x 4 gradient steps.
    assert warning.startswith("Warning: 456 gradient steps in all")

    # Stopped between a wave and its update, and in the middle of the pool.
    due = replace(made, stage=Stage.update, updates_due=1)
    assert lines(words, due)[0].endswith(": 252 gradient steps more")
    pool = Counters(warmup_trials=60, env_steps=2_400)
    assert "are made; now 1,600 env steps of random actions, then 38 iterations" in lines(words, pool)[0]


def test_off_policy_the_updates_that_are_left_are_those_of_the_env_steps_that_are_left() -> None:
    words = "env=Gymnasium algorithm=SAC agent=Markov train.n_env_steps_total=10000"
    made = Counters(stage=Stage.collect, env_steps=4_000, updates=4_000)
    plan, _ = lines(words, made)
    assert "4,000 env steps and 4,000 updates are made; now 30 iterations of 200 env steps" in plan
    assert plan.endswith(": 6,000 gradient steps more")


def test_a_pool_that_teaches_nothing_is_not_counted() -> None:
    words = "env=Wind algorithm=PPO train.num_init_rollouts_pool=400 train.n_env_steps_total=960000"
    assert "random actions" not in lines(f"{words} agent.normalise_obs=false agent.normalise_reward=false")[0]
    assert "30,000 env steps of random actions" in lines(f"{words} agent.normalise_obs=true")[0]


@pytest.mark.parametrize("env", sorted(file.stem for file in FOLDER.glob("env/*.yaml")))
def test_no_environment_is_given_too_few_gradient_steps_by_any_algorithm(env: str) -> None:
    """As they come: the file of the environment, and its recipe with the algorithm where there is one."""
    try:
        config = load([f"env={env}"])
    except OptionError as error:
        pytest.skip(f"{error}")
    kind = actions_of(make_family(config.env).spec.action_space).kind
    for name in [name for name, algorithm in ALGORITHMS.items() if kind in algorithm.serves]:
        said = lines(f"env={env} algorithm={name}")
        assert not [line for line in said if line.startswith("Warning")], name


def test_what_was_recorded_with_the_same_settings_is_known_whatever_the_seed_and_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load(["env=RepeatedGame"])
    save(config, tmp_path)
    digest = learned_digest(read_record(tmp_path / RECORD))
    (tmp_path / "minutes.json").write_text(json.dumps({digest: 1.5}))
    monkeypatch.setattr(forecasts, "MINUTES", tmp_path / "minutes.json")
    assert recorded_minutes(config) == 1.5
    assert recorded_minutes(load(["env=RepeatedGame", "seed=7", "num_parallel_workers=2"])) == 1.5
    assert recorded_minutes(load(["env=RepeatedGame", "train.n_env_steps_total=1000"])) is None
    monkeypatch.setattr(forecasts, "MINUTES", tmp_path / "nothing.json")
    assert recorded_minutes(config) is None
