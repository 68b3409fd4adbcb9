"""DiscreteSAC: its expectations against sums written out, masks, and that it learns what can be learned in
seconds.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from buffers.base import Batch, Needs, Sample
from envs.interop.spaces import MASK_KEY
from policies.agents import AGENT_ARCHS
from policies.agents.base import Arch, PolicyRows, select_rows
from policies.algorithms.discrete_sac import DiscreteSAC, DiscreteSACConfig
from policies.algorithms.transitions import HeadOnRows, transitions_of
from tests.trials import KINDS, Trial, make_replay, make_rows, make_spec, make_trials, play

every_arch = pytest.mark.parametrize("arch", AGENT_ARCHS, ids=lambda arch: arch.name)


def make(arch: Arch, kind: str = "discrete", **options: Any) -> DiscreteSAC:
    config = DiscreteSACConfig(name="DiscreteSAC", **options)
    return DiscreteSAC(config, DiscreteSAC.make_agent(config, make_spec(arch, kind=KINDS[kind])), seed=0)


def batch_of(kind: str) -> Batch:
    replay = make_replay(capacity=9, kind=KINDS[kind])
    play(replay, make_trials(4, 9, fall=0.3, scale=1e-3), num_slots=2, kind=KINDS[kind])
    return replay.sample(Needs(on_policy=False, sample=Sample.trials, batch_size=4), np.random.default_rng(0))


@every_arch
@pytest.mark.parametrize("kind", ["discrete", "discrete-from-5", "discrete-masked"])
def test_values_are_sums_over_the_actions_that_are_allowed(arch: Arch, kind: str) -> None:
    sac, batch = make(arch, kind), batch_of(kind)
    rows = batch.trains.flatten().nonzero().squeeze(1)
    actor, critic = (
        sac.agent.actor.unroll(batch).select_rows(rows),
        sac.agent.critic.unroll(batch).select_rows(rows),
    )
    at_critic, at_actor = HeadOnRows(sac.agent.critic.head, critic), HeadOnRows(sac.agent.actor.head, actor)
    value, log_prob = sac.soft_value(at_critic, at_actor, torch.tensor(0.3), sac.min_q)
    q: Tensor = sac.agent.critic.head(critic)
    head: Any = sac.agent.actor.head
    logits = head.outputs(actor)[0]
    taken, goals = sac.q_values(at_critic, select_rows(batch.action, rows)), sac.target_entropy(at_actor)
    start = 5 if kind == "discrete-from-5" else 0
    for row in range(len(rows)):
        allowed = (
            range(logits.shape[-1])
            if actor.mask is None
            else [a for a in range(logits.shape[-1]) if actor.mask[row, a]]
        )
        weights = [math.exp(logits[row, a].item()) for a in allowed]
        probs = [weight / sum(weights) for weight in weights]
        surprise = sum(p * math.log(p) for p in probs)
        expected = sum(
            p * min(q[0, row, a].item(), q[1, row, a].item()) for p, a in zip(probs, allowed, strict=True)
        )
        assert log_prob[row].item() == pytest.approx(surprise, abs=1e-5)
        assert value[row].item() == pytest.approx(expected - 0.3 * surprise, abs=1e-5)
        assert goals[row].item() == pytest.approx(0.3 * math.log(len(allowed)), abs=1e-5)
        assert torch.equal(taken[:, row], q[:, row, select_rows(batch.action, rows)[row] - start])


def test_what_is_forbidden_has_no_part_in_targets() -> None:
    """However good the critic believes it to be."""
    sac, batch = make(Arch.Markov, "discrete-masked"), batch_of("discrete-masked")
    assert isinstance(batch.obs, dict)
    transitions = transitions_of(batch, sac.config)
    mask = select_rows(batch.obs[MASK_KEY], transitions.next_rows) != 0
    assert not mask.all()

    class Believes(torch.nn.Module):
        bonus = 0.0

        def forward(self, seen: Any) -> Tensor:
            return torch.where(mask, 1.0, 1.0 + self.bonus).expand(2, -1, -1)

    sac.target_critic.head = head = Believes()
    before = sac.targets(batch, transitions, sac.agent.actor.unroll(batch))
    head.bonus = 1e6
    assert torch.equal(before, sac.targets(batch, transitions, sac.agent.actor.unroll(batch)))
    assert before.isfinite().all()


def test_a_tuned_temperature_brings_the_entropy_to_its_goal() -> None:
    sac = make(Arch.Markov, target_entropy_ratio=0.6, learning_rate=1e-2, init_temperature=1.0)
    batch = bandit(np.random.default_rng(0))
    entropies = [sac.update(batch)["entropy"].item() for _ in range(600)]
    assert entropies[-1] == pytest.approx(0.6 * math.log(3), abs=0.15)
    assert abs(entropies[20] - 0.6 * math.log(3)) > 0.3


def bandit(rng: np.random.Generator, trials: int = 60) -> Batch:
    """One-step trials with random actions: reward 1 for the action that the observation names, else 0."""
    kind = KINDS["discrete"]
    replay, played = make_replay(capacity=trials, k=1, horizon=1, kind=kind), []
    for _ in range(trials):
        best, taken = rng.integers(3), rng.integers(3)
        obs = np.zeros((2, 4), np.float32)
        obs[:, best] = 1.0
        action = np.full((2, 2), -0.9 + 1.8 * (taken + 0.5) / 3, np.float32)
        flags = [
            np.array(flag)
            for flag in ([False, True], [False, False], [True, False], [True, False], [False, True])
        ]
        played.append(Trial(obs, action, np.array([0, best == taken], np.float32), *flags))
    play(replay, played, num_slots=4, kind=kind)
    return replay.sample(Needs(on_policy=False, sample=Sample.trials, batch_size=4 * trials), rng)


@every_arch
def test_a_bandit_is_learned(arch: Arch) -> None:
    sac, batch = make(arch, temperature=0.05, learning_rate=1e-2), bandit(np.random.default_rng(0))
    rows = make_rows(3, KINDS["discrete"])
    starts = torch.ones(3, dtype=torch.bool)
    seen = PolicyRows(torch.eye(3, 4), torch.zeros(3), torch.from_numpy(rows.prev_action), starts, starts)

    def chosen() -> list[int]:
        with torch.inference_mode():
            return sac.agent.act(seen, sac.agent.initial_state(3), torch.zeros(3, 3), deterministic=True)[
                0
            ].tolist()

    assert chosen() != [0, 1, 2]
    for _ in range(200):
        sac.update(batch)
    assert chosen() == [0, 1, 2]
    q = sac.agent.critic.head(sac.agent.critic.unroll(batch))[:, 0].mean(0)
    assert isinstance(batch.obs, Tensor)
    assert (q[:, :3] - batch.obs[0, :, :3]).abs().mean() < 0.2
