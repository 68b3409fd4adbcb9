"""The player: stepped by hand an agent does what it does in evaluation, number for number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from envs.base import map_obs
from envs.meta.make_env import make_env, make_parallel_env
from envs.meta.third_party.gymnasium_family import GymnasiumFamily
from envs.meta.toy.point_robot import PointStart
from envs.parallel_env_manager import ParallelEnvManager
from policies.agents import AGENT_ARCHS
from policies.agents.base import Arch
from policies.algorithms import ALGORITHMS
from policies.collection.actors import AgentActor
from policies.evaluation import evaluate_list
from policies.learner import Learner
from policies.memory import MEMORIES
from policies.play import Player, PlayError, load_agent, save_agent
from tests.policies.play.toy import LENGTHS, Answering, a_player, agent_file
from tests.runs import tiny_config
from utils.options import OptionError
from utils.seeding import Phase, episode_seeds, trial_seed

SLOTS = 3
# How much an action may change with the number of slots.
TOLERANCE = 1e-5
# One family for each kind of actions; falls make trials of different lengths.
FAMILIES = {
    "continuous": "PointRobot",
    "discrete": "GridNavi",
    "multi_discrete": "GridWorldMultiAgent",
}


def combinations() -> list[Any]:
    """Every agent, memory and algorithm that go together; without a memory it does not matter which."""
    found = []
    for algorithm, kind in ALGORITHMS.items():
        for arch in AGENT_ARCHS:
            config = tiny_config(arch=arch).agent
            if any(kind.problems(kind.Config(name=algorithm), config)):
                continue
            for memory in MEMORIES if arch is not Arch.Markov else ["GRU"]:
                families = [FAMILIES[one.name] for one in kind.serves]
                found += [
                    pytest.param(algorithm, arch, memory, name, id=f"{algorithm}-{arch.name}-{memory}-{name}")
                    for name in families
                ]
    return found


def a_learner(algorithm: str, arch: Arch, memory: str, family: str, **options: Any) -> Learner:
    """A learner with a normaliser that has seen rows, and parameters that make actions differ."""
    changes = {"normalise_obs": True, "normalise_reward": True} | options.pop("agent", {})
    config = tiny_config(family, arch, algorithm=algorithm, agent=changes, num_slots=SLOTS, seed=3, **options)
    object.__setattr__(config, "memory", MEMORIES[memory].Config(name=memory, hidden_size=16))
    learner = Learner(config)
    learner.collect_rollouts_parallel(2, random_actions=True)
    with torch.no_grad():
        for parameter in learner.agent.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    return learner


def by_hand(
    player: Player,
    manager: ParallelEnvManager,
    tasks: np.ndarray,
    seeds: list[int],
    beside: Player | None = None,
) -> np.ndarray:
    """[n, k] returns of one trial in each slot; a player of one slot, `beside`, would act alike in slot 0."""
    returns = np.zeros((len(tasks), manager.episodes_per_trial))
    rows = manager.reset(tasks, seeds)
    slots = np.arange(len(tasks))
    while manager.running.any():
        actions = player.act(rows.obs, rows.reward, rows.ended)
        if beside is not None:
            first = map_obs(lambda part: part[:1], rows.obs)
            alone = beside.act(first, rows.reward[:1], rows.ended[:1])
            np.testing.assert_allclose(alone[0], actions[0], rtol=0, atol=TOLERANCE)
        rows = manager.step(actions)
        returns[slots, manager.episode] += np.where(rows.valid, rows.reward, 0.0)
    return returns


@pytest.mark.parametrize(("algorithm", "arch", "memory", "family"), combinations())
def test_playing_by_hand_gives_the_returns_of_an_evaluation(
    algorithm: str, arch: Arch, memory: str, family: str, tmp_path: Path
) -> None:
    file = tmp_path / "agent.pt"
    with a_learner(algorithm, arch, memory, family) as learner:
        manager, tasks, seed = learner.eval_env, learner.eval_tasks, learner.config.seed
        save_agent(learner, file)
        seeds = [trial_seed(seed, Phase.EVALUATE, number) for number in range(SLOTS)]
        for deterministic in (True, False):
            actor = AgentActor(learner.agent, "cpu", deterministic)
            expected = evaluate_list(manager, actor, tasks, seed=seed).returns
            player = load_agent(file, n=SLOTS, deterministic=deterministic)
            beside = load_agent(file, n=1, deterministic=deterministic)
            np.testing.assert_array_equal(by_hand(player, manager, tasks, seeds, beside), expected)


def answering_manager() -> ParallelEnvManager:
    """Two slots, of which the first trials have 9 and 7 env steps."""
    first = iter((0, 0, 2))  # the family builds one to read what it is
    family = GymnasiumFamily.from_factory(
        lambda: Answering(next(first)), max_episode_steps=6, max_rollouts_per_task=2
    )
    return ParallelEnvManager(family, 2, episodes_per_trial=2, seed=0)


def test_a_slot_whose_trial_is_over_waits_for_the_others(tmp_path: Path) -> None:
    player, tasks = a_player(tmp_path, n=2), np.zeros((2, 1))
    agent = player.record.build(14, "cpu")
    with answering_manager() as manager:
        expected = evaluate_list(manager, AgentActor(agent, "cpu", deterministic=True), tasks, seed=0).returns
    with answering_manager() as manager:
        np.testing.assert_array_equal(by_hand(player, manager, tasks, [0, 1]), expected)


def test_only_a_trial_forgets(tmp_path: Path) -> None:
    player, fresh = a_player(tmp_path), a_player(tmp_path)
    obs, steps = np.array([0.3, -0.3]), ((0.0, False), (1.0, False), (2.0, True))
    first, second, third = ([player.act(obs, *step) for step in steps] for _ in range(3))
    assert not np.array_equal(first[0], second[0])
    np.testing.assert_array_equal(first[:2], third[:2])
    np.testing.assert_array_equal(first[:2], [fresh.act(obs, *step) for step in steps[:2]])


def play_plainly(player: Player, env: Answering, episodes: int) -> None:
    """Anybody's loop over a Gymnasium environment, one episode after the other."""
    for _ in range(episodes):
        (obs, info), reward, done = env.reset(), 0.0, False
        while not done:
            action = player.act(obs, reward, done, info)
            obs, reward, terminated, truncated, info = env.step(action)
            done = terminated or truncated
        assert player.act(obs, reward, done, info) is None


def test_a_plain_loop_shows_the_rows_of_a_manager(tmp_path: Path) -> None:
    made: list[Answering] = []

    def make() -> Answering:
        made.append(Answering())
        return made[-1]

    family = GymnasiumFamily.from_factory(make, max_episode_steps=6, max_rollouts_per_task=2)
    player = a_player(tmp_path)
    with ParallelEnvManager(family, 1, episodes_per_trial=2, seed=0) as manager:
        for _ in range(2):
            rows = manager.reset()
            while manager.running.any():
                rows = manager.step(player.act(rows.obs, rows.reward, rows.ended))
            player.act(rows.obs, rows.reward, rows.ended)
    env, other = Answering(), a_player(tmp_path)
    play_plainly(other, env, episodes=4)
    assert len(env.seen) == sum(LENGTHS) and env.seen == made[-1].seen
    np.testing.assert_array_equal(player.state["hidden"], other.state["hidden"])


def test_a_loop_that_resets_before_it_shows_the_last_observation_cannot_go_on(tmp_path: Path) -> None:
    """Its observation with `done=True` is the first of the next episode: there is no action to step with."""
    player, env = a_player(tmp_path), Answering()
    (obs, info), reward, done = env.reset(), 0.0, False
    with pytest.raises(AssertionError):
        while True:
            obs, reward, done, _, info = env.step(player.act(obs, reward, done, info))
            if done:
                obs, info = env.reset()


def test_an_environment_of_another_library_is_played_in_its_own_spaces(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Pendulum takes torques in [-2, 2], to which the agent's actions in [-1, 1] were stretched."""
    env_options = {"id": "Pendulum-v1", "max_episode_steps": 20, "num_eval_tasks": 1}
    with Learner(tiny_config("Gymnasium", algorithm="SAC", env=env_options, num_slots=1)) as learner:
        actor = AgentActor(learner.agent, "cpu", deterministic=True)
        expected = evaluate_list(learner.eval_env, actor, learner.eval_tasks, seed=0).returns
        save_agent(learner, tmp_path / "agent.pt")
    load_agent(tmp_path / "agent.pt")
    assert "The actions of Pendulum-v1 were shown to this agent as Box(-1.0, 1.0" in caplog.text

    env = gymnasium.make("Pendulum-v1", max_episode_steps=20)
    player = load_agent(tmp_path / "agent.pt", env=env)
    seed = episode_seeds(np.array([trial_seed(0, Phase.EVALUATE, 0)], np.uint64), np.array([0]))[0]
    (obs, info), reward, done = env.reset(seed=int(seed % 2**31)), 0.0, False
    total = 0.0
    while not done:
        action = player.act(obs, reward, done, info)
        assert env.action_space.contains(action)
        obs, reward, terminated, truncated, info = env.step(action)
        done, total = terminated or truncated, total + float(reward)
    env.close()
    assert total == expected[0, 0]


def vector(mode: AutoresetMode) -> SyncVectorEnv:
    return SyncVectorEnv([Answering, lambda: Answering(1)], autoreset_mode=mode)


def answers(env: SyncVectorEnv) -> list[list[tuple[float, ...]]]:
    """What the first two trials of each copy were asked."""
    return [[one for one in copy.seen if one[0] < 4] for copy in env.envs]  # pyright: ignore


@pytest.mark.parametrize("stable_baselines", [False, True])
def test_vector_environments_that_reset_themselves_show_the_same_rows(
    tmp_path: Path, stable_baselines: bool
) -> None:
    """In the step after the end, or in the same one, where the last observation is in the infos."""
    seen = []
    for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
        env, player = vector(mode), a_player(tmp_path, n=2)
        (obs, infos), reward, done = env.reset(), np.zeros(2), np.zeros(2, np.bool_)
        for _ in range(24):
            actions = player.act(obs, reward, done, infos)
            obs, reward, terminated, truncated, infos = env.step(actions)
            done = terminated | truncated
            if stable_baselines and mode is AutoresetMode.SAME_STEP:
                finals = infos.get("final_obs", [None, None])
                infos = [{"terminal_observation": final} for final in finals]
        seen.append(answers(env))
        env.close()
    assert seen[0] == seen[1] and len(seen[0][0]) == sum(LENGTHS)


def test_another_batch_size_changes_last_bits_only(tmp_path: Path) -> None:
    one, many = a_player(tmp_path), a_player(tmp_path, n=5)
    rng = np.random.default_rng(0)
    for _ in range(6):
        obs = rng.normal(size=2)
        np.testing.assert_allclose(many.act(np.tile(obs, (5, 1)))[3], one.act(obs), rtol=0, atol=TOLERANCE)
        one.reset()
        many.reset()


def test_reset_forgets_these_slots_only(tmp_path: Path) -> None:
    player, fresh = a_player(tmp_path, n=3), a_player(tmp_path, n=3)
    obs = np.arange(6.0).reshape(3, 2)
    for reward in (0.0, 1.0, 1.0):
        player.act(obs, reward)
    before = player.state["hidden"]
    player.reset([1])
    assert not player.state["hidden"][1].any()
    np.testing.assert_array_equal(player.state["hidden"][[0, 2]], before[[0, 2]])
    actions, expected = player.act(obs, [1.0, 0.0, 1.0]), fresh.act(obs)
    np.testing.assert_array_equal(actions[1], expected[1])
    assert not np.array_equal(actions[0], expected[0])
    assert player.episode.tolist() == [0, 0, 0]
    # A mask marks slots, as Gymnasium's do; neither it nor a fraction is ever read as the number of a slot.
    player.reset([False, False, True])
    assert [leaf.any() for leaf in player.state["hidden"]] == [True, True, False]
    player.reset([])
    for wrong in (3, [0.0], [True], "all"):
        with pytest.raises(PlayError, match="names no slots of the 3"):
            player.reset(wrong)  # pyright: ignore[reportArgumentType]
    assert player.state["hidden"][0].any()


def test_actions_are_legal_and_the_agent_remembers_them_as_they_were_chosen(tmp_path: Path) -> None:
    player = a_player(tmp_path)
    player.act(np.array([30.0, -40.0]))
    assert np.abs(player._chosen).max() > 1
    action = player.act(np.array([30.0, -40.0]), 1.0)
    assert player.action_space.contains(action)
    assert np.abs(player._rows.rows.prev_action).max() > 1


def test_a_trial_of_make_env_is_played_with_its_flags(tmp_path: Path) -> None:
    """`done` is that of the trial, or that of the inner episodes: the flag tells of the new one."""
    states = []
    for inner in (False, True):
        player, env = a_player(tmp_path), make_env("PointRobot", 2, seed=0, horizon=6)
        (obs, info), reward, done, over = env.reset(), 0.0, False, False
        while not over:
            obs, reward, terminated, truncated, info = env.step(player.act(obs, reward, done, info))
            over = terminated or truncated
            done = info["terminated"] or info["truncated"] if inner else over
        assert player.act(obs, reward, done) is None and player.episode.tolist() == [1]
        states.append(player.state["hidden"])
        env.close()
    np.testing.assert_array_equal(*states)


@pytest.mark.parametrize(
    ("family", "env"),
    [
        ("PointRobot", {"radius": 0.45, "start": PointStart.fixed, "oracle": True}),
        ("GridNavi", {"size": 7, "max_rollouts_per_task": 3}),
    ],
)
def test_the_options_of_a_player_make_the_environment_of_its_training(
    family: str, env: dict[str, Any], tmp_path: Path
) -> None:
    """All of them, as an agent of the demo returns nothing in the environment of the family's defaults."""
    config = tiny_config(family, env=env).env
    player = load_agent(agent_file(tmp_path, family, env=env), n=2)
    with make_parallel_env(family, num_workers=1, num_envs=2, **player.env_options) as manager:
        assert manager.family.config == config
        rows = manager.reset()
        while manager.running.any():
            info = {"task": rows.task}
            rows = manager.step(player.act(rows.obs, rows.reward, rows.ended, info))
    # One environment, alone and by Gymnasium's own maker, takes the same options.
    for made in (
        make_env(family, **player.env_options),
        gymnasium.make(f"Retrial/{family}-v1", **player.env_options),
    ):
        assert made.unwrapped.get_wrapper_attr("_manager").family.config == config
        made.close()
    # Other lengths of a trial are those that the player was loaded for.
    longer = load_agent(tmp_path / "agent.pt", episodes=5, horizon=9).env_options
    assert (longer["episodes_per_task"], longer["horizon"]) == (5, 9)


def test_an_agent_that_is_shown_its_task_finds_it_in_the_info(tmp_path: Path) -> None:
    player = load_agent(agent_file(tmp_path, env={"oracle": True}))
    obs, task = np.array([0.5, -0.5]), np.array([1.0, 0.0])
    with pytest.raises(PlayError, match="shown its task"):
        player.act(obs)
    action = player.act(obs, info={"task": task})
    player.reset()
    np.testing.assert_array_equal(action, player.act(np.concatenate([obs, task])))
    player.reset()
    np.testing.assert_array_equal(action, player.act(np.concatenate([obs, task, [0.0]])))


def test_an_agent_function_hands_rewards_on_or_refuses(tmp_path: Path) -> None:
    obs = np.array([0.5, -0.5])
    agent_fn = a_player(tmp_path).as_agent_fn()
    assert agent_fn.reads_rewards
    with pytest.raises(PlayError, match="is handed none: step it by"):
        agent_fn(obs, False)
    np.testing.assert_array_equal(agent_fn(obs, False, reward=0.0), a_player(tmp_path).act(obs))

    blind = load_agent(agent_file(tmp_path, agent={"reward_embedding": 0})).as_agent_fn()
    actions = [blind(obs, done) for done in (False, False, True, False)]
    assert actions[2] is None and not np.array_equal(actions[0], actions[1])


def test_threads_of_torch_are_left_as_they_were(tmp_path: Path) -> None:
    player, threads = a_player(tmp_path), torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    player.act(np.zeros(2))
    assert torch.get_num_threads() == threads + 1
    torch.set_num_threads(threads)


@pytest.mark.parametrize("number", [-1, 2.5, "3", True])
@pytest.mark.parametrize("name", ["n", "episodes", "horizon", "seed"])
def test_numbers_that_cannot_be_are_refused_in_one_sentence(name: str, number: Any, tmp_path: Path) -> None:
    with pytest.raises(
        OptionError, match=f"load_agent: {name}={number!r} must be a whole number of at least"
    ):
        load_agent(tmp_path, **{name: number})


def test_a_device_that_torch_does_not_have_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="torch finds no device='gpu0' here"):
        load_agent(tmp_path, device="gpu0")


def test_the_best_agent_of_a_run_is_played_on_request(tmp_path: Path) -> None:
    """The best one is what the first evaluation has kept; the last one has learned on."""
    run, first = tmp_path / "run", tmp_path / "first.pt"
    with Learner(tiny_config(), run) as learner:
        learner.save()
        with pytest.raises(OptionError, match="no best agent, since it was not evaluated yet"):
            load_agent(run, checkpoint="best")
        learner.keep_best(learner.evaluate())
        save_agent(learner, first)
        learner.collect_rollouts_parallel(3, random_actions=True)
        learner.update(20)
        learner.save()
    kept, best, last = (
        player.act(np.ones(2))
        for player in (load_agent(first), load_agent(run, checkpoint="best"), load_agent(run))
    )
    np.testing.assert_array_equal(best, kept)
    assert not np.array_equal(best, last)
    with pytest.raises(OptionError, match=r"no checkpoint 'bst'\. Did you mean 'best'\?"):
        load_agent(run, checkpoint="bst")


def test_a_player_saves_its_agent_alone(tmp_path: Path) -> None:
    player = a_player(tmp_path)
    save_agent(player, tmp_path / "copy.pt")
    again = load_agent(tmp_path / "copy.pt")
    np.testing.assert_array_equal(player.act(np.ones(2)), again.act(np.ones(2)))
