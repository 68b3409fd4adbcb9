"""The published names for CAGE Challenge 2: the calls of the guide, as they are written there."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from envs.interop.cage2 import (
    B_lineAgent,
    ParallelEnv,
    ParallelEnvSharedMemory,
    RedMeanderAgent,
    SleepAgent,
    VectorizedCAGE2Envs,
)
from utils.options import OptionError

RESTORE_SERVER, TOMCAT_ON_USER2 = 139, 116


def played(kind: type[VectorizedCAGE2Envs], steps: int) -> list[bytes]:
    """What two episodes of four environments return."""
    bits = []
    with kind(n_envs=4, red_agent_type=B_lineAgent, max_steps=steps, seed=3) as envs:
        bits.append(envs.reset().tobytes())
        rng = np.random.default_rng(0)
        for _ in range(2 * steps):
            observations, rewards, dones, infos = envs.step(rng.integers(145, size=4))
            bits += [part.tobytes() for part in (observations, rewards, dones)]
            bits.append(str((infos, envs.get_true_states())).encode())
    return bits


def test_all_three_return_the_same_whatever_carries_the_rows():
    wanted = played(VectorizedCAGE2Envs, 12)
    assert played(ParallelEnvSharedMemory, 12) == wanted
    assert played(ParallelEnv, 12) == wanted


def test_episodes_end_at_max_steps_only_and_the_next_observation_comes_in_the_same_call():
    envs = VectorizedCAGE2Envs(n_envs=200, red_agent_type=B_lineAgent)
    assert envs.reset().shape == (200, 52)
    for step in range(1, 201):
        observations, rewards, dones, infos = envs.step(np.zeros(200, np.int64))
        assert rewards.shape == (200,) and len(infos) == 200
        assert dones.all() == dones.any() == (step % 100 == 0)
        # By step 10 of an episode blue has seen something, and at its start nothing.
        if step % 100 == 0 or step % 100 > 10:
            assert observations.any() == (step % 100 > 0)
        if dones.any():
            # The last reward and the infos are those of the episode that ended.
            assert (rewards <= -10).any() and infos[0]["step"] == 100
    envs.close()


def test_the_true_states_name_hosts_sessions_files_and_decoys():
    with VectorizedCAGE2Envs(n_envs=2, red_agent_type=SleepAgent) as envs:
        with pytest.raises(OptionError, match="before the first reset"):
            envs.get_true_states()
        envs.reset()
        _, rewards, _, _ = envs.step([RESTORE_SERVER, TOMCAT_ON_USER2])
        assert rewards.tolist() == [-1.0, 0.0]
        first, second = envs.get_true_states()
    assert len(first) == 13 and first["User0"]["session"] == "Privileged"
    assert first["User2"] == {"session": "None", "malware": False, "decoys": []}
    assert second["User2"]["decoys"] == ["Tomcat"]


def test_red_agents_are_known_by_the_names_of_their_classes():
    class Theirs: ...

    Theirs.__name__ = "RedMeanderAgent"
    scores = []
    for red in (Theirs, RedMeanderAgent):
        with VectorizedCAGE2Envs(n_envs=3, red_agent_type=red, seed=1) as envs:
            envs.reset()
            scores.append([envs.step([0, 0, 0])[0].tolist() for _ in range(20)])
    assert scores[0] == scores[1]
    with pytest.raises(OptionError, match=r"no red agent 'Bline'.* 'B_lineAgent'"):
        VectorizedCAGE2Envs(n_envs=1, red_agent_type=type("Bline", (), {}))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        # Named, since the address of an object differs from process to process.
        pytest.param(
            {"red_agent_type": B_lineAgent()},
            r"^red_agent_type is a class, such as B_lineAgent; it is not <.*>\.$",
            id="an instance",
        ),
        ({"red_agent_type": "B_lineAgent"}, r"is a class, such as B_lineAgent; it is not 'B_lineAgent'\.$"),
        ({"red_agent_type": None}, r"it is not None\.$"),
        ({"n_env": 3}, r"^VectorizedCAGE2Envs has no option 'n_env'\. Did you mean 'n_envs'\?$"),
        ({"red_agent": B_lineAgent}, r"no option 'red_agent'\. Did you mean 'red_agent_type'\?$"),
        ({"red": "bline"}, r"has no option 'red'\. Did you mean 'red_agent_type'\?$"),
        ({"oracle": True}, r"has no option 'oracle'\."),
        ({"min_ready": 1}, r"has no option 'min_ready'\."),
        ({"max_step": 3}, r"Did you mean 'max_steps'\?$"),
        ({"era": "2023"}, r"2023"),
        ({"n_envs": 0}, r"^VectorizedCAGE2Envs: n_envs=0 must be a whole number, at least 1\.$"),
        ({"n_envs": 2.5}, r"n_envs=2\.5 must be a whole number"),
        ({"n_envs": "3"}, r"n_envs='3' must be a whole number"),
        ({"n_envs": None}, r"n_envs=None must be a whole number"),
        ({"seed": -1}, r"seed=-1 must be a whole number, at least 0\.$"),
        ({"num_workers": 0}, r"num_workers=0 must be a whole number, at least 1\.$"),
        ({"max_steps": 0}, r"max_episode_steps=0 is out of range"),
    ],
    ids=str,
)
def test_a_wrong_argument_is_one_sentence(options: dict[str, Any], said: str):
    with pytest.raises(OptionError, match=said):
        VectorizedCAGE2Envs(**options)


def test_the_options_of_the_game_are_options_here():
    with VectorizedCAGE2Envs(1, SleepAgent, 5, green=True, era="2022", wrapper="cardiff") as envs:
        assert envs.reset().shape == (1, 52)


def test_actions_are_whole_numbers():
    with VectorizedCAGE2Envs(n_envs=2, red_agent_type=SleepAgent) as envs:
        envs.reset()
        assert envs.step(np.array([139.0, 0.0]))[1].tolist() == [-1.0, 0.0]
        for wrong in ([0.5, 0.0], [np.nan, 0.0], [145.0, 0.0], [-1.0, 0.0], [1e300, 0.0]):
            with pytest.raises(ValueError, match="An action is a whole number from 0 to 144, not "):
                envs.step(wrong)
        for wrong in ([145, 0], [0], ["a", "b"]):
            with pytest.raises(ValueError, match=r"\.$"):
                envs.step(wrong)


def test_after_close_there_is_no_true_state():
    envs = VectorizedCAGE2Envs(n_envs=1)
    envs.reset()
    envs.close()
    envs.close()
    with pytest.raises(OptionError, match=r"^There is no true state after close\(\): .*\.$"):
        envs.get_true_states()
    with pytest.raises(RuntimeError, match="is closed"):
        envs.step([0])


def test_the_step_that_ends_an_episode_shows_the_state_of_the_next():
    with VectorizedCAGE2Envs(n_envs=2, max_steps=20) as envs:
        envs.reset()
        first = envs.get_true_states()
        for _ in range(19):
            envs.step([0, 0])
        assert envs.get_true_states() != first
        _, _, dones, infos = envs.step([0, 0])
        assert dones.all() and infos[0]["privileged"] > 0
        assert envs.get_true_states() == first, "an empty network"


def test_the_spaces_and_the_defaults_are_those_of_the_guide():
    defaults = {name: one.default for name, one in inspect.signature(VectorizedCAGE2Envs).parameters.items()}
    assert (defaults["n_envs"], defaults["red_agent_type"], defaults["max_steps"]) == (200, B_lineAgent, 100)
    with VectorizedCAGE2Envs(n_envs=3) as envs:
        assert envs.observation_shape == envs.observation_space.shape == (52,)
        assert envs.action_space == spaces.Discrete(145) and envs.red_agent_type is B_lineAgent
        assert envs.observation_space.contains(envs.reset()[0])
