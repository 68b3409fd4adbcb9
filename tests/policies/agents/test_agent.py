"""What every agent promises, for all architectures and memories: above all, that acting equals unrolling."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from buffers.base import Batch, Needs, Sample
from buffers.replay import Replay
from envs.base import Rows
from envs.interop.spaces import MASK_KEY
from policies.agents import AGENT_ARCHS
from policies.agents.agent import Agent
from policies.agents.base import Arch, Conditioning, PolicyRows
from policies.agents.heads import QHead, QOfChoicesHead
from policies.memory import MEMORIES
from tests.policies.agents.test_conditioning import stir
from tests.trials import (
    ACTION_SPACE,
    KINDS,
    OBS_SPACE,
    PLAIN,
    Kind,
    make_replay,
    make_spec,
    make_trials,
    play,
)

# Of log-probabilities between steps of N rows and one unroll.
TOLERANCE = 1e-4
# Rewards of thousands would saturate a memory, and hide what it forgets.
SCALE = 1e-3

every_arch = pytest.mark.parametrize("arch", AGENT_ARCHS, ids=lambda arch: arch.name)
every_memory = pytest.mark.parametrize("memory", MEMORIES)
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def make(
    arch: Arch, memory: str = "GRU", *, kind: Kind = PLAIN, extras: tuple[str, ...] = (), **changes: Any
) -> Agent:
    head = QOfChoicesHead if isinstance(kind.action_space, spaces.Discrete) else QHead
    return Agent(make_spec(arch, memory, kind, **changes), head, extras=extras)


def seen(rows: Rows) -> PolicyRows:
    obs = (
        {key: torch.as_tensor(part) for key, part in rows.obs.items()}
        if isinstance(rows.obs, dict)
        else torch.as_tensor(rows.obs)
    )
    return PolicyRows(
        obs,
        torch.as_tensor(rows.reward).float(),
        *map(torch.as_tensor, (rows.prev_action, rows.episode_start, rows.trial_start)),
    )


def acted(
    agent: Agent, *, num_slots: int, deterministic: bool = False, kind: Kind = PLAIN
) -> tuple[Replay, dict[tuple[int, int], tuple[float, NDArray[Any]]]]:
    """A wave of staggered trials played by the agent: the replay, and by (trial, row) what act() said:
    (log-probability, action).
    """
    replay, trials = make_replay(capacity=7, kind=kind), make_trials(2, 7, fall=0.3, scale=SCALE)
    said: dict[tuple[int, int], tuple[float, NDArray[Any]]] = {}
    state, rng = agent.initial_state(num_slots), np.random.default_rng(0)

    def policy(rows: Rows, trial: NDArray[np.int64], time: NDArray[np.int64]) -> NDArray[Any]:
        nonlocal state
        noise = torch.from_numpy(agent.draw_noise(rng, num_slots))
        with torch.inference_mode():
            action, extras, state = agent.act(seen(rows), state, noise, deterministic)
        for slot in np.flatnonzero(trial >= 0):
            said[int(trial[slot]), int(time[slot])] = (
                float(extras["log_prob"][slot]),
                action[slot].numpy().copy(),
            )
        return action.numpy()

    play(replay, trials, num_slots=num_slots, policy=policy, kind=kind)
    return replay, said


def trials_of(replay: Replay, seed: int = 0) -> Batch:
    return replay.sample(
        Needs(on_policy=False, sample=Sample.trials, batch_size=16), np.random.default_rng(seed)
    )


@every_arch
@every_memory
@every_kind
@pytest.mark.parametrize("num_slots", [1, 3])
def test_acting_step_by_step_gives_the_log_probabilities_that_unroll_computes(
    arch: Arch, memory: str, kind: Kind, num_slots: int
) -> None:
    agent = make(arch, memory, kind=kind, extras=("log_prob",))
    replay, said = acted(agent, num_slots=num_slots, kind=kind)
    batch = trials_of(replay)
    log_prob = agent.unroll(batch).policy.log_prob(batch.action)
    assert len({round(value[0], 3) for value in said.values()}) > 10
    for t, column in batch.valid.nonzero().tolist():
        trial = round(batch.reward[1, column].item() / (1000 * SCALE))  # the first reward of trial 6 is 6001
        then, action = said[trial, t]
        assert log_prob[t, column].item() == pytest.approx(then, abs=TOLERANCE)
        np.testing.assert_array_equal(batch.action[t, column].numpy(), action)


@every_memory
@pytest.mark.parametrize(
    "conditioning", [Conditioning.film, Conditioning.hypernetwork], ids=lambda one: one.name
)
def test_acting_is_what_unrolling_says_where_what_is_remembered_changes_the_heads(
    memory: str, conditioning: Conditioning
) -> None:
    agent = make(
        Arch.Memory, memory, conditioning=conditioning, hyper_embedding=3, hidden=[5, 4], extras=("log_prob",)
    )
    before = agent.unroll(trials_of(acted(agent, num_slots=3)[0])).policy.mode()
    torch.manual_seed(0)
    stir(agent, 0.2)
    replay, said = acted(agent, num_slots=3)
    batch = trials_of(replay)
    policy = agent.unroll(batch).policy
    assert not torch.allclose(policy.mode(), before)
    log_prob = policy.log_prob(batch.action)
    for t, column in batch.valid.nonzero().tolist():
        value, _ = said[round(batch.reward[1, column].item() / (1000 * SCALE)), t]
        assert log_prob[t, column].item() == pytest.approx(value, abs=TOLERANCE)


@every_memory
@pytest.mark.parametrize("kind", [PLAIN, KINDS["discrete"]], ids=["continuous", "discrete"])
@pytest.mark.parametrize("name", ["obs", "reward", "prev_action", "trial_start"])
def test_acting_does_not_equal_unrolling_other_rows(memory: str, kind: Kind, name: str) -> None:
    agent = make(Arch.Memory, memory, kind=kind, extras=("log_prob",))
    batch = trials_of(acted(agent, num_slots=3, kind=kind)[0])
    spoilt = getattr(batch, name).clone()
    spoilt[3] = True if name == "trial_start" else spoilt[3] + 3
    log_prob, other = (
        agent.unroll(one).policy.log_prob(batch.action) for one in (batch, replace(batch, **{name: spoilt}))
    )
    torch.testing.assert_close(log_prob[:3], other[:3], rtol=0, atol=TOLERANCE)
    assert (log_prob - other)[3:].abs().max() > 10 * TOLERANCE


@every_memory
@pytest.mark.parametrize(
    "change", [deepcopy, lambda agent: deepcopy(agent).double().float()], ids=["copied", "converted"]
)
def test_an_agent_that_was_copied_or_moved_uses_its_own_parameters(
    memory: str, change: Callable[[Agent], Agent]
) -> None:
    """Layers are applied through references kept beside the modules; a stale one would act, or be a target,
    with somebody else's weights.
    """
    agent = make(Arch.Memory, memory, extras=("log_prob",))
    batch = trials_of(acted(agent, num_slots=3)[0])

    def says(one: Agent) -> torch.Tensor:
        outputs = one.unroll(batch)
        return torch.cat(
            [outputs.policy.mode(), one.critic.head(outputs.critic, batch.action).permute(1, 2, 0)], -1
        )

    before, other = says(agent), change(agent)
    torch.testing.assert_close(says(other), before)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    assert not says(other).any(), "nothing but zeros is left in the copy"
    assert torch.equal(says(agent), before), "and nothing of it was the original's"


@every_arch
@every_kind
def test_deterministic_acting_is_the_mode_of_what_unroll_computes(arch: Arch, kind: Kind) -> None:
    agent = make(arch, kind=kind, extras=("log_prob",))
    batch = trials_of(acted(agent, num_slots=3, deterministic=True, kind=kind)[0])
    torch.testing.assert_close(
        agent.unroll(batch).policy.mode()[batch.valid], batch.action[batch.valid], rtol=0, atol=TOLERANCE
    )


@every_arch
def test_who_remembers(arch: Arch) -> None:
    agent = make(arch)
    batch = trials_of(acted(make(Arch.Markov, extras=("log_prob",)), num_slots=3)[0])
    outputs = agent.unroll(batch)
    assert (outputs.actor.context.shape[-1] > 0) == (arch is Arch.Memory)
    assert (outputs.critic.context.shape[-1] > 0) == (arch is not Arch.Markov)
    assert bool(agent.initial_state(3)) == (arch is Arch.Memory)
    assert all(leaf.shape[0] == 3 for leaf in agent.initial_state(3).values())


def test_the_hidden_state_outlives_an_episode_and_is_cleared_at_the_start_of_a_trial() -> None:
    agent = make(Arch.Memory)
    starts = torch.tensor([True, True])
    rows = PolicyRows(torch.zeros(2, 4), torch.zeros(2), torch.zeros(2, 2), starts, starts)
    noise = torch.zeros(2, 2)
    _, _, first = agent.act(rows, agent.initial_state(2), noise)
    _, _, again = agent.act(rows, {key: leaf + 1 for key, leaf in first.items()}, noise)
    assert torch.equal(first["hidden"], again["hidden"]), "a trial's start knows nothing of what was before"
    _, _, mixed = agent.act(replace(rows, trial_start=torch.tensor([False, True])), first, noise)
    assert not torch.equal(mixed["hidden"][0], first["hidden"][0]), (
        "a new episode is read on top of what is remembered"
    )
    assert torch.equal(mixed["hidden"][1], first["hidden"][1])


def test_the_first_parameters_are_a_function_of_the_seed_and_leave_the_global_generator_alone() -> None:
    state = torch.get_rng_state()
    first, same, other = (
        Agent(replace(make_spec(Arch.Memory), seed=seed), QHead).state_dict() for seed in (0, 0, 1)
    )
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(first[key], same[key]) for key in first)
    assert not torch.equal(
        first["actor.head.nets.0.layers.0.weight"], other["actor.head.nets.0.layers.0.weight"]
    )


@pytest.mark.parametrize(
    ("kind", "width"), [(PLAIN, 2), (KINDS["discrete"], 3)], ids=["continuous", "discrete"]
)
def test_the_noise_of_a_trial_is_a_function_of_its_generator(kind: Kind, width: int) -> None:
    agent = make(Arch.Markov, kind=kind)
    first, same, other = (agent.draw_noise(np.random.default_rng(seed), 5) for seed in (0, 0, 1))
    assert (first.shape, first.dtype) == ((5, width), np.float32)
    assert np.array_equal(first, same)
    assert not np.array_equal(first, other)


@every_arch
def test_what_is_forbidden_is_never_done(arch: Arch) -> None:
    kind = KINDS["discrete-masked"]
    for deterministic in (False, True):
        agent = make(arch, kind=kind, extras=("log_prob",))
        batch = trials_of(acted(agent, num_slots=3, deterministic=deterministic, kind=kind)[0])
        assert isinstance(batch.obs, dict)
        taken = batch.obs[MASK_KEY].gather(-1, batch.action[..., None])[..., 0]
        assert (taken[batch.valid] == 1).all()
        assert (batch.obs[MASK_KEY][batch.valid] == 0).any(), "something is forbidden"
        probs = agent.unroll(batch).policy.log_probs.exp()  # pyright: ignore[reportAttributeAccessIssue]
        assert torch.equal(probs[batch.valid] == 0, batch.obs[MASK_KEY][batch.valid] == 0)


def test_a_mask_is_no_part_of_what_is_encoded() -> None:
    kind = KINDS["discrete-masked"]
    agent = make(Arch.Memory, kind=kind, extras=("log_prob",))
    batch = trials_of(acted(agent, num_slots=3, kind=kind)[0])
    assert isinstance(batch.obs, dict)
    other = replace(batch, obs=batch.obs | {MASK_KEY: torch.ones_like(batch.obs[MASK_KEY])})
    before, after = agent.unroll(batch), agent.unroll(other)
    assert torch.equal(before.actor.obs, after.actor.obs) and torch.equal(
        before.actor.context, after.actor.context
    )
    assert not torch.equal(before.policy.log_prob(batch.action), after.policy.log_prob(batch.action))


@pytest.mark.parametrize(
    ("spaces_of", "text"),
    [
        ({"obs_space": spaces.Dict({"a": OBS_SPACE, "b": spaces.Discrete(3)})}, "vectors and pictures"),
        (
            {
                "obs_space": spaces.Dict({MASK_KEY: spaces.Box(0, 1, (3,), np.int8)}),
                "action_space": spaces.Discrete(3),
            },
            "vectors and pictures",
        ),
        (
            {
                "obs_space": spaces.Dict({"a": OBS_SPACE, MASK_KEY: spaces.Box(0, 1, (3,), np.int8)}),
                "action_space": spaces.Discrete(4),
            },
            "one number for each action",
        ),
        (
            {"action_space": spaces.MultiDiscrete(np.array([[3, 2]]))},
            "one of n actions or several of them",
        ),
        ({"action_space": spaces.MultiDiscrete([3, 2], start=[0, 1])}, "counted from 0"),
        (
            {
                "obs_space": spaces.Dict({"a": OBS_SPACE, MASK_KEY: spaces.Box(0, 1, (6,), np.int8)}),
                "action_space": spaces.MultiDiscrete([3, 2]),
            },
            "one number for each action",
        ),
        ({"action_space": spaces.Box(-1, 1, (2, 2), np.float32)}, "flatten it in a wrapper"),
        ({"action_space": spaces.Box(-2, 2, (1,), np.float32)}, r"\[-1, 1\]"),
    ],
)
def test_spaces_without_a_part_for_them_are_refused_in_one_sentence(
    spaces_of: dict[str, spaces.Space[object]], text: str
) -> None:
    with pytest.raises(ValueError, match=text) as caught:
        Agent(replace(make_spec(Arch.Memory), **spaces_of), QHead)
    assert "\n" not in str(caught.value)
    assert make_spec(Arch.Memory).action_space == ACTION_SPACE


def test_an_extra_that_act_cannot_record_is_refused() -> None:
    with pytest.raises(ValueError, match="log_prob, not colour"):
        make(Arch.Memory, extras=("colour",))
