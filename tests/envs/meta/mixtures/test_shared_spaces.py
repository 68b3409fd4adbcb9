"""One space for all parts: what each part shows comes back unchanged, and the rest is zero or masked."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from envs.base import ActionSpace, EnvSpec, Obs, ObsSpace
from envs.meta.mixtures.shared_spaces import SharedActions, SharedObs
from utils.options import OptionError

THREE, PAIR = spaces.Box(-1.0, 2.0, (3,), np.float32), spaces.Box(0.0, 9.0, (2,), np.float32)
PICTURE = spaces.Box(0, 255, (4, 5, 3), np.uint8)
SMALL_PICTURE = spaces.Box(0, 255, (2, 2, 3), np.uint8)
SLOTS = np.array([0, 2])


def spec_of(obs: ObsSpace, actions: ActionSpace = spaces.Discrete(3)) -> EnvSpec:  # noqa: B008 - no state
    return EnvSpec("Part", obs, actions, 1)


def shared(*specs: EnvSpec, show_part: bool = True) -> SharedObs:
    names = [f"part{number}" for number in range(len(specs))]
    return SharedObs(specs, SharedActions(names, specs), show_part=show_part)


def equal(one: Obs, other: Obs) -> bool:
    assert isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
    return np.array_equal(one, other)


def written(obs: SharedObs, part: int, shown: Obs) -> Obs:
    """The rows of three slots that were full of ones before slots 0 and 2 were written."""
    space = obs.space
    if isinstance(space, spaces.Dict):
        rows: Obs = {key: np.ones((3, *(box.shape or ())), box.dtype) for key, box in space.spaces.items()}
    else:
        rows = np.ones((3, *space.shape), space.dtype)
    obs.write(rows, part, SLOTS, shown)
    return rows


def test_vectors_become_one_vector_with_the_part_behind_it() -> None:
    obs = shared(spec_of(THREE), spec_of(PAIR))
    assert isinstance(obs.space, spaces.Box)
    assert obs.space.low.tolist() == [-1, -1, -1, 0, 0] and obs.space.high.tolist() == [9, 9, 2, 1, 1]
    shown = np.array([[5, 6], [0, 0], [7, 8]], np.float32)
    rows = written(obs, 1, shown)
    assert isinstance(rows, np.ndarray)
    assert rows.tolist() == [[5, 6, 0, 0, 1], [1, 1, 1, 1, 1], [7, 8, 0, 0, 1]]
    assert equal(obs.read(rows[SLOTS], 1), shown[SLOTS])


def test_a_hidden_part_leaves_no_trace() -> None:
    obs = shared(spec_of(THREE), spec_of(PAIR), show_part=False)
    assert obs.space.shape == (3,)
    shown = np.zeros((3, 3), np.float32)
    assert equal(written(obs, 0, shown), written(obs, 1, shown[:, :2]))


def test_pictures_and_vectors_stand_in_a_dict_with_zeros_where_a_part_shows_nothing() -> None:
    obs = shared(spec_of(PICTURE), spec_of(SMALL_PICTURE), spec_of(PAIR))
    assert isinstance(obs.space, spaces.Dict)
    assert {key: box.shape for key, box in obs.space.spaces.items()} == {
        "picture": (4, 5, 3),
        "vector": (2,),
        "part": (3,),
    }
    rows = written(obs, 1, np.full((3, 2, 2, 3), 9, np.uint8))
    assert isinstance(rows, dict) and rows["picture"].dtype == np.uint8
    assert rows["picture"][0, :2, :2].min() == 9 and rows["picture"][0].sum() == 9 * 12
    assert rows["picture"][1].min() == 1 and rows["vector"].tolist() == [[0, 0], [1, 1], [0, 0]]
    assert rows["part"][0].tolist() == [0, 1, 0]
    assert equal(obs.read({key: rows[key][SLOTS] for key in rows}, 1), np.full((2, 2, 2, 3), 9))


def test_choices_that_a_part_lacks_are_masked() -> None:
    masked = spaces.Dict({"vector": PAIR, "action_mask": spaces.Box(0, 1, (2,), np.int8)})
    obs = shared(spec_of(THREE, spaces.Discrete(3)), spec_of(masked, spaces.Discrete(2)))
    rows = written(obs, 0, np.zeros((3, 3), np.float32))
    assert isinstance(rows, dict) and rows["action_mask"][0].tolist() == [1, 1, 1]
    own = {"vector": np.zeros((3, 2), np.float32), "action_mask": np.array([[0, 1]] * 3, np.int8)}
    rows = written(obs, 1, own)
    assert isinstance(rows, dict) and rows["action_mask"][2].tolist() == [0, 1, 0]


def test_parts_with_the_same_choices_need_no_mask() -> None:
    assert isinstance(shared(spec_of(THREE), spec_of(PAIR)).space, spaces.Box)


def test_a_part_reads_the_first_numbers_of_a_continuous_action_and_has_the_first_choices() -> None:
    boxes = [spec_of(PAIR, spaces.Box(-1.0, 1.0, (size,), np.float32)) for size in (1, 3)]
    actions = SharedActions(["a", "b"], boxes)
    assert actions.space == spaces.Box(-1.0, 1.0, (3,), np.float32)
    assert actions.of_part(0, np.array([[1, 2, 3]])).tolist() == [[1]]
    assert actions.from_part(np.array([[4.0]])).tolist() == [[4, 0, 0]]
    choices = SharedActions(["a", "b"], [spec_of(PAIR, spaces.Discrete(size)) for size in (2, 5)])
    assert choices.space == spaces.Discrete(5)
    assert choices.of_part(0, np.array([0, 1, 4])).tolist() == [0, 1, 1]


def test_several_choices_at_once_are_mixed_where_they_are_the_same() -> None:
    several = spaces.MultiDiscrete([2, 3])
    assert SharedActions(["a", "b"], [spec_of(PAIR, several)] * 2).space == several


@pytest.mark.parametrize("other", [THREE, spaces.MultiDiscrete([2, 2])], ids=["box", "several"])
def test_discrete_and_other_actions_are_refused(other: ActionSpace) -> None:
    with pytest.raises(OptionError, match=r"cannot choose the actions of all parts: a Discrete\(3\), b "):
        SharedActions(["a", "b"], [spec_of(PAIR), spec_of(PAIR, other)])


def test_observations_that_cannot_be_padded_are_refused() -> None:
    odd = spaces.Dict({"vector": SMALL_PICTURE})
    with pytest.raises(OptionError, match="'vector' in shapes of different kinds"):
        shared(spec_of(PAIR), spec_of(odd))
    named = spaces.Dict({"part": PAIR})
    with pytest.raises(OptionError, match="give show_part=false"):
        shared(spec_of(PAIR), spec_of(named))
    assert shared(spec_of(PAIR), spec_of(named), show_part=False)
