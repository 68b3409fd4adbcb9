"""The targets of off-policy algorithms, on trials whose targets are worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from buffers.base import Needs, Sample
from policies.agents.base import Arch, Features
from policies.algorithms import ALGORITHMS
from policies.algorithms.base import ReturnHorizon
from policies.algorithms.transitions import transitions_of
from tests.policies.algorithms.test_off_policy import KIND, every_combination, make
from tests.trials import KINDS, Trial, make_replay, play


class KnownQ(nn.Module):
    """A head that believes what the first number of an observation says, of any action; its other estimate is
    higher.
    """

    def __init__(self, choices: int) -> None:
        super().__init__()
        self._choices = choices

    def forward(self, seen: Features, action: Tensor | None = None) -> Tensor:
        q = torch.stack([seen.obs[..., 0] + 7.0, seen.obs[..., 0]])
        return q if action is not None else q[..., None].expand(*q.shape, self._choices)


def known_trial(number: int, *, falls: int, time_limit: int) -> Trial:
    """Two episodes with ends at those rows: the observation of row t is [100 + t, trial number, ...], its
    reward 10 t.
    """
    rows = max(falls, time_limit) + 1
    time = np.arange(rows)
    start = np.isin(time - 1, [-1, min(falls, time_limit)])
    obs = np.zeros((rows, 4), np.float32)
    obs[:, 0], obs[:, 1] = 100 + time, number
    reward = np.where(start, 0, 10 * time).astype(np.float32)
    return Trial(
        obs,
        np.zeros((rows, 2), np.float32),
        reward,
        time == falls,
        time == time_limit,
        start,
        time == 0,
        time == rows - 1,
    )


# trial 0 falls at row 2, and its second episode ends at the time limit at row 6; trial 1 the other way round,
# at rows 2 and 5
WHOLE_TRIAL = {
    (0, 0): 60.5,
    (0, 1): 71.5,
    (0, 3): 92.0,
    (0, 4): 102.5,
    (0, 5): 113.0,
    (1, 0): 60.5,
    (1, 1): 71.5,
    (1, 3): 92.0,
    (1, 4): 50.0,
}
EPISODES = WHOLE_TRIAL | {(0, 1): 20.0, (1, 1): 71.0}


@every_combination
@pytest.mark.parametrize(
    ("horizon", "expected"),
    [(ReturnHorizon.trial, WHOLE_TRIAL), (ReturnHorizon.episode, EPISODES)],
    ids=["trial", "episode"],
)
@pytest.mark.parametrize("sample", Sample)
def test_targets_equal_those_worked_out_by_hand(
    name: str, arch: Arch, horizon: ReturnHorizon, expected: dict[tuple[int, int], float], sample: Sample
) -> None:
    options: dict[str, Any] = {"temperature": 1e-9} if hasattr(ALGORITHMS[name].Config, "temperature") else {}
    algorithm = make(
        name, arch, discount=0.5, return_horizon=horizon, critics=2, critics_in_target=2, **options
    )
    algorithm.target_critic.head = KnownQ(choices=3)
    kind = KINDS[KIND[name]]
    replay = make_replay(capacity=2, k=2, horizon=3, kind=kind)
    play(
        replay,
        [known_trial(0, falls=2, time_limit=6), known_trial(1, falls=5, time_limit=2)],
        num_slots=2,
        kind=kind,
    )
    batch = replay.sample(
        Needs(on_policy=False, sample=sample, batch_size=100, window=2), np.random.default_rng(0)
    )
    transitions = transitions_of(batch, algorithm.config)
    y = algorithm.targets(batch, transitions, algorithm.agent.actor.unroll(batch))
    assert isinstance(batch.obs, Tensor)
    rows = batch.obs.flatten(0, 1)[transitions.rows].int().tolist()
    assert {(row[1], row[0] - 100) for row in rows} == set(expected)
    for row, number in zip(rows, y.tolist(), strict=True):
        assert number == pytest.approx(expected[row[1], row[0] - 100], abs=1e-3)
