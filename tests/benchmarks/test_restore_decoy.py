"""The script of the recorded episodes, and by it our own red against the real one."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import tests.envs.meta.cyber.test_replay as recordings
from benchmarks.leader_board import play, restoring_and_decoys
from benchmarks.parts.defence.restore_decoy import RestoreDecoy
from envs.meta.cyber.attackers import Attacker

INDEX = json.loads((Path(recordings.RECORDED) / "index.json").read_text())


@pytest.mark.parametrize("attacker", Attacker)
def test_it_takes_the_recorded_actions(attacker: Attacker):
    recorded = recordings.load(recordings.RECORDED / f"{attacker.name}__restore_decoy.npz")
    episodes, steps = recorded["act"].shape
    policy, obs = RestoreDecoy(episodes), np.zeros((episodes, 52), np.uint8)
    for step in range(steps):
        assert (policy.act(obs) == recorded["act"][:, step]).all(), step
        obs = np.unpackbits(recorded["obs"][:, step], axis=-1)[:, :52]


@pytest.mark.parametrize("attacker", Attacker)
@pytest.mark.parametrize("horizon", [30, 50, 100])
def test_our_red_costs_it_what_the_real_one_does(attacker: Attacker, horizon: int):
    real = INDEX[f"{attacker.name}__restore_decoy"]
    returns, _, _ = play(restoring_and_decoys, attacker, horizon, 600)
    error = math.hypot(real["se"][str(horizon)], float(returns.std()) / math.sqrt(len(returns)))
    # Published means are rounded to hundredths.
    assert returns.mean() == pytest.approx(real["mean"][str(horizon)], abs=3 * error + 0.01)
