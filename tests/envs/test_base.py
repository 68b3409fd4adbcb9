"""Rows and observations: copies, and maps over one array or a dict of arrays."""

from __future__ import annotations

import numpy as np

from envs.base import arrays_of, map_obs, paired_arrays
from envs.layout import Layout
from tests.toys import DictCountingFamily


def test_a_copy_of_rows_is_not_overwritten() -> None:
    rows = Layout(DictCountingFamily().spec).allocate(2)
    copy = rows.copy()
    rows.reward[:] = 1
    assert isinstance(rows.obs, dict) and isinstance(copy.obs, dict)
    rows.obs["where"][:] = 1
    assert not copy.reward.any() and not copy.obs["where"].any()


def test_an_observation_is_changed_array_by_array_whether_it_is_one_or_a_dict() -> None:
    one, both = np.arange(3), {"place": np.arange(2), "picture": np.ones(4)}
    (grown,) = arrays_of(map_obs(lambda part: part + 1, one))
    assert grown.tolist() == [1, 2, 3]
    changed = map_obs(lambda part: part * 2, both)
    assert list(changed) == ["place", "picture"] and changed["place"].tolist() == [0, 2]
    assert arrays_of(one) == [one] and [len(part) for part in arrays_of(both)] == [2, 4]


def test_two_observations_are_walked_together_by_name() -> None:
    one, both = np.arange(3), {"place": np.arange(2), "picture": np.ones(4)}
    assert [(first is one, second) for first, second in paired_arrays(one, 5)] == [(True, 5)]
    pairs = paired_arrays(both, {"picture": "p", "place": "q"})
    assert [(len(first), second) for first, second in pairs] == [(2, "q"), (4, "p")]
