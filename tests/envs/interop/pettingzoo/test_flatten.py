"""FlattenMultiAgentWrapper: rows of all agents, checks of Gymnasium and SB3, and PPO of SB3 trains on it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from envs.interop.pettingzoo import FlattenMultiAgentWrapper
from tests.envs.interop.pettingzoo.rounds import Rounds

# The observation of a, b and c, and then whose choice counts.
A, B, C, COUNTS = slice(0, 2), slice(2, 3), slice(3, 8), slice(8, 11)


def test_agents_stand_side_by_side_and_the_dead_see_zeros() -> None:
    env = FlattenMultiAgentWrapper(Rounds())
    assert env.action_space == spaces.MultiDiscrete([3, 4, 5])
    obs, info = env.reset(seed=0)
    assert (
        obs[A].tolist() == [0, 3] and obs[C].tolist() == [1, 0, 0, 0, 0] and obs[COUNTS].tolist() == [1] * 3
    )
    # b dies: its last observation is in this row, and its choice does not count any more.
    obs, reward, *ends, info = env.step(np.array([1, 2, 3]))
    assert (reward, ends, info["rewards"]) == (2.0, [False, False], {"a": 1, "b": 2, "c": 3})
    assert obs[B] > 1 and obs[COUNTS].tolist() == [1, 0, 1] and info["infos"]["b"] == {"time": 1}
    obs, reward, *ends, info = env.step(np.array([1, 1, 1]))
    assert reward == pytest.approx(2 / 3) and info["rewards"] == {"a": 1, "c": 1}
    assert obs[B] == 0 and env.observation_space.contains(obs)


def test_masks_are_the_agents_own_and_those_who_do_not_count_have_their_first_choice() -> None:
    env = FlattenMultiAgentWrapper(Rounds())
    env.reset(seed=0)
    assert env.action_masks().tolist() == [True] * 3 + [True, False, True, True] + [True] * 5
    env.step(np.array([2, 1, 1]))
    assert env.action_masks().tolist() == [True, False, False] + [True] * 4 + [True] * 5


@pytest.mark.parametrize(
    ("choices", "ends"),
    [([[2, 2, 2]], (True, False)), ([[1, 2, 2], *[[1, 0, 0]] * 3], (False, True))],
)
def test_it_ends_with_the_last_agent_and_a_limit_is_a_truncation(choices: Any, ends: Any) -> None:
    env = FlattenMultiAgentWrapper(Rounds(), reward="sum")
    env.reset(seed=0)
    rows = [env.step(np.array(choice)) for choice in choices]
    assert [row[2:4] for row in rows] == [(False, False)] * (len(rows) - 1) + [ends]
    assert rows[0][1] == sum(choices[0])


@pytest.mark.filterwarnings("ignore:.*precision lowered")
def test_gymnasium_finds_no_fault() -> None:
    check_env(FlattenMultiAgentWrapper(Rounds()), skip_render_check=True)


def test_what_cannot_be_flattened_is_refused() -> None:
    with pytest.raises(TypeError, match="give an AECEnv or a ParallelEnv"):
        FlattenMultiAgentWrapper(object())
    with pytest.raises(ValueError, match="'mean' or 'sum'"):
        FlattenMultiAgentWrapper(Rounds(), reward="max")  # pyright: ignore[reportArgumentType]
    env = Rounds()
    env._acts["b"] = spaces.Box(-1, 1, (2,))  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="b has actions that cannot stand beside"):
        FlattenMultiAgentWrapper(env)
    env._seen["c"] = spaces.Sequence(spaces.Discrete(2))
    with pytest.raises(TypeError, match="What c sees has no fixed size"):
        FlattenMultiAgentWrapper(env)


# -- with the packages of others -----------------------------------------------------------------------------


def games() -> dict[str, Any]:
    """Environments in turns and at once, by others and by us."""
    make = pytest.importorskip("pettingzoo").make
    simple_push_v3 = pytest.importorskip("mpe2.simple_push_v3")
    simple_spread_v3 = pytest.importorskip("mpe2.simple_spread_v3")

    from envs.interop import grid_world

    return {
        "push": lambda: simple_push_v3.parallel_env(max_cycles=5),
        "push in turns": lambda: simple_push_v3.env(max_cycles=5),
        "spread": lambda: simple_spread_v3.parallel_env(max_cycles=5),
        "continuous": lambda: simple_spread_v3.parallel_env(max_cycles=5, continuous_actions=True),
        "tictactoe": lambda: make("aec", "classic/tictactoe-v3"),
        "rps": lambda: make("aec", "classic/rps-v2"),
        "grid": grid_world.parallel_env,
        "grid with deaths": lambda: grid_world.env(death_on_sight=True),
    }


NAMES = ("push", "push in turns", "spread", "continuous", "tictactoe", "rps", "grid", "grid with deaths")
every_game = pytest.mark.parametrize("name", NAMES)


def played(env: FlattenMultiAgentWrapper, steps: int = 40) -> list[Any]:
    """Observations, rewards and ends of a masked random walk over several episodes."""
    rng, said = np.random.default_rng(0), [env.reset(seed=4)[0]]
    for _ in range(steps):
        action: Any = rng.random(env.action_space.shape)
        if isinstance(env.action_space, spaces.MultiDiscrete):
            masks = np.split(env.action_masks(), np.cumsum(env.action_space.nvec)[:-1])
            action = np.array([rng.choice(np.flatnonzero(mask)) for mask in masks])
        obs, reward, terminated, truncated, _ = env.step(action)
        said += [obs, reward, terminated, truncated]
        if terminated or truncated:
            said.append(env.reset()[0])
    return said


@pytest.mark.peers
@every_game
def test_sb3_finds_no_fault(name: str) -> None:
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    env = FlattenMultiAgentWrapper(games()[name]())
    with warnings.catch_warnings():
        # Tic-tac-toe warns of illegal moves, and the checker does not know masks.
        warnings.simplefilter("ignore" if name == "tictactoe" else "error")
        # The bounds of actions are the environment's own; gymnasium.wrappers.RescaleAction changes them.
        warnings.filterwarnings("ignore", message="We recommend you to use a symmetric")
        checker.check_env(env, skip_render_check=True)


@pytest.mark.peers
@every_game
def test_a_seed_decides_all_episodes(name: str) -> None:
    make = games()[name]
    first, again = (played(FlattenMultiAgentWrapper(make())) for _ in range(2))
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.peers
def test_turns_and_cycles_give_the_same_rows() -> None:
    make = games()
    at_once, in_turns = (played(FlattenMultiAgentWrapper(make[name]())) for name in ("push", "push in turns"))
    assert at_once[0].shape == (8 + 19 + 2,)
    for one, other in zip(at_once, in_turns, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.peers
def test_a_game_of_turns_counts_one_choice_and_masks_the_board() -> None:
    env = FlattenMultiAgentWrapper(games()["tictactoe"](), reward="sum")
    env.reset(seed=0)
    first, second = env.action_masks()[:9], env.action_masks()[9:]
    assert first.all() and second.tolist() == [True] + [False] * 8
    # The first player takes the left column; what the other number says is ignored on its turns.
    for number, move in enumerate((0, 3, 1, 4)):
        obs, *_ = env.step(np.array([move, 8] if number % 2 == 0 else [8, move]))
        assert obs[-2:].tolist() == [number % 2, 1 - number % 2]
    assert env.action_masks()[:9].tolist() == [False, False, True, False, False, *[True] * 4]
    _, reward, terminated, truncated, info = env.step(np.array([2, 0]))
    assert (reward, terminated, truncated) == (0, True, False)
    assert info["rewards"] == {"player_1": 1, "player_2": -1}


@pytest.mark.peers
@pytest.mark.parametrize("processes", [False, True])
def test_ppo_of_sb3_trains(processes: bool) -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    vec_envs = pytest.importorskip("stable_baselines3.common.vec_env")
    make = games()["grid"]
    vec_env = vec_envs.SubprocVecEnv if processes else vec_envs.DummyVecEnv
    env = vec_env([lambda: FlattenMultiAgentWrapper(make())] * 2)
    model = sb3.PPO("MlpPolicy", env, n_steps=32, batch_size=32, n_epochs=1, device="cpu")
    before = [parameter.detach().clone() for parameter in model.policy.parameters()]
    model.learn(128)
    env.close()
    moved = [bool((old != new).any()) for old, new in zip(before, model.policy.parameters(), strict=True)]
    assert model.num_timesteps == 128 and any(moved)
