"""One copy to the device in a round of acting: all that is needed of the rows, the same numbers, and nothing
else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from envs.parallel_env_manager import ParallelEnvManager
from policies.agents.base import PolicyRows
from policies.collection.actors import AgentActor
from policies.collection.staging import Staging, rows_from_tensors, tensors_of_rows
from policies.learner import Learner
from tests.runs import digest, stored_rows, tiny_config

PICTURES = {
    "family": "PassiveVisualMatch",
    "env": {"max_rollouts_per_task": 2, "max_episode_steps": 9, "num_eval_tasks": 2, "apple_steps": 3},
}


class Crossings(TorchDispatchMode):
    """Counts the operations in which numbers go from the host to another device."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = [part for part in args if isinstance(part, Tensor)]
        onto = result.device.type if isinstance(result, Tensor) else "cpu"
        self.count += onto == "meta" and any(part.device.type == "cpu" for part in tensors)
        return result


class Elsewhere:
    """An agent on a device without numbers, which answers on the host."""

    def __init__(self) -> None:
        self.seen: list[Tensor] = []

    def initial_state(self, num_slots: int) -> dict[str, Tensor]:
        return {"hidden": torch.zeros(num_slots, 4, device="meta")}

    def draw_noise(self, rng: Any, num_rows: int) -> Any:
        return rng.standard_normal((num_rows, 2)).astype("float32")

    def act(
        self, rows: PolicyRows, state: Any, noise: Tensor, deterministic: bool
    ) -> tuple[Tensor, dict[str, Tensor], Any]:
        self.seen = [*tensors_of_rows(rows).values(), noise]
        return torch.zeros(len(noise), 2), {}, {"hidden": state["hidden"] + 1}


@pytest.mark.parametrize("options", [{}, PICTURES], ids=["vector", "pictures"])
def test_acting_sends_all_of_a_round_to_the_device_at_once(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ParallelEnvManager, "may_lag", True)  # so that it needs to know which rows are there
    with Learner(tiny_config(**options)) as learner:
        agent, manager = Elsewhere(), learner.environments.training
        actor = AgentActor(agent, device="meta").for_group(manager, manager.groups[0])  # pyright: ignore[reportArgumentType]
        noise = agent.draw_noise(learner._sampling, manager.groups[0].size)
        with torch.inference_mode(), Crossings() as crossings:
            actor.act(noise)
            actor.act(noise)
    assert crossings.count == 2
    assert {part.device.type for part in agent.seen} == {"meta"}


@pytest.mark.parametrize("options", [{}, PICTURES], ids=["vector", "pictures"])
def test_what_is_staged_acts_as_what_is_not(options: dict[str, Any]) -> None:
    found = []
    for staged in (False, True):
        with Learner(tiny_config(**options)) as learner:
            if staged:
                learner.context = replace(learner.context, device="cpu:0")  # another name is another device
            learner.collect_rollouts_parallel(7)
            found.append(digest(stored_rows(learner)))
    assert found[0] == found[1]


def test_rows_keep_their_shapes_types_and_numbers() -> None:
    flags = torch.tensor([True, False, True])
    rows = PolicyRows(
        {"image": torch.arange(3 * 5, dtype=torch.uint8).view(3, 5), "flag": torch.rand(3, 1)},
        torch.rand(3),
        flags.long(),
        flags,
        ~flags,
    )
    parts = tensors_of_rows(rows)
    image = Staging(parts, "cpu").send(parts)
    again = tensors_of_rows(rows_from_tensors(image))
    assert list(again) == list(parts)
    for name, part in parts.items():
        assert (
            again[name].dtype == part.dtype
            and torch.equal(again[name], part)
            and again[name].data_ptr() != part.data_ptr()
        )


def test_the_image_is_made_once_and_follows() -> None:
    part = torch.rand(4, 3)
    staging = Staging({"obs": part}, "cpu")
    first = staging.send({"obs": part})["obs"]
    part += 1
    assert staging.send({"obs": part})["obs"] is first and torch.equal(first, part)
