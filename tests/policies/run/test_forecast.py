"""What a run says at its start: iterations, gradient steps, and what there is to mind."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from configs.compose import load
from configs.schema import FOLDER
from envs.meta.make_env import make_family
from envs.remote.serving import end_served
from policies.agents.actions import actions_of
from policies.algorithms import ALGORITHMS
from policies.learner import Learner
from policies.run import forecast as forecasts
from policies.run.config import RECORD, read_record, save
from policies.run.forecast import (
    FEW_GRADIENT_STEPS,
    forecast,
    learned_digest,
    recorded_minutes,
    what_is_on,
)
from policies.run.progress import Counters, Stage
from policies.run.sizes import RunSizes, check_family
from tests.policies.test_learning import GATES
from tests.runs import tiny_config
from utils.options import OptionError

# What is known to learn: the gates that have to reach a return, and the committed experiments.
LEARN = [gate.words for gate in GATES if gate.least is not None]
LEARN += [f"experiment={file.stem}" for file in sorted(FOLDER.glob("experiment/*.yaml"))]


def lines(words: str, counters: Counters | None = None) -> list[str]:
    config = load(words.split())
    family = check_family(config)
    config = replace(config, env=family.config)
    return list(forecast(config, RunSizes.of(config, family), counters))


def lines_where_installed(words: str) -> list[str]:
    """Those of an environment whose package may be missing."""
    try:
        return lines(words)
    except OptionError as error:
        pytest.skip(f"{error}")
    finally:
        end_served()


def gradient_steps(plan: str) -> int:
    found = re.search(r"([\d,]+) gradient steps (?:in all|more)", plan)
    assert found is not None
    return int(found[1].replace(",", ""))


def test_on_policy_it_counts_waves_epochs_and_minibatches() -> None:
    """64 slots x 75 env steps; 3 epochs of 4 minibatches, of 16 trials each."""
    plan, _ = lines("env=Wind algorithm=PPO train.n_env_steps_total=960000 train.num_init_rollouts_pool=0")
    assert plan.split(None, 1)[1] == (
        "with trials of full length: 200 iterations of 4,800 env steps with 3 x 4 gradient steps each, over "
        "1,200 rows: 2,400 gradient steps in all"
    )


def test_off_policy_it_counts_updates_and_the_rows_that_a_replay_holds() -> None:
    plan, _, replay = lines("env=Gymnasium algorithm=SAC agent=Markov train.n_env_steps_total=10000")
    assert plan.endswith("with 200 gradient steps each, over 256 rows: 10,000 gradient steps in all")
    assert replay.split(None, 1)[1] == "the last 1,000,000 rows: 4,975 trials of full length"


def test_too_few_gradient_steps_are_a_warning() -> None:
    few = lines("env=Wind algorithm=PPO train.n_env_steps_total=48000 train.num_init_rollouts_pool=0")
    assert "Warning: at most 120 gradient steps in all teach hardly anything" in few[-1]
    assert "train.num_env_steps_per_iter" in few[-1]
    # CartPole by PPO as it once came: 12 gradient steps in each wave of 64 slots x 500 env steps.
    once = "env=Gymnasium env.id=CartPole-v1 algorithm=PPO agent=Markov num_slots=64 algorithm.epochs=3"
    once += " algorithm.minibatches=4 train.num_env_steps_per_iter=null train.n_env_steps_total=160000"
    plan, *others = lines(once)
    assert gradient_steps(plan) == 60 and others[-1].startswith("Warning: at most 60 gradient steps")


@pytest.mark.parametrize("words", LEARN)
def test_what_is_known_to_learn_is_not_warned_of(words: str) -> None:
    said = lines_where_installed(words)
    assert not [line for line in said if line.startswith("Warning")]


def test_few_gradient_steps_are_called_few_and_more_are_not() -> None:
    cart_pole = "env=Gymnasium env.id=CartPole-v1 algorithm=PPO train.n_env_steps_total=20000"
    few, *others = lines(f"{cart_pole} algorithm.epochs=6 algorithm.minibatches=8")
    assert few.endswith(": 192 gradient steps in all, which are few for all but easy tasks")
    assert not [line for line in others if line.startswith(("Warning", "Note"))]
    assert lines("env=Wind")[0].endswith("gradient steps in all")


@pytest.mark.parametrize("algorithm", ["PPO", "DiscreteSAC"])
def test_the_plan_is_one_of_full_trials_and_says_so_where_episodes_end_early(
    algorithm: str,
) -> None:
    config = tiny_config(
        algorithm=algorithm,
        family="MetaFrozenLake",
        env={"max_episode_steps": 40, "max_rollouts_per_task": 2},
        train={"num_env_steps_per_iter": 60, "n_env_steps_total": 900, "updates_per_step": 0.02},
    )
    with Learner(config) as learner:
        plan, budget, *_ = forecast(learner.config, learner.context.sizes)
        learner.training_loop().run()
        counters = learner.counters
    # With trials of 80 env steps; none of its waves starts a trial after 60, and so there are 15 at most.
    found = re.search(r"with trials of full length: .*?(\d) iterations of 240 env steps", plan)
    assert found is not None and int(found[1]) <= counters.iteration <= 15
    if algorithm == "PPO":
        assert gradient_steps(plan) == int(found[1]) * 3 * 3 <= counters.updates * 3 * 3
    else:  # off-policy they follow the env steps, however many iterations these are
        assert abs(counters.updates - gradient_steps(plan)) <= 298 * 0.02 + 1
    # The budget is passed by less than a wave may take: 60 env steps, and 3 trials that have just begun.
    assert "up to 298 env steps more than train.n_env_steps_total=900" in budget
    assert 900 <= counters.env_steps <= 900 + 298


def test_minibatches_that_cannot_be_made_are_said() -> None:
    ppo = "env=Wind algorithm=PPO train.num_init_rollouts_pool=0"
    words = f"{ppo} algorithm.minibatches=99 num_slots=8 train.n_env_steps_total=1000000"
    assert "algorithm.minibatches=99 makes 8 here" in lines(words)[-1]
    assert len(lines(f"{words} agent=Markov")) == 2, "rows are mixed, of which there are enough"


def test_what_to_do_about_minibatches_is_what_the_run_can_do() -> None:
    ppo = "env=Wind algorithm=PPO algorithm.minibatches=9999 num_slots=8 train.n_env_steps_total=1000000"
    assert lines(f"{ppo} memory=Transformer")[-1].endswith("columns of rows to mix: use more slots.")
    assert lines(ppo)[-1].endswith("set algorithm.window, or use more slots.")
    assert lines(f"{ppo} agent=Markov")[-1].endswith("there are no more rows to mix.")


@pytest.mark.parametrize("words, least", [("algorithm=DQN", 1_000), ("algorithm=PPO", 0)])
def test_a_pool_that_may_take_all_leaves_it_open_how_much_is_learned(words: str, least: int) -> None:
    """Random CartPole falls early, and so the agent plays on; the pool is counted by the time limit."""
    cart_pole = "env=Gymnasium env.id=CartPole-v1 agent=Markov train.n_env_steps_total=2000"
    plan, *_, warning = lines(f"{cart_pole} {words}")
    assert "at least 0 iterations of " in plan and f": at least {least:,} gradient steps" in plan
    assert warning.startswith("Warning: the random pool") and "may take 4,000 env steps" in warning


def test_an_epsilon_that_does_not_come_to_its_end_is_said() -> None:
    words = "env=GridNavi algorithm=DQN train.n_env_steps_total=100000 algorithm.epsilon_env_steps="
    assert lines(f"{words}200000")[-1].startswith("Warning: epsilon falls over ")
    assert not [line for line in lines(f"{words}null") if "epsilon" in line]


def test_that_a_run_may_pass_its_budget_is_said_however_little_it_is() -> None:
    wind = "env=Wind algorithm=PPO train.num_init_rollouts_pool=0 train.n_env_steps_total=10000000"
    assert lines(wind)[1].endswith("up to 9,598 env steps more than train.n_env_steps_total=10,000,000")
    sac = "env=Gymnasium algorithm=SAC agent=Markov train.n_env_steps_total=10000"
    assert lines(sac)[1].endswith("up to 199 env steps more than train.n_env_steps_total=10,000")
    over = lines(sac, Counters(stage=Stage.collect, env_steps=10_000, updates=10_000))
    assert not [line for line in over if "more than" in line], "no wave is left"


def test_waves_of_full_trials_in_all_slots_follow_until_the_env_steps_are_taken() -> None:
    """8 slots x 75 env steps, and 1,000 are asked for."""
    plan = lines("env=Wind num_slots=8 train.num_env_steps_per_iter=1000")[0]
    assert " iterations of 1,200 env steps" in plan


def test_very_many_gradient_steps_are_said_to_take_long() -> None:
    sac = "env=AntDir algorithm=SAC train.n_env_steps_total=2000000"
    plan, *_, note = lines(f"{sac} agent=Markov")
    assert gradient_steps(plan) == 2_003_200
    assert note.startswith("Note: 2,003,200 gradient steps in all take long: lower train.replay_ratio")
    assert "train.updates_per_step" in lines(f"{sac} train.updates_per_step=1")[-1]
    assert "algorithm.epochs" in lines("env=Wind algorithm.epochs=3000")[-1]


def test_the_random_pool_comes_first_and_counts_as_env_steps_and_as_updates() -> None:
    """20 trials of 2 x 20 env steps, and 24 such trials in each wave."""
    words = "env=PointRobot algorithm=SAC train.num_init_rollouts_pool=20 train.num_rollouts_per_iter=24"
    words += " train.updates_per_step=0.5"
    plan, *_ = lines(f"{words} train.n_env_steps_total=10400")
    assert plan.startswith(
        "plan         with trials of full length: up to 800 env steps of random actions, then 10 iterations "
    )
    assert plan.endswith(": 5,200 gradient steps in all")
    # What it takes by itself may be all that a run was to take.
    plan, *warnings = lines(f"{words} train.n_env_steps_total=100")
    assert "800 env steps of random actions, then at least 0 iterations" in plan
    assert plan.endswith(": at least 50 gradient steps in all")
    assert [line for line in warnings if "num_init_rollouts_pool=20 trials may take 800 env steps" in line]


def test_a_run_that_goes_on_is_told_what_is_left_of_it() -> None:
    """The demo with waves of 64 trials, after 19: 4,000 env steps of the pool and 18 waves of 2,560, say."""
    words = "env=PointRobot num_slots=64 train.n_env_steps_total=100000"
    made = Counters(stage=Stage.collect, env_steps=50_080, updates=18, warmup_trials=100)
    plan, _ = lines(words, made)
    assert plan.split(None, 1)[1] == (
        "with trials of full length: 50,080 env steps and 18 updates are made; now 20 iterations of 2,560 "
        "env steps with 3 x 4 gradient steps each, over 640 rows: 240 gradient steps more, which are few for "
        "all but easy tasks"
    )
    # What teaches is all that was made: here 38 updates of 3 x 4 gradient steps, or 23 of them.
    assert lines(words, replace(made, updates=3))[-1].startswith("Warning: at most 276 gradient steps in all")

    # Stopped between a wave and its update, and in the middle of the pool.
    due = replace(made, stage=Stage.update, updates_due=1)
    assert ": 252 gradient steps more" in lines(words, due)[0]
    pool = Counters(warmup_trials=60, env_steps=2_400)
    assert (
        "are made; now up to 1,600 env steps of random actions, then 38 iterations" in lines(words, pool)[0]
    )


def test_off_policy_the_updates_that_are_left_are_those_of_the_env_steps_that_are_left() -> None:
    words = "env=Gymnasium algorithm=SAC agent=Markov train.n_env_steps_total=10000"
    made = Counters(stage=Stage.collect, env_steps=4_000, updates=4_000)
    plan, *_ = lines(words, made)
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
    finally:
        end_served()
    kind = actions_of(make_family(config.env).spec.action_space).kind
    for name in [name for name, algorithm in ALGORITHMS.items() if kind in algorithm.serves]:
        plan, *others = lines(f"env={env} algorithm={name}")
        assert gradient_steps(plan) >= FEW_GRADIENT_STEPS, name
        assert not [line for line in others if line.startswith("Warning")], name


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


def test_a_new_option_that_is_off_leaves_a_hash_as_it_was() -> None:
    before = {"agent": {"hidden": [0, False], "size": 0}, "name": ""}
    after = {
        "agent": {"new": False, "hidden": [0, False], "size": 0, "other": None},
        "name": "",
        "more": None,
    }
    assert what_is_on(after) == before == what_is_on(before)
    assert what_is_on({"agent": {"new": True}}) != what_is_on({"agent": {}})
