"""The published names for CAGE Challenge 2: the calls of the guide, as they are written there."""

from __future__ import annotations

import numpy as np
import pytest

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
