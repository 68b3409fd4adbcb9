"""PPO: losses worked out by hand, an update against one written plainly, and what it learns in seconds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, Independent, Normal

from buffers.base import Batch, Needs, Sample
from buffers.rollout import RolloutBuffer
from policies.agents import AGENT_ARCHS
from policies.agents.base import Arch, Encoders, PolicyRows
from policies.agents.heads import GaussianHead
from policies.algorithms.base import ReturnHorizon
from policies.algorithms.ppo import PPO, PPOConfig
from policies.returns import advantages
from tests.policies.agents.test_agent import acted
from tests.trials import KINDS, make_replay, make_spec, make_trials, play

every_arch = pytest.mark.parametrize("arch", AGENT_ARCHS, ids=lambda arch: arch.name)
every_kind = pytest.mark.parametrize("kind", ["continuous", "discrete"])


def make(
    arch: Arch = Arch.Memory,
    kind: str = "continuous",
    *,
    memory: str = "GRU",
    agent: dict[str, Any] | None = None,
    **options: Any,
) -> PPO:
    config = PPOConfig(name="PPO", **options)
    return PPO(config, PPO.make_agent(config, make_spec(arch, memory, KINDS[kind], **(agent or {}))), seed=0)


def batch_of(kind: str = "continuous", seed: int = 4) -> Batch:
    rollout = make_replay(capacity=9, kind=KINDS[kind], storage=RolloutBuffer)
    play(rollout, make_trials(seed, 9, fall=0.3, scale=1e-3), num_slots=2, kind=KINDS[kind])
    return rollout.whole(0, 9)


def parameters(ppo: PPO) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in ppo.agent.parameters()]


def test_it_needs_the_rows_of_its_own_policy_once() -> None:
    assert PPO.needs(PPOConfig(), Arch.Memory) == Needs(on_policy=True, sample=Sample.trials, batch_size=0)


# -- the loss ------------------------------------------------------------------------------------------------


def batch_before(
    ppo: PPO, ratio: float, advantage: float, *, target: float = 0.0, value_then: float = 0.0
) -> Batch:
    """Every action is `ratio` times as likely as it was, with this advantage, target and value."""
    batch = ppo.agent.normalise(batch_of())
    with torch.no_grad():
        outputs = ppo.agent.unroll(batch)
        value = ppo.agent.critic.head(outputs.critic)
        log_prob = outputs.policy.log_prob(batch.action) - math.log(ratio)
    flat = {"advantage": advantage, "target": target, "value": value_then}
    return replace(
        batch,
        extras={
            "log_prob": log_prob,
            **{name: torch.full_like(value, number) for name, number in flat.items()},
        },
    )


@pytest.mark.parametrize(
    ("ratio", "advantage", "gain", "moves"),
    [
        (1.1, 2.0, 2.2, True),
        (1.5, 2.0, 2.4, False),
        (1.5, -2.0, -3.0, True),
        (0.5, 2.0, 1.0, True),
        (0.5, -2.0, -1.6, False),
        (0.9, -2.0, -1.8, True),
    ],
)
def test_the_clipped_gain_is_the_one_worked_out_by_hand(
    ratio: float, advantage: float, gain: float, moves: bool
) -> None:
    """Only where the ratio has gone too far in the direction of its gain does the gradient stop."""
    ppo = make(clip=0.2, value_coef=0.0, entropy_coef=0.0)
    batch = batch_before(ppo, ratio, advantage)
    (loss,), metrics = ppo._losses(batch, batch.trains.sum())
    assert loss.item() == pytest.approx(-gain, rel=1e-4) == metrics["policy_loss"].item()
    assert metrics["approx_kl"].item() == pytest.approx(ratio - 1 - math.log(ratio), rel=1e-3)
    assert metrics["clip_fraction"].item() == pytest.approx(float(abs(ratio - 1) > 0.2))
    gradient = torch.autograd.grad(loss, list(ppo.agent.actor.parameters()))
    assert any(part.abs().max() > 1e-6 for part in gradient) == moves


@pytest.mark.parametrize(
    ("clip_value", "then", "expected"),
    [(None, 3.0, 0.5 * 25.0), (0.5, 3.0, 0.5 * 25.0), (0.5, -7.0, 0.5 * 11.5**2)],
)
def test_the_value_s_loss_is_the_one_worked_out_by_hand(
    clip_value: float | None, then: float, expected: float
) -> None:
    """The value is 0 and its target 5; where clipped, it may not have come further than 0.5 from what it was,
    and the worse error counts.
    """
    ppo = make(clip_value=clip_value, entropy_coef=0.0, value_coef=0.5)
    with torch.no_grad():
        for name, parameter in ppo.agent.critic.head.named_parameters():
            parameter.mul_("net" not in name)
    batch = batch_before(ppo, 1.0, 0.0, target=5.0, value_then=then)
    (loss,), metrics = ppo._losses(batch, batch.trains.sum())
    assert metrics["value_loss"].item() == pytest.approx(expected, rel=1e-5)
    assert loss.item() == pytest.approx(0.5 * expected, rel=1e-5)


@every_kind
def test_the_entropy_is_that_of_torch_distributions(kind: str) -> None:
    ppo, batch = make(kind=kind, init_std=0.7), batch_of(kind)
    batch = ppo.agent.normalise(batch)
    policy: Any = ppo.agent.unroll(batch).policy
    theirs = (
        Independent(Normal(policy.mean, policy.log_std.exp()), 1)
        if kind == "continuous"
        else Categorical(logits=policy.logits)
    )
    torch.testing.assert_close(policy.entropy().expand(batch.shape), theirs.entropy())
    torch.testing.assert_close(
        policy.log_prob(batch.action)[batch.valid], theirs.log_prob(batch.action)[batch.valid]
    )


# -- the update ----------------------------------------------------------------------------------------------


@every_arch
@every_kind
@pytest.mark.parametrize("horizon", ReturnHorizon)
def test_an_update_equals_one_written_plainly(arch: Arch, kind: str, horizon: ReturnHorizon) -> None:
    """Picked rows in place of masks, all at once, and torch's own optimiser, twice; by an epsilon so large
    that Adam makes little of little.
    """
    options: dict[str, Any] = {
        "epochs": 2,
        "minibatches": 1,
        "learning_rate": 0.1,
        "entropy_coef": 0.01,
        "return_horizon": horizon,
    }
    ppo, plain, batch = make(arch, kind, **options), make(arch, kind, **options), batch_of(kind)
    ppo.optimizer.param_groups[0]["eps"] = 1.0
    metrics = ppo.update(batch)
    agent, trains, before = plain.agent, batch.trains, parameters(plain)
    optimizer = torch.optim.Adam(agent.parameters(), lr=0.1, eps=1.0)

    def outputs_now() -> tuple[Tensor, Tensor, Tensor]:
        outputs = agent.unroll(batch)
        policy: Any = outputs.policy
        return (
            policy.log_prob(batch.action)[trains],
            agent.critic.head(outputs.critic),
            policy.entropy().expand(batch.shape)[trains],
        )

    with torch.no_grad():
        old, value, _ = outputs_now()
        advantage = advantages(
            batch, value, discount=0.97, gae_lambda=0.9, whole_trial=horizon is ReturnHorizon.trial
        )[trains]
        target, normal = (
            advantage + value[trains],
            (advantage - advantage.mean()) / advantage.std(correction=0),
        )
    for _ in range(2):
        log_prob, value, entropy = outputs_now()
        ratio = (log_prob - old).exp()
        gain = torch.minimum(ratio * normal, ratio.clamp(0.8, 1.2) * normal).mean()
        loss = -gain + 0.5 * 0.5 * (value[trains] - target).square().mean() - 0.01 * entropy.mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()
    for ours, theirs in zip(ppo.agent.parameters(), agent.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert (
        max((old - new).abs().max().item() for old, new in zip(before, parameters(ppo), strict=True)) > 1e-3
    )
    assert metrics["approx_kl"].item() > 0


@every_kind
@pytest.mark.parametrize("encoders", Encoders, ids=lambda encoders: encoders.name)
def test_the_first_step_of_an_update_is_where_the_actions_came_from(kind: str, encoders: Encoders) -> None:
    """The rows were played by this very policy, so the ratio is 1: acting and learning read the same numbers,
    normalised or not.
    """
    ppo = make(
        kind=kind,
        epochs=1,
        minibatches=1,
        agent={"normalise_obs": True, "normalise_reward": True, "encoders": encoders},
    )
    ppo.agent.extras = ("log_prob",)
    ppo.agent.update_normaliser(batch_of(kind), 0.97)
    replay, recorded = acted(ppo.agent, num_slots=3, kind=KINDS[kind])
    batch = replay.whole(0, 7)
    metrics = ppo.update(batch)
    assert metrics["approx_kl"].item() == pytest.approx(0, abs=1e-6) and metrics["clip_fraction"].item() == 0
    assert len({round(value[0], 3) for value in recorded.values()}) > 3
    assert ppo.update(batch)["approx_kl"].item() == pytest.approx(0, abs=1e-6), (
        "the old log-probabilities are those of the policy as it is now"
    )


@pytest.mark.parametrize(("encoders", "together"), [(Encoders.separate, False), (Encoders.shared, True)])
def test_what_is_shared_learns_from_policy_and_value(encoders: Encoders, together: bool) -> None:
    ppo = make(agent={"encoders": encoders}, value_coef=1.0, entropy_coef=0.0)
    memory = list(ppo.agent.actor.branch.parameters())
    assert len(ppo.parameters) == len({id(parameter) for parameter in ppo.parameters})
    assert (ppo.agent.actor.branch is ppo.agent.critic.branch) == together
    batch = batch_before(ppo, 1.0, 0.0, target=5.0)
    gradients = torch.autograd.grad(ppo._losses(batch, batch.trains.sum())[0][0], memory, allow_unused=True)
    assert any(gradient is not None and gradient.abs().max() > 1e-6 for gradient in gradients) == together, (
        "the value's alone, with no advantage"
    )


def test_a_resumed_run_continues_with_its_step_sizes() -> None:
    ppo, other = (make(desired_kl=0.01, learning_rate=1e-3, learning_rate_left=0.2) for _ in range(2))
    ppo.step_sizes[0].follow(1.0, 0.01)
    other.load_state_dict(ppo.state_dict())
    other.at(50, 100)
    assert other.optimizer.param_groups[0]["lr"] == pytest.approx(1e-3 * 0.6 / 1.2)


def test_an_agent_without_a_memory_learns_from_minibatches_of_mixed_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There are 9 trials in 3 columns or less, and 40 minibatches can still be made."""
    ppo, steps, batch = make(Arch.Markov, epochs=1, minibatches=40), list[Batch](), batch_of()
    step = ppo._step

    def noted(batch: Batch, columns: Tensor) -> dict[str, Tensor]:
        steps.append(batch.columns(columns))
        return step(batch, columns)

    monkeypatch.setattr(ppo, "_step", noted)
    ppo.update(batch)
    assert PPO.passes(ppo.config, Arch.Markov, batch.shape[1], batch.shape[0]).steps == len(steps) == 40
    trained = torch.cat([part.extras["target"][part.trains] for part in steps])
    assert all(part.shape[0] == 1 and part.trains.all() for part in steps)
    assert len(trained) == batch.trains.sum(), "each row once"


def test_the_gradient_steps_of_an_epoch_are_as_many_as_there_are_columns_to_mix() -> None:
    for window, made in ((0, 4), (50, 8), (10, 32)):
        passes = PPO.passes(PPOConfig(minibatches=32, window=window), Arch.Memory, 4, 100)
        assert (passes.epochs, passes.steps, passes.asked) == (3, made, 32)


def test_values_are_clipped_around_what_the_head_has_said_although_its_units_move() -> None:
    ppo = make(normalise_value=True, clip_value=0.1)
    ppo.update(batch_of(seed=1))
    batch = ppo.agent.normalise(batch_of(seed=2))
    with torch.no_grad():
        said = ppo.agent.critic.head(ppo.agent.unroll(batch).critic)
    before = ppo._with_targets(batch)
    assert torch.allclose(before.extras["value"], said, atol=1e-6)
    assert not torch.allclose(before.extras["target"] - before.extras["error"], said, atol=1e-3), (
        "in the new units it is another number"
    )


def test_the_deviation_stays_above_its_floor_and_can_rise_from_there() -> None:
    """Without entropy and with advantages of its own making it falls, and with much entropy it rises."""
    ppo = make(init_std=0.5, min_std=0.49, learning_rate=0.05, entropy_coef=-1.0)
    head = ppo.agent.actor.head
    assert isinstance(head, GaussianHead)
    for _ in range(3):
        ppo.update(batch_of())
    torch.testing.assert_close(head.log_std.exp(), torch.full_like(head.log_std, 0.49))
    ppo.config.entropy_coef = 1.0
    for _ in range(6):
        ppo.update(batch_of())
    assert (head.log_std.exp() > 0.5).all()


def test_a_policy_that_changes_too_fast_is_slowed_down_and_one_without_a_target_is_not() -> None:
    free, held = make(learning_rate=2e-3), make(desired_kl=1e-3, learning_rate=2e-3)
    changes = [[ppo.update(batch_of())["approx_kl"].item() for _ in range(30)] for ppo in (free, held)]
    assert (
        "learning_rate_scale" not in free.update(batch_of()) and free.optimizer.param_groups[0]["lr"] == 2e-3
    )
    assert held.update(batch_of())["learning_rate_scale"] < 0.5
    assert np.mean(changes[1][-10:]) < 0.5 * np.mean(changes[0][-10:])


def test_gradients_are_clipped_and_what_is_reported_is_the_norm_before() -> None:
    ppo = make(max_grad_norm=1e-3, epochs=1, minibatches=1)
    norm = ppo.update(batch_of())["grad_norm"].item()
    after = torch.nn.utils.get_total_norm(
        [parameter.grad for parameter in ppo.parameters if parameter.grad is not None]
    ).item()
    assert after == pytest.approx(1e-3, rel=1e-2) and norm > 1e-2


# -- learning ------------------------------------------------------------------------------------------------


def cued(ppo: PPO, rng: np.random.Generator, kind: str, trials: int = 64) -> tuple[Batch, float]:
    """Trials of two steps, played by the agent: row 0 shows +1 or -1, row 1 nothing, and there the action
    should name what row 0 showed.
    """
    cue = torch.from_numpy(rng.integers(2, size=trials))
    obs = torch.zeros(3, trials, 4)
    obs[0, :, 0] = 2.0 * cue - 1.0
    state, flags = ppo.agent.initial_state(trials), torch.zeros(3, trials, dtype=torch.bool)
    start, end, actions, previous = flags.clone(), flags.clone(), [], torch.zeros(trials, 2)
    start[0], end[2] = True, True
    previous = previous if kind == "continuous" else previous[:, 0].long()
    with torch.inference_mode():
        for t in range(3):
            rows = PolicyRows(obs[t], torch.zeros(trials), previous, start[t], start[t])
            action, _, state = ppo.agent.act(rows, state, torch.from_numpy(ppo.agent.draw_noise(rng, trials)))
            actions.append(action)
            previous = action
    taken = torch.stack(actions).clone()
    reward = torch.zeros(3, trials)
    if kind == "continuous":
        reward[2] = -(taken[1, :, 0] - (2.0 * cue - 1.0)).square().clamp(max=4.0)
    else:
        reward[2] = (taken[1] == cue).float()
    before = torch.cat([torch.zeros_like(taken[:1]), taken[:-1]])
    batch = Batch(obs, reward, flags, end, start, start, end, ~flags, before, taken, ~end)
    return batch, reward[2].mean().item()


@every_kind
@pytest.mark.parametrize(
    ("arch", "learns"), [(Arch.Memory, True), (Arch.Markov, False)], ids=["Memory", "Markov"]
)
def test_what_has_to_be_remembered_is_learned_with_a_memory_alone(
    arch: Arch, kind: str, learns: bool
) -> None:
    ppo, rng = (
        make(arch, kind, learning_rate=5e-3, discount=0.9, entropy_coef=0.0, agent={"hidden": [32]}),
        np.random.default_rng(0),
    )
    scores, metrics = [], {}
    for _ in range(80):
        batch, score = cued(ppo, rng, kind)
        scores.append(score)
        metrics = ppo.update(batch)
    assert (np.mean(scores[-10:]) > (-0.5 if kind == "continuous" else 0.9)) == learns
    assert np.mean(scores[:3]) < (-1.0 if kind == "continuous" else 0.7)
    assert metrics["entropy"].isfinite()


def test_the_surprise_of_a_trial_is_the_mean_of_its_gae_whatever_stands_beside_it() -> None:
    rollout = make_replay(capacity=9, kind=KINDS["discrete"], storage=RolloutBuffer)
    play(rollout, make_trials(4, 9, fall=0.3), num_slots=2, kind=KINDS["discrete"])
    ppo = make(kind="discrete")
    together = ppo.surprise(rollout.whole(0, 9, packed=False))
    for number in range(9):
        batch = ppo._with_targets(ppo.agent.normalise(rollout.whole(number, number + 1)))
        # The errors of the values before the update are GAE.
        alone = batch.extras["error"][batch.trains].abs().mean()
        assert together[number].item() == pytest.approx(alone.item(), rel=1e-4)
    assert together.std() > 0
