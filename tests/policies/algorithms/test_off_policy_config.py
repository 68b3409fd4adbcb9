"""Which rows off-policy algorithms ask for, and which of their options contradict one another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from buffers.base import Needs, Sample
from policies.agents.base import AgentConfig, Arch, Conditioning
from policies.algorithms import ALGORITHMS
from policies.algorithms.off_policy import OffPolicy
from policies.algorithms.off_policy_config import OffPolicyConfig, WindowStart
from tests.policies.algorithms.test_off_policy import KIND, NAMES, batch_for, every_name, make
from tests.trials import KINDS, make_spec


@every_name
def test_what_it_needs(name: str) -> None:
    kind = ALGORITHMS[name]
    config: Any = kind.Config(name=name, batch_size=5, transitions_batch_size=7)  # pyright: ignore[reportCallIssue]
    assert kind.needs(config, Arch.Markov) == Needs(on_policy=False, sample=Sample.transitions, batch_size=7)
    for arch in (Arch.Memory, Arch.Memory_Markov):
        assert kind.needs(config, arch) == Needs(on_policy=False, sample=Sample.trials, batch_size=5)
        windows = Needs(on_policy=False, sample=Sample.windows, batch_size=5, window=9, burn_in=2)
        assert kind.needs(replace(config, window=9, burn_in=2), arch) == windows


@every_name
def test_impossible_ensembles_and_windows_are_refused_in_one_sentence(name: str) -> None:
    with pytest.raises(
        ValueError, match=r"^algorithm.critics_in_target=5 is more than algorithm.critics=4\.$"
    ):
        make(name, Arch.Markov, critics=4, critics_in_target=5)
    with pytest.raises(
        ValueError,
        match=r"^algorithm.burn_in=3 goes before a window, and algorithm.window=0 takes whole trials\.$",
    ):
        make(name, Arch.Memory, burn_in=3)


@every_name
def test_stored_states_that_nothing_could_start_from_are_refused_in_one_sentence(name: str) -> None:
    kind, stored = ALGORITHMS[name], WindowStart.stored
    config: Any = kind.Config(name=name, window=8, burn_in=4, window_start=stored)  # pyright: ignore[reportCallIssue]
    assert kind.needs(config, Arch.Memory).state_every == 4
    assert kind.needs(replace(config, state_every=2), Arch.Memory).state_every == 2
    assert (
        kind.needs(config, Arch.Markov).state_every
        == kind.needs(replace(config, window_start=WindowStart.zero), Arch.Memory).state_every
        == 0
    )
    refused: list[tuple[dict[str, Any], str]] = [
        ({"window": 0}, r"window=0 takes whole trials, which start with nothing remembered: use zero\.$"),
        (
            {"window": 8, "burn_in": 6},
            r"^algorithm.state_every=null, which is 4, does not divide .* use 2 or what divides that\.$",
        ),
        (
            {"window": 8, "state_every": 3},
            r"^algorithm.state_every=3 does not divide algorithm.window=8 .* use 8 or what divides that\.$",
        ),
    ]
    for options, sentence in refused:
        with pytest.raises(ValueError, match=sentence):
            make(name, Arch.Memory, window_start=stored, **options)
    spec = make_spec(Arch.Memory, "Transformer", kind=KINDS[KIND[name]])
    with pytest.raises(
        ValueError,
        match=r"^memory=Transformer has no state .*: use algorithm.window_start=zero, or algorithm.window=0",
    ):
        kind.make_agent(config, spec)
    kind.make_agent(replace(config, window_start=WindowStart.zero), spec)
    assert any(
        "in agent=Memory_Markov it remembers nothing" in one
        for one in kind.problems(config, AgentConfig(arch=Arch.Memory_Markov))
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("arch", [Arch.Markov, Arch.Memory], ids=lambda arch: arch.name)
def test_normalised_critics_learn_with_all_their_parameters(name: str, arch: Arch) -> None:
    algorithm = make(name, arch, critic_layer_norm=True)
    norms = {key: value.clone() for key, value in algorithm.agent.critic.named_parameters() if "norms" in key}
    for _ in range(3):
        algorithm.update(batch_for(algorithm))
    after = dict(algorithm.agent.critic.named_parameters())
    assert norms and not any(torch.equal(before, after[key]) for key, before in norms.items())


def test_normalised_critics_are_for_plain_layers() -> None:
    agent = AgentConfig(conditioning=Conditioning.film)
    (problem,) = OffPolicy.problems(OffPolicyConfig(critic_layer_norm=True), agent)
    assert "agent.conditioning=film has others" in problem
