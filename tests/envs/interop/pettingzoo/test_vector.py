"""AsyncPettingZooVecEnv: the data of a plain loop, from any workers, after faults; AgileRL's conventions."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError

from envs.backends.base import BackendConfig, OnFault
from envs.interop.pettingzoo import AsyncPettingZooVecEnv
from tests.envs.interop.pettingzoo.rounds import Rounds

SHAPES = {"a": ((2,), np.int16), "c": ((1,), np.int64)}


def made(make: Callable[[], Any] = Rounds, n: int = 3, **options: Any) -> AsyncPettingZooVecEnv:
    arguments: dict[str, Any] = {"num_workers": 1} | options
    return AsyncPettingZooVecEnv([make] * n, **arguments)


def walk(env: AsyncPettingZooVecEnv, steps: int = 12, seed: Any = 5) -> list[Any]:
    """Everything that a random walk returns."""
    rng = np.random.default_rng(0)
    said: list[Any] = [env.reset(seed=seed)]
    for _ in range(steps):
        actions = {
            agent: rng.integers(int(space.n), size=env.num_envs) + int(space.start)
            for agent in env.agents
            if isinstance(space := env.single_action_space(agent), spaces.Discrete)
        }
        said.append(env.step(actions))
    env.close()
    return said


def assert_same(one: Any, other: Any) -> None:
    """Equal to the byte, in dicts and tuples of arrays."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        one, other = list(one.values()), list(other.values())
    if isinstance(one, (list, tuple)):
        for left, right in zip(one, other, strict=True):
            assert_same(left, right)
    else:
        np.testing.assert_array_equal(one, other, strict=True)


def test_every_agent_has_its_own_type_and_shape() -> None:
    env = made()
    obs, infos = env.reset(seed=0)
    assert env.agents == ["a", "b", "c"] and env.num_agents == 3
    for agent, (shape, dtype) in SHAPES.items():
        assert obs[agent].shape == (3, *shape) and obs[agent].dtype == dtype
    assert obs["b"].keys() == {"observation", "action_mask"} and obs["b"]["action_mask"].dtype == np.int8
    assert env.action_space("c") == spaces.MultiDiscrete([5, 5, 5]) and "_a" in infos
    env.close()


def test_the_dead_have_no_rows_and_flags_stay_booleans() -> None:
    env = made(n=2, info_names=("time",))
    env.reset(seed=0)
    env.step({"a": [1, 1], "b": [2, 1], "c": [1, 1]})
    obs, rewards, terminations, truncations, infos = env.step({"a": [1, 1], "b": [0, 1], "c": [1, 1]})
    assert np.isnan(rewards["b"]).tolist() == [True, False] and rewards["a"].tolist() == [1, 1]
    assert np.isnan(obs["b"]["observation"]).ravel().tolist() == [True, False]
    assert terminations["b"].tolist() == [True, False] and truncations["b"].dtype == np.bool_
    assert infos["alive"]["b"].tolist() == [False, True] and infos["a"]["time"].tolist() == [2, 2]
    assert infos["b"]["_time"].tolist() == infos["_b"].tolist() == [False, True]
    env.close()


def test_the_next_episode_begins_in_the_step_and_the_last_observations_are_kept() -> None:
    env = made(n=2)
    first, _ = env.reset(seed=0)
    obs, rewards, terminations, _, infos = env.step({"a": [2, 1], "b": [2, 1], "c": [2, 1]})
    assert infos["_final_obs"].tolist() == [True, False]
    assert infos["final_obs"]["a"][0].tolist() == [1, 3] and obs["a"].tolist() == [[0, 3], [1, 3]]
    assert rewards["a"].tolist() == [2, 1] and terminations["a"].tolist() == [True, False]
    assert obs["b"]["observation"][0] != first["b"]["observation"][0], "an episode with a seed of its own"
    # The limit of the environment, and one of ours.
    for limit in (4, 3):
        env = made(n=1, max_episode_steps=limit)
        env.reset(seed=0)
        rows = [env.step({"a": [1], "b": [1], "c": [1]}) for _ in range(limit)]
        assert [row[3]["a"].item() for row in rows] == [False] * (limit - 1) + [True]
        env.close()


def test_seeds_of_two_runs_do_not_meet_unless_asked_for() -> None:
    def luck(seed: int, **options: Any) -> list[float]:
        env = made(**options)
        obs, _ = env.reset(seed=seed)
        env.close()
        return obs["b"]["observation"].ravel().tolist()

    assert not set(luck(3)) & set(luck(4)) and luck(3) == luck(3)
    expected = [np.float32(1 + np.random.default_rng(seed).random()) for seed in (3, 4, 5)]
    assert luck(3, seeding="offset") == expected
    assert luck([3, 4, 5], seeding="offset") == expected  # pyright: ignore[reportArgumentType]


def test_the_first_environments_are_those_of_fewer() -> None:
    many, alone = made(n=3), made(n=1)
    obs, (one, _) = many.reset(seed=1)[0], alone.reset(seed=1)
    assert_same(obs["b"]["observation"][:1], one["b"]["observation"])
    many.close()
    alone.close()


def test_workers_return_what_one_process_does() -> None:
    assert_same(walk(made()), walk(made(num_workers=2)))


class Dies(Rounds):
    """Its process is killed at one step of the first one that comes there; or it raises, or it waits."""

    def __init__(self, how: str, once: str) -> None:
        super().__init__()
        self.how, self.once = how, once

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        if self.time == 1:
            try:
                os.close(os.open(self.once, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return super().step(actions)
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.how == "hang":
                threading.Event().wait(1000)
            raise RuntimeError("100% of %s went wrong")
        return super().step(actions)


def test_an_episode_that_is_given_up_is_truncated_without_a_reward(tmp_path: Any) -> None:
    backend = BackendConfig(on_fault=OnFault["drop"])
    env = made(lambda: Dies("raise", str(tmp_path / "once")), n=2, backend=backend)
    env.reset(seed=0)
    actions = {"a": [1, 1], "b": [1, 1], "c": [1, 1]}
    env.step(actions)
    _, rewards, terminations, truncations, infos = env.step(actions)
    assert np.isnan(rewards["a"]).tolist() == truncations["a"].tolist() == infos["_final_obs"].tolist()
    assert truncations["a"].tolist() == [True, False] and not terminations["a"].any()
    assert env.step(actions)[1]["a"].tolist() == [1, 1]
    env.close()


@pytest.mark.parametrize("how", ["raise", "kill", "hang"])
def test_a_fault_leaves_the_data_as_it_would_have_been(how: str, tmp_path: Any) -> None:
    once = str(tmp_path / "once")
    backend = BackendConfig(call_timeout_s=5.0)
    faulty = made(lambda: Dies(how, once), num_workers=2, backend=backend)
    assert_same(walk(faulty, 6), walk(made(), 6))
    assert os.path.exists(once)


def test_a_timeout_never_shifts_answers() -> None:
    go = threading.Event()

    class Waits(Rounds):
        def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
            go.wait(60)
            return super().step(actions)

    env = made(Waits, n=1, backend=BackendConfig(name="serial"))
    env.reset(seed=0)
    env.step_async([{"a": 1, "b": 1, "c": 1}])
    with pytest.raises(TimeoutError):
        env.step_wait(timeout=0.01)
    with pytest.raises(AlreadyPendingCallError):
        env.step({"a": [0], "b": [0], "c": [0]})
    go.set()
    assert env.step_wait()[1]["a"] == 1
    assert env.step({"a": [0], "b": [0], "c": [0]})[1]["a"] == 0
    with pytest.raises(NoAsyncCallError):
        env.step_wait()
    env.reset_async(seed=0)
    assert env.reset_wait()[0]["a"].tolist() == [[0, 3]]
    env.close()
    with pytest.raises(ClosedEnvironmentError):
        env.reset()


@pytest.mark.parametrize(
    ("actions", "sentence"),
    [
        ({"a": [1, 1, 1], "b": [1, 1, 1]}, "c is alive, and no action was given for it"),
        ({"a": [1, 9, 1], "b": [1, 1, 1], "c": [1, 1, 1]}, "action of a in environment 1 is not in Discrete"),
        ({"a": [1, 1], "b": [1, 1, 1], "c": [1, 1, 1]}, "actions of a have the shape"),
        ({"a": [1, 1, 1], "b": [1, 1, 1], "d": [1, 1, 1]}, "There is no agent 'd'"),
    ],
)
def test_wrong_actions_are_one_sentence_that_names_the_agent(actions: Any, sentence: str) -> None:
    env = made()
    env.reset(seed=0)
    with pytest.raises(ValueError, match=sentence):
        env.step(actions)
    env.close()


def test_what_cannot_be_asked_for_is_refused() -> None:
    with pytest.raises(ValueError, match="seeding is"):
        made(seeding="random")
    env = made()
    with pytest.raises(ValueError, match="Options cannot be sent"):
        env.reset(options={"task": 1})
    with pytest.raises(ValueError, match="3 environments and 2 seeds"):
        env.reset(seed=[1, 2])
    with pytest.raises(AttributeError, match="Only 'render'"):
        env.call("state")
    env.close()


# -- with the packages of others -----------------------------------------------------------------------------


@pytest.mark.peers
@pytest.mark.parametrize("name", ["simple_push_v3", "simple_spread_v3"])
def test_the_stream_of_each_environment_is_that_of_a_plain_loop(name: str) -> None:
    module = pytest.importorskip(f"mpe2.{name}")
    rng = np.random.default_rng(0)
    env = made(lambda: module.parallel_env(max_cycles=6), seeding="offset", num_workers=2)
    alone = [module.parallel_env(max_cycles=6) for _ in range(3)]
    obs, infos = env.reset(seed=7)
    plain = [one.reset(seed=7 + number)[0] for number, one in enumerate(alone)]
    for _ in range(6):
        for agent in env.agents:
            expected = np.stack([row[agent] for row in plain])
            np.testing.assert_array_equal(obs[agent], expected, strict=True)
        actions = {agent: rng.integers(5, size=3) for agent in env.agents}
        rows = [one.step({a: int(actions[a][i]) for a in actions}) for i, one in enumerate(alone)]
        obs, rewards, *_, truncations, infos = env.step(actions)
        for agent in env.agents:
            assert rewards[agent].tolist() == [row[1][agent] for row in rows]
            assert truncations[agent].tolist() == [row[3][agent] for row in rows]
        plain = [row[0] for row in rows]
    assert infos["_final_obs"].all()
    np.testing.assert_array_equal(infos["final_obs"]["agent_0"], [row["agent_0"] for row in plain])
    env.close()


@pytest.mark.peers
def test_a_game_of_turns_takes_the_choice_of_the_agent_on_turn() -> None:
    make = pytest.importorskip("pettingzoo").make
    env = made(lambda: make("aec", "classic/tictactoe-v3"), n=2)
    env.reset(seed=0)
    # In the first environment the left column wins; in the second nobody has won yet.
    on_turn, other = env.agents
    for moves in ([0, 0], [3, 3], [1, 1], [4, 4]):
        env.step({on_turn: moves, other: [8, 7]})
        on_turn, other = other, on_turn
    obs, rewards, terminations, _, infos = env.step({on_turn: [2, 8], other: [8, 7]})
    assert rewards == {"player_1": pytest.approx([1, 0]), "player_2": pytest.approx([-1, 0])}
    assert terminations["player_2"].tolist() == infos["_final_obs"].tolist() == [True, False]
    assert infos["final_obs"]["player_1"]["observation"][0].sum() == 5
    assert obs["player_1"]["observation"].sum((1, 2, 3)).tolist() == [0, 5]
    assert obs["player_1"]["action_mask"][0].all() and obs["player_1"]["observation"].dtype == np.int8
    env.close()
