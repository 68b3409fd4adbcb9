"""The host of shards lets no number through that is none in float32, and every other."""

from __future__ import annotations

import numpy as np
import pytest

from envs.backends.base import Block
from envs.backends.shard_host import FEW, FLOAT32_MAX, ShardHost
from envs.base import SlotError
from envs.layout import Layout
from tests.toys import CountingFamily


@pytest.mark.parametrize("num_slots", [2, FEW + 1])
@pytest.mark.parametrize(
    ("value", "passes"),
    [(-1e20, True), (FLOAT32_MAX, True), (np.nan, False), (-np.inf, False), (np.inf, False)],
)
@pytest.mark.parametrize("where", ["reward", "obs"])
def test_what_is_no_number_is_refused_by_its_slot_and_large_numbers_are_not(
    where: str, value: float, passes: bool, num_slots: int
) -> None:
    layout = Layout(CountingFamily().spec, with_flag=True)
    rows, slots = layout.allocate(num_slots), np.arange(num_slots)
    host = ShardHost([Block(CountingFamily, 0, num_slots)], layout, rows)
    host.check(slots)
    getattr(rows, where)[1] = value
    if passes:
        host.check(slots)
    else:
        with pytest.raises(
            SlotError, match=f"the {'reward' if where == 'reward' else 'observation'} is not finite"
        ) as refused:
            host.check(slots)
        assert refused.value.slot == 1
        host.check(slots[:1])  # what was not stepped is nobody's fault
    host.close()
