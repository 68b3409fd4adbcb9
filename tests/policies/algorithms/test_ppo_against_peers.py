"""Recurrent PPO against that of SB3-contrib: the same networks, rows and optimiser, and its own `train()`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from buffers.base import Batch
from buffers.rollout import RolloutBuffer
from policies.agents.base import Arch, Encoders
from policies.algorithms.ppo import PPO, PPOConfig
from policies.nn.mlp import Activation
from policies.returns import advantages
from tests.trials import KINDS, make_replay, make_spec, make_trials, play

EPOCHS, WIDTH = 4, 6
OPTIONS: dict[str, Any] = {
    "discount": 0.97,
    "gae_lambda": 0.9,
    "clip": 0.02,
    "learning_rate": 1e-2,
    "entropy_coef": 0.01,
}

pytestmark = pytest.mark.peers


def made(kind: str) -> PPO:
    """One whose memory reads the observation alone, and its heads the memory alone: what there is in
    SB3-contrib.
    """
    config = PPOConfig(name="PPO", epochs=EPOCHS, minibatches=1, parts=1, max_grad_norm=1e9, **OPTIONS)
    inputs = {
        "action_embedding": 0,
        "reward_embedding": 0,
        "obs_embedding": 4,
        "shortcut_embedding": 0,
        "activation": Activation.tanh,
        "encoders": Encoders.separate,
    }
    ppo = PPO(config, PPO.make_agent(config, make_spec(Arch.Memory, "LSTM", KINDS[kind], **inputs)), seed=0)
    branches: list[Any] = [ppo.agent.actor.branch, ppo.agent.critic.branch]
    embeddings = [branch.embeddings["obs"] for branch in branches]
    for embedding in embeddings:  # the observation itself, as long as none is negative
        nn.init.eye_(embedding.weight)
        nn.init.zeros_(embedding.bias)
    fixed = {id(parameter) for embedding in embeddings for parameter in embedding.parameters()}
    ppo.optimizer.param_groups[0]["params"] = [one for one in ppo.agent.parameters() if id(one) not in fixed]
    return ppo


def rows_of(kind: str) -> Batch:
    """Trials of one episode, of different lengths, one after another in one column as in a buffer of one
    environment.
    """
    rollout, trials = (
        make_replay(capacity=9, k=1, horizon=8, kind=KINDS[kind], storage=RolloutBuffer),
        make_trials(4, 9, k=1, horizon=8, fall=0.2),
    )
    rng = np.random.default_rng(0)
    for trial in trials:
        trial.obs[:] = np.abs(rng.standard_normal(trial.obs.shape))
        trial.reward[1:] = rng.standard_normal(len(trial) - 1)
    play(rollout, trials, num_slots=2, kind=KINDS[kind])
    batch = rollout.whole(0, 9)

    def in_one_column(values: Tensor) -> Tensor:
        return values.transpose(0, 1)[batch.valid.transpose(0, 1)][:, None]

    values: dict[str, Any] = {item.name: getattr(batch, item.name) for item in fields(Batch)}
    one: dict[str, Any] = {
        name: in_one_column(value) if isinstance(value, Tensor) else value for name, value in values.items()
    }
    return Batch(**one)


def pairs(ppo: PPO, policy: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Our parameters, and theirs of the same meaning."""
    actor, critic = ppo.agent.actor, ppo.agent.critic
    others = (
        (actor, policy.lstm_actor, policy.mlp_extractor.policy_net[0], policy.action_net),
        (critic, policy.lstm_critic, policy.mlp_extractor.value_net[0], policy.value_net),
    )
    for network, lstm, first, last in others:
        memory: Any = network.branch.memory
        yield from zip(memory.lstm.parameters(), lstm.parameters(), strict=True)
        head: Any = network.head
        for (weight, bias), layer in zip(head.nets[0].applied, (first, last), strict=True):
            yield from ((weight, layer.weight), (bias, layer.bias))
    if hasattr(policy, "log_std"):
        head = actor.head
        yield head.log_std, policy.log_std  # pyright: ignore[reportReturnType]


class Spaces(gymnasium.Env[Any, Any]):
    """An environment that has spaces, and is never stepped."""

    def __init__(self, kind: str) -> None:
        self.observation_space, self.action_space = (
            spaces.Box(0, np.inf, (4,), np.float32),
            KINDS[kind].action_space,
        )


def their_own(ppo: PPO, batch: Batch, kind: str) -> Any:
    """A RecurrentPPO with our parameters, and its buffer filled with our rows and what we thought of them."""
    contrib = pytest.importorskip("sb3_contrib", reason="pip install -c requirements.txt .[peers]")
    count = int(batch.trains.sum())
    network = {"lstm_hidden_size": WIDTH, "net_arch": {"pi": [8], "vf": [8]}}
    theirs = contrib.RecurrentPPO(
        "MlpLstmPolicy",
        Spaces(kind),
        n_steps=count,
        batch_size=count,
        n_epochs=EPOCHS,
        learning_rate=OPTIONS["learning_rate"],
        clip_range=OPTIONS["clip"],
        ent_coef=OPTIONS["entropy_coef"],
        vf_coef=ppo.config.value_coef / 2,  # their loss has no half
        max_grad_norm=1e9,
        normalize_advantage=False,  # theirs divides by n - 1
        policy_kwargs=network,
        device="cpu",
    )
    with torch.no_grad():
        for our, other in pairs(ppo, theirs.policy):
            other.copy_(our)
        outputs = ppo.agent.unroll(batch)
        value, log_prob = ppo.agent.critic.head(outputs.critic), outputs.policy.log_prob(batch.action)
        advantage = advantages(
            batch, value, discount=OPTIONS["discount"], gae_lambda=OPTIONS["gae_lambda"], whole_trial=True
        )[batch.trains]
    buffer, trains = theirs.rollout_buffer, batch.trains
    columns = {
        "observations": batch.obs,
        "actions": batch.action.reshape(*trains.shape, -1),
        "values": value,
        "log_probs": log_prob,
        "episode_starts": batch.episode_start,
    }
    for name, values in columns.items():
        getattr(buffer, name)[:, 0] = values[trains].numpy()  # pyright: ignore[reportArgumentType, reportCallIssue, reportAttributeAccessIssue]
    buffer.advantages[:, 0] = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
    buffer.returns[:, 0] = advantage + value[trains]
    buffer.full = True
    return theirs


@pytest.mark.parametrize("kind", ["continuous", "discrete"])
def test_updates_are_those_of_sb3_contrib(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses, entropy and how many rows were clipped, on average over four steps on the same rows; and all
    gradients and parameters after them.
    """
    ppo, batch = made(kind), rows_of(kind)
    theirs = their_own(ppo, batch, kind)
    before = [our.detach().clone() for our, _ in pairs(ppo, theirs.policy)]
    logger = pytest.importorskip("stable_baselines3.common.logger")
    theirs.set_logger(logger.Logger(None, []))
    monkeypatch.setattr(
        np.random, "randint", lambda *_: 0
    )  # it would cut an episode in two, and start its rest from a stale state
    theirs.train()
    ours, logged = ppo.update(batch), theirs.logger.name_to_value
    named = {
        "policy_loss": "policy_gradient_loss",
        "entropy": "entropy_loss",
        "clip_fraction": "clip_fraction",
    }
    for name, other in named.items():
        sign = -1 if name == "entropy" else 1
        assert ours[name].item() == pytest.approx(sign * logged[f"train/{other}"], rel=1e-4, abs=1e-6), name
    assert 2 * ours["value_loss"].item() == pytest.approx(logged["train/value_loss"], rel=1e-5)
    assert logged["train/clip_fraction"] > 0.1 and abs(logged["train/policy_gradient_loss"]) > 1e-3
    for (our, other), old in zip(pairs(ppo, theirs.policy), before, strict=True):
        assert our.grad is not None and other.grad is not None
        torch.testing.assert_close(our.grad, other.grad, rtol=1e-3, atol=1e-6)
        torch.testing.assert_close(our, other, rtol=0, atol=2e-5)
        assert not torch.equal(our, old)
