"""PPO's minibatches: every column once an epoch, gradients in parts, and windows that start from states."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from buffers.base import Batch
from policies.agents.base import Arch, Encoders
from policies.algorithms.ppo import PPO
from policies.memory import MEMORIES
from tests.policies.algorithms.test_ppo import batch_of, every_arch, every_kind, make, parameters


def test_every_column_is_in_one_minibatch_of_each_epoch_and_they_differ() -> None:
    ppo, batch = make(epochs=5, minibatches=3), batch_of()
    seen: list[list[int]] = []
    step = ppo._step

    def noting(batch: Batch, columns: Tensor) -> dict[str, Tensor]:
        seen.append(columns.tolist())
        return step(batch, columns)

    ppo._step = noting  # pyright: ignore[reportAttributeAccessIssue]
    ppo.update(batch)
    assert len(seen) == 15
    for epoch in range(5):
        assert sorted(column for columns in seen[3 * epoch : 3 * epoch + 3] for column in columns) == list(
            range(batch.shape[1])
        )
    assert len({tuple(columns) for columns in seen}) > 5


@pytest.mark.parametrize("memory", ["GRU", "LSTM"])
def test_a_gradient_in_parts_is_the_gradient_and_its_bits_do_not_depend_on_threads(memory: str) -> None:
    whole, *parts = (make(memory=memory, parts=count) for count in (1, 2, 2, 3))
    for ppo in (whole, *parts):
        for seed in range(3):
            ppo.update(batch_of(seed=seed))
    assert all(
        torch.equal(one, other) for one, other in zip(parameters(parts[0]), parameters(parts[1]), strict=True)
    )
    for ppo in parts:
        for one, other in zip(parameters(ppo), parameters(whole), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_large_minibatches_are_learned_in_two_parts_by_memories_that_read_them_in_few_calls() -> None:
    def parts(ppo: PPO, rows: int) -> int:
        return len(ppo._split(torch.arange(16), rows))

    assert [parts(make(memory=memory), 400) for memory in ("LSTM", "GRU", "Transformer")] == [2, 1, 2]
    assert parts(make(Arch.Markov), 400) == 2 and parts(make(Arch.Markov), 42) == 1
    assert parts(make(memory="GRU", parts=3), 42) == 3 and parts(make(parts=99), 42) == 16


# -- windows -------------------------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("encoders", Encoders, ids=lambda encoders: encoders.name)
@pytest.mark.parametrize("memory", [name for name, kind in MEMORIES.items() if kind.stores_state])
def test_windows_start_from_what_was_remembered_there(memory: str, kind: str, encoders: Encoders) -> None:
    """They say of every row what whole columns say, those of trials packed one after another too; and each
    row that trains is in one of them.
    """
    ppo = make(kind=kind, memory=memory, window=4, parts=2, agent={"encoders": encoders})
    whole = make(kind=kind, memory=memory, agent={"encoders": encoders})
    batch = batch_of(kind)
    assert batch.trial_start[1:].any(), "packed"
    cut, uncut = (one._with_targets(one.agent.normalise(batch)) for one in (ppo, whole))
    assert cut.shape[0] == 4 and int(cut.trains.sum()) == int(batch.trains.sum()) and cut.trains.any(0).all()
    with torch.no_grad():
        outputs = ppo.agent.unroll(cut)
    value = ppo.agent.critic.head(outputs.critic)[cut.trains]
    torch.testing.assert_close(value, cut.extras["value"][cut.trains])
    torch.testing.assert_close(
        outputs.policy.log_prob(cut.action)[cut.trains], cut.extras["log_prob"][cut.trains]
    )
    for name in ("value", "advantage", "log_prob", "target"):
        ours, theirs = (one.extras[name][one.trains].sort().values for one in (cut, uncut))
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_window_as_long_as_the_columns_changes_nothing_but_their_names() -> None:
    whole, cut = make(), make(window=50)
    for ppo in (whole, cut):
        ppo.update(batch_of())
    for one, other in zip(parameters(whole), parameters(cut), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@every_arch
def test_windows_are_learned_from_by_all_architectures(arch: Arch) -> None:
    ppo = make(arch, window=3)
    before = parameters(ppo)
    for seed in range(3):
        assert all(value.isfinite() for value in ppo.update(batch_of(seed=seed)).values())
    assert all(not torch.equal(one, other) for one, other in zip(before, parameters(ppo), strict=True))


def test_a_memory_without_a_state_has_no_windows() -> None:
    with pytest.raises(ValueError, match=r"memory=Transformer has no state .* use algorithm.window=0"):
        make(memory="Transformer", window=4)
    assert make(Arch.Markov, memory="Transformer", window=4)
