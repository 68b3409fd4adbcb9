"""The grid world for PettingZoo: its tests, ours over whole episodes, both faces against each other."""

from __future__ import annotations

import subprocess
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.peers

SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "deaths": {"death_on_sight": True, "target_speed": 0.5},
    "three": {"agents": 3, "obstacles": 3, "size": 8, "shared_target": False, "together": True},
}
every_setting = pytest.mark.parametrize("name", SETTINGS)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What PettingZoo only remarks on: observations that are Dicts, and empty views."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"pettingzoo\.test")
        yield


def faces(**options: Any) -> tuple[Any, Any]:
    pytest.importorskip("pettingzoo")
    from envs.interop import grid_world

    return grid_world.env(**options), grid_world.parallel_env(**options)


@every_setting
def test_pettingzoo_finds_no_fault(name: str) -> None:
    tests = pytest.importorskip("pettingzoo.test")
    in_turns, at_once = faces(**SETTINGS[name])
    tests.api_test(in_turns, num_cycles=1000)
    tests.parallel_api_test(at_once, num_cycles=1000)
    tests.seed_test(lambda: faces(**SETTINGS[name])[0], num_cycles=50)
    tests.parallel_seed_test(lambda: faces(**SETTINGS[name])[1], num_cycles=50)
    pytest.importorskip("pettingzoo.test.state_test").state_test(in_turns, at_once)


def test_pettingzoo_counts_the_cycles_and_draws_pictures() -> None:
    tests = pytest.importorskip("pettingzoo.test")
    from envs.interop import grid_world

    module = types.SimpleNamespace(env=grid_world.env, parallel_env=grid_world.parallel_env)
    tests.max_cycles_test(module)
    tests.render_test(grid_world.env)


def played_in_turns(env: Any, choose: Any) -> list[Any]:
    """Everything that an episode in turns says, turn by turn."""
    said = []
    for name in env.agent_iter():
        obs, reward, terminated, truncated, info = env.last()
        said.append((name, str(obs), reward, terminated, truncated, str(info), env.state().tolist()))
        env.step(None if terminated or truncated else choose(name))
    return said


@every_setting
def test_a_seed_decides_the_whole_of_every_episode(name: str) -> None:
    """PettingZoo's own test compares the first episode up to the first end."""

    def played() -> list[Any]:
        env, rng = faces(**SETTINGS[name])[0], np.random.default_rng(1)
        said = []
        for seed in (3, None, None):
            env.reset(seed=seed)
            said.append(played_in_turns(env, lambda _: rng.integers(5)))
        return said

    first, again = played(), played()
    assert first == again
    assert first[0] != first[1], "episodes differ"


@every_setting
def test_turns_and_cycles_give_the_same_game(name: str) -> None:
    in_turns, at_once = faces(**SETTINGS[name])
    died = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        in_turns.reset(seed=seed)
        at_once.reset(seed=seed)
        dead: dict[str, bool] = {}
        ended: dict[str, bool] = {}
        cut: dict[str, bool] = {}
        while at_once.agents:
            actions = {agent: int(rng.integers(5)) for agent in at_once.agents}
            _, paid, ended, cut, _ = at_once.step(actions)
            # The same cycle in turns; who died in the cycle before is taken away between them.
            got = {}
            for agent, action in actions.items():
                while in_turns.agent_selection in dead:
                    in_turns.step(None)
                assert in_turns.agent_selection == agent
                in_turns.step(action)
                got[agent] = in_turns.rewards[agent]
                if in_turns.terminations[agent]:
                    dead[agent] = True
            assert got == paid
            assert {one for one in ended if ended[one]} <= set(dead)
            assert in_turns.state().tolist() == at_once.state().tolist()
        assert all(in_turns.terminations[one] or in_turns.truncations[one] for one in in_turns.agents)
        died += len(dead)
        assert sum(cut.values()) == len(cut) - sum(ended.values())
    assert (died > 0) == bool(SETTINGS[name].get("death_on_sight"))


@every_setting
def test_rewards_between_own_turns_add_up_to_those_of_the_game(name: str) -> None:
    env, rng = faces(**SETTINGS[name])[0], np.random.default_rng(0)
    for seed in range(20):
        env.reset(seed=seed)
        handed_out = dict.fromkeys(env.possible_agents, 0.0)
        paid = dict.fromkeys(env.possible_agents, 0.0)
        for agent in env.agent_iter():
            _, reward, terminated, truncated, _ = env.last()
            handed_out[agent] += reward
            env.step(None if terminated or truncated else rng.integers(5))
            for one, of_step in env.rewards.items():
                paid[one] += of_step
        assert handed_out == pytest.approx(paid)


def test_a_task_is_played_again_where_it_is_given() -> None:
    env = faces()[1]
    for seed in range(3):
        env.reset(seed=seed, options={"task": [3, 5]})
        assert env.state()[4:6].tolist() == [3, 5]
    with pytest.raises(ValueError, match="A task has 2 numbers, not 3"):
        env.reset(options={"task": [1, 2, 3]})


def test_the_rows_are_those_of_the_family() -> None:
    """The parallel face and the shard of the family, on the same task with the same actions."""
    from tests.envs.meta.played import Played

    env = faces()[1]
    played, rng = Played(env.game.family, 1), np.random.default_rng(0)
    env.reset(seed=0, options={"task": [4, 4]})
    played.reset([0], [[4, 4]], [0])
    for _ in range(12):
        actions = rng.integers(5, size=2)
        _, rewards, *_ = env.step({"agent_0": actions[0], "agent_1": actions[1]})
        rows = played.step([0], actions[None])
        assert rows.info[0, 4:].tolist() == list(rewards.values())
        assert isinstance(rows.obs, np.ndarray)
        assert (rows.obs[0, :2] * 8).tolist() == env.state()[:2].tolist()


def test_mistakes_are_one_sentence_that_names_the_agent() -> None:
    env, at_once = faces(death_on_sight=True)
    env.reset(seed=0, options={"task": [3, 3]})
    with pytest.raises(ValueError, match="agent_0 has the actions 0 to 4, not 7"):
        env.step(7)
    for action in (0, 4, 0, 4, 1, 4, 1):  # to (2, 2), close to the target
        env.step(action)
    assert env.agent_selection == "agent_0" and env.terminations["agent_0"]
    with pytest.raises(ValueError, match="agent_0 is out of the episode: its only action is None, not 2"):
        env.step(2)
    at_once.reset(seed=0)
    with pytest.raises(ValueError, match="agent_1 has a turn, and no action was given for it"):
        at_once.step({"agent_0": 4})
    with pytest.raises(ValueError, match="agent_7 has no turn: the agents of now are agent_0, agent_1"):
        at_once.step({"agent_0": 4, "agent_1": 4, "agent_7": 4})
    with pytest.raises(ValueError, match=r"There is no render_mode='rgb'\. Did you mean 'rgb_array'"):
        faces(render_mode="rgb")


def test_human_is_letters_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    env = faces(render_mode="human", size=7)[1]
    env.reset(seed=0, options={"task": [3, 3]})
    assert env.render() is None
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "......1" and lines[3] == "...T..." and lines[6] == "0......"


def test_it_needs_pettingzoo_alone() -> None:
    pytest.importorskip("pettingzoo")
    code = (
        "import sys\n"
        "for name in ('torch', 'mujoco', 'hydra', 'omegaconf', 'wandb', 'cloudpickle', 'matplotlib'):\n"
        "    sys.modules[name] = None\n"
        "from envs.interop.grid_world import GridWorldEnvMultiAgent\n"
        "env = GridWorldEnvMultiAgent()\n"
        "env.reset(seed=0)\n"
        "env.step(0)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
