"""GymnasiumShard: nothing of a third-party environment is stored that was not checked, and its habits do not reach
the rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import Autoreset, TimeLimit

from envs.base import SlotError
from envs.interop.gymnasium_shard import FINAL_OBS, TaskSetter
from tests.toys_gym import (
    Altered,
    CountingEnv,
    MaskedEnv,
    OneBufferEnv,
    PictureEnv,
    SameStepAutoreset,
    TaskEnv,
    act,
    bound_shard,
    start,
)

STILL = np.zeros((1, 2), np.float32)


def noise_of(seed: int) -> float:
    env = CountingEnv()
    env.reset(seed=seed)
    return env.noise


# -- what is stored ------------------------------------------------------------------------------------------


def test_rows_are_the_environments_own_numbers() -> None:
    shard, rows = bound_shard(CountingEnv, 3, info_names=("t",))
    start(shard, [0, 1, 2], seeds=[5, 6, 7])
    assert isinstance(rows.obs, np.ndarray) and rows.obs.dtype == np.float32
    assert rows.obs.tolist() == [[0.0, np.float32(noise_of(seed)), 0.0, 0.0] for seed in (5, 6, 7)]
    act(shard, [0, 2], [[0.5, 0.0], [-0.25, 0.0]])
    assert rows.obs[:, 2].tolist() == [1.0, 0.0, 1.0]
    assert rows.obs[:, 3].tolist() == [0.5, 0.0, -0.25]
    assert rows.reward.tolist() == [1.5, 0.0, 1.5]
    assert rows.info[:, 0].tolist() == [1.0, 0.0, 1.0], "a number that the reset's info has not is 0"


def test_the_same_seed_gives_the_same_episode_in_any_slot_at_any_time() -> None:
    shard, rows = bound_shard(CountingEnv, 2)
    assert isinstance(rows.obs, np.ndarray)
    start(shard, [0, 1], seeds=[2**63 + 11, 12])
    first = rows.obs[0].copy()
    act(shard, [0, 1], np.zeros((2, 2), np.float32))
    start(shard, [1], seeds=[2**63 + 11])
    assert rows.obs[1].tobytes() == first.tobytes()
    start(shard, [1], seeds=[2**63 + 10])
    assert rows.obs[1].tobytes() != first.tobytes()


def test_seeds_fit_into_a_signed_int_of_c() -> None:
    seen: list[int] = []

    class Watched(CountingEnv):
        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            seen.append(seed or 0)
            return super().reset(seed=seed, options=options)

    shard, _ = bound_shard(Watched)
    start(shard, [0], seeds=[2**64 - 1])
    assert seen == [2**31 - 1]


def test_an_environment_that_uses_one_buffer_does_not_change_what_was_stored() -> None:
    shard, rows = bound_shard(OneBufferEnv, 2)
    assert isinstance(rows.obs, np.ndarray)
    start(shard, [0, 1], seeds=[1, 2])
    assert rows.obs[:, 1].tolist() == [np.float32(noise_of(1)), np.float32(noise_of(2))]
    before = rows.obs[0].copy()
    act(shard, [1], STILL)
    assert rows.obs[0].tobytes() == before.tobytes()


def test_dicts_are_stored_part_by_part() -> None:
    shard, rows = bound_shard(MaskedEnv, 2)
    assert isinstance(rows.obs, dict)
    start(shard, [0, 1])
    act(shard, [0, 1], [0, 2])
    assert {key: (part.dtype.name, part.shape) for key, part in rows.obs.items()} == {
        "vector": ("float32", (2, 2)),
        "picture": ("uint8", (2, 2, 3, 1)),
        "number": ("float32", (2, 5)),
        "bits": ("float32", (2, 3)),
        "action_mask": ("int8", (2, 4)),
    }
    assert rows.obs["number"][1].tolist() == [0, 1, 0, 0, 0]
    assert rows.obs["bits"][1].tolist() == [1, 0, 1]
    assert rows.obs["action_mask"][1].tolist() == [0, 1, 0, 1]
    assert (rows.obs["picture"] == 1).all()


def test_choices_arrive_as_the_environment_counts_them() -> None:
    shard, _ = bound_shard(PictureEnv, 2)
    start(shard, [0, 1])
    act(shard, [0, 1], [[2, 0], [0, 1]])
    taken = [env.unwrapped.taken for env in shard._envs]  # pyright: ignore[reportAttributeAccessIssue]
    assert taken == [[[2, 0]], [[0, 1]]]
    with pytest.raises(SlotError, match=r"the action \[0, 2\] is not in MultiDiscrete") as caught:
        act(shard, [0, 1], [[2, 0], [0, 2]])
    assert caught.value.slot == 1


# -- what is refused -----------------------------------------------------------------------------------------


def with_obs(obs: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda result: (obs(result[0]), *result[1:])


def with_value(place: int, value: Any) -> Callable[[Any], Any]:
    return lambda result: (*result[:place], value, *result[place + 1 :])


class Silent:
    """A thing that cannot even be described."""

    def __repr__(self) -> str:
        raise RuntimeError("no words")


REFUSED: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], str]] = {
    "NaN": (CountingEnv, with_obs(lambda obs: obs * np.nan), "the observation is not finite"),
    "infinite": (CountingEnv, with_obs(lambda obs: obs - np.inf), "the observation is not finite"),
    "beyond float32": (CountingEnv, with_obs(lambda obs: obs + 1e300), "not finite .in float32."),
    "None": (CountingEnv, with_obs(lambda obs: None), "the observation is None"),
    "a list": (CountingEnv, with_obs(list), "is a list, not an array of shape"),
    "longer": (CountingEnv, with_obs(lambda obs: np.zeros(7)), r"has the shape \(7,\), not \(4,\)"),
    "broadcastable": (CountingEnv, with_obs(lambda obs: np.zeros(1)), r"has the shape \(1,\), not \(4,\)"),
    "no dimensions": (CountingEnv, with_obs(lambda obs: np.float64(1)), r"has the shape \(\), not \(4,\)"),
    "a number": (CountingEnv, with_obs(lambda obs: 1.0), "is a float, not an array"),
    "objects": (CountingEnv, with_obs(lambda obs: obs.astype(object)), "is of type object, not float64"),
    "whole numbers for real ones": (
        CountingEnv,
        with_obs(lambda obs: obs.astype(np.int64)),
        "is of type int64, not float64",
    ),
    "complex": (CountingEnv, with_obs(lambda obs: obs + 0j), "is of type complex128"),
    "masked": (CountingEnv, with_obs(lambda obs: np.ma.masked_array(obs, obs > 0)), "is a MaskedArray"),
    "real numbers in a picture": (
        PictureEnv,
        with_obs(lambda obs: obs + 0.7),
        "is of type float64, not uint8",
    ),
    "wide numbers in a picture": (
        PictureEnv,
        with_obs(lambda obs: obs.astype(np.int64) + 300),
        "is of type int64, not uint8",
    ),
    "no dict": (MaskedEnv, with_obs(lambda obs: obs["vector"]), "the observation is a ndarray, not a dict"),
    "a missing key": (
        MaskedEnv,
        with_obs(lambda obs: {key: obs[key] for key in obs if key != "bits"}),
        r"\['bits'\] are missing",
    ),
    "an extra key": (MaskedEnv, with_obs(lambda obs: obs | {"more": 1}), r"\['more'\] are too much"),
    "a wrong part": (
        MaskedEnv,
        with_obs(lambda obs: obs | {"vector": np.zeros(3)}),
        r"observation 'vector' has the shape \(3,\)",
    ),
    "a number too high": (
        MaskedEnv,
        with_obs(lambda obs: obs | {"number": 4}),
        "observation 'number' is outside of its range: 4",
    ),
    "a number too low": (
        MaskedEnv,
        with_obs(lambda obs: obs | {"number": -2}),
        "observation 'number' is outside of its range: -2",
    ),
    "a real number": (
        MaskedEnv,
        with_obs(lambda obs: obs | {"number": 1.0}),
        "observation 'number' is of type float64",
    ),
    "a bit of two": (
        MaskedEnv,
        with_obs(lambda obs: obs | {"bits": np.array([0, 2, 1])}),
        "observation 'bits' is not of zeros and ones",
    ),
    "a mask of halves": (
        MaskedEnv,
        with_obs(lambda obs: obs | {"action_mask": np.full(4, 0.5)}),
        "'action_mask' is of type float64",
    ),
    "reward NaN": (CountingEnv, with_value(1, np.nan), "the reward is not finite: nan"),
    "reward infinite": (CountingEnv, with_value(1, -np.inf), "the reward is not finite: -inf"),
    "reward None": (CountingEnv, with_value(1, None), "the reward is None"),
    "reward vector": (
        CountingEnv,
        with_value(1, np.zeros(1)),
        "the reward is a ndarray, not a finite number",
    ),
    "reward text": (CountingEnv, with_value(1, "1"), "the reward is a str"),
    "reward of a googol googol": (
        CountingEnv,
        with_value(1, 10**400),
        "the reward is a int, not a finite number",
    ),
    "terminated None": (CountingEnv, with_value(2, None), "terminated is None, not True or False"),
    "truncated two": (CountingEnv, with_value(3, 2), "truncated is 2, not True or False"),
    "truncated array": (CountingEnv, with_value(3, np.array([True])), "truncated is a ndarray"),
    "truncated unspeakable": (CountingEnv, with_value(3, Silent()), "truncated is a Silent"),
    "four values": (CountingEnv, lambda result: result[:4], "step returned 4 values, not .* gym before 0.26"),
    "no values": (CountingEnv, lambda result: None, "step returned None, not"),
    "info None": (CountingEnv, with_value(4, None), "the info is None, not a dict"),
    "info of text": (CountingEnv, with_value(4, {"t": "high"}), "the info 't' is a str, not a finite number"),
    "info NaN": (CountingEnv, with_value(4, {"t": np.nan}), "the info 't' is not finite"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_of_its_space_is_refused_and_not_stored(name: str) -> None:
    kind, change, sentence = REFUSED[name]
    made: list[int] = []

    def make() -> gymnasium.Env[Any, Any]:
        made.append(1)
        return (
            Altered(kind(), change, at=2) if len(made) == 3 else kind()
        )  # the first is looked at, the third is slot 1

    shard, rows = bound_shard(make, 2, info_names=("t",))
    space = shard._writer.space
    first, second = (
        np.stack([np.asarray(action)] * 2)
        for action in (np.zeros(space.shape or (), space.dtype), np.ones(space.shape or (), space.dtype))
    )
    start(shard, [0, 1])
    act(shard, [0, 1], first)
    before = rows.copy()
    with pytest.raises(SlotError, match=sentence) as caught:
        act(shard, [0, 1], second)
    assert caught.value.slot == 1
    for stored, kept in zip(arrays_of(rows), arrays_of(before), strict=True):
        assert stored[1].tobytes() == kept[1].tobytes()


def arrays_of(rows: Any) -> list[np.ndarray[Any, Any]]:
    obs = list(rows.obs.values()) if isinstance(rows.obs, dict) else [rows.obs]
    return [*obs, rows.reward, rows.terminated, rows.truncated, rows.info]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda result: result[0],
            "reset returned a ndarray, not .observation, info.: the interface of gym before 0.26",
        ),
        (with_obs(lambda obs: obs[:1]), r"has the shape \(1,\)"),
        (with_value(1, None), "the info is None"),
    ],
)
def test_a_reset_is_checked_like_a_step(change: Callable[[Any], Any], sentence: str) -> None:
    shard, rows = bound_shard(lambda: Altered(CountingEnv(), change, at=0))
    with pytest.raises(SlotError, match=sentence):
        start(shard, [0])
    assert not any(part.any() for part in arrays_of(rows))


ACCEPTED: dict[str, Callable[[Any], Any]] = {
    "float32": with_obs(lambda obs: obs.astype(np.float32)),
    "read-only": with_obs(lambda obs: np.broadcast_to(obs, (3, 4))[0]),
    "strided": with_obs(lambda obs: np.repeat(obs, 2)[::2]),
    "a subclass": with_obs(lambda obs: obs.view(np.recarray)),
    "reward of numpy": lambda result: with_value(1, np.float32(result[1]))(result),
    "reward without dimensions": lambda result: with_value(1, np.array(result[1]))(result),
    "flags of numpy": lambda result: with_value(2, np.bool_(result[2]))(result),
    "flags as numbers": lambda result: with_value(3, 0)(result),
    "a huge info": lambda result: with_value(4, result[4] | {"x": bytearray(10**6)})(result),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_is_harmless_gives_the_same_rows(name: str) -> None:
    played = []
    for make in (CountingEnv, lambda: Altered(CountingEnv(), ACCEPTED[name])):
        shard, rows = bound_shard(make, info_names=("t",))
        start(shard, [0], seeds=[3])
        act(shard, [0], STILL + 0.5)
        played.append([part.tobytes() for part in arrays_of(rows)])
    assert played[0] == played[1]


def test_both_flags_at_once_are_a_termination() -> None:
    shard, rows = bound_shard(
        lambda: Altered(CountingEnv(), lambda result: with_value(2, True)(with_value(3, True)(result)))
    )
    start(shard, [0])
    act(shard, [0], STILL)
    assert (rows.terminated[0], rows.truncated[0]) == (True, False)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_action_that_is_no_number_is_refused_by_its_slot(bad: float) -> None:
    shard, rows = bound_shard(CountingEnv, 4)
    start(shard, [0, 1, 2, 3])
    with pytest.raises(SlotError, match="is not a finite number") as caught:
        act(shard, [0, 2], [[0.0, 0.0], [0.0, bad]])
    assert caught.value.slot == 2
    assert not rows.reward.any(), "nothing was stepped"


# -- what fails ----------------------------------------------------------------------------------------------


class SpeechlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def raises(error: Exception) -> Callable[[Any], Any]:
    def change(_: Any) -> Any:
        raise error

    return change


@pytest.mark.parametrize(
    ("error", "at", "sentence"),
    [
        (ValueError("broken"), 0, "reset raised ValueError: broken"),
        (ValueError("broken"), 1, "step raised ValueError: broken"),
        (SpeechlessError(), 1, "step raised SpeechlessError: "),
        (ValueError("x" * 10**7), 1, "step raised ValueError: xxx"),
    ],
)
def test_what_an_environment_raises_is_its_slots_error(error: Exception, at: int, sentence: str) -> None:
    shard, _ = bound_shard(lambda: Altered(CountingEnv(), raises(error), at))
    with pytest.raises(SlotError, match=sentence) as caught:
        start(shard, [0])
        act(shard, [0], STILL)
    assert caught.value.__cause__ is error
    assert len(str(caught.value)) < 3000


def test_a_close_that_raises_is_logged_and_the_others_are_closed(caplog: pytest.LogCaptureFixture) -> None:
    class Unclosable(CountingEnv):
        def close(self) -> None:
            super().close()
            raise OSError("stuck")

    shard, _ = bound_shard(Unclosable, 3)
    envs: Any = list(shard._envs)
    with caplog.at_level(logging.WARNING):
        shard.close()
    assert [env.closed for env in envs] == [True, True, True]
    assert caplog.text.count("Unclosable raised in close(): OSError: stuck") == 3
    shard.close()


def test_copies_that_were_built_are_closed_when_a_later_one_cannot_be() -> None:
    made: list[CountingEnv] = []

    def make() -> CountingEnv:
        if len(made) == 3:
            raise OSError("no licence left")
        made.append(CountingEnv())
        return made[-1]

    with pytest.raises(OSError, match="no licence left"):
        bound_shard(make, 3)
    assert [env.closed for env in made[1:]] == [True, True]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            partial(gymnasium.make_vec, "CartPole-v1", num_envs=2),
            "VectorEnv is a vector environment: give a factory",
        ),
        (dict, "builtins.dict is no gymnasium.Env"),
    ],
)
def test_what_is_no_single_environment_is_refused(make: Callable[[], Any], sentence: str) -> None:
    shard, _ = bound_shard(CountingEnv)
    with pytest.raises(TypeError, match=sentence):
        type(shard)(make, 1, shard._reader, shard._writer)


def test_copies_with_other_spaces_are_refused() -> None:
    shard, _ = bound_shard(CountingEnv)
    with pytest.raises(RuntimeError, match="another observation space each time"):
        type(shard)(PictureEnv, 1, shard._reader, shard._writer)


# -- ends of episodes ----------------------------------------------------------------------------------------


def test_the_environments_own_time_limit_is_a_truncation() -> None:
    shard, rows = bound_shard(lambda: TimeLimit(CountingEnv(), 2))
    start(shard, [0])
    act(shard, [0], STILL)
    assert (rows.terminated[0], rows.truncated[0]) == (False, False)
    act(shard, [0], STILL)
    assert (rows.terminated[0], rows.truncated[0]) == (False, True)


@pytest.mark.parametrize(
    "wrap", [Autoreset, *(partial(SameStepAutoreset, key=key) for key in FINAL_OBS)], ids=str
)
def test_environments_that_reset_themselves_give_the_rows_of_those_that_do_not(
    wrap: Callable[[Any], Any],
) -> None:
    played = []
    for make in (lambda: CountingEnv(length=3), lambda: wrap(CountingEnv(length=3))):
        shard, rows = bound_shard(make, info_names=("t",))
        bits = []
        for seed in (4, 5):
            start(shard, [0], seeds=[seed])
            bits.append([part.tobytes() for part in arrays_of(rows)])
            for _ in range(3):
                act(shard, [0], STILL + 0.25)
                bits.append([part.tobytes() for part in arrays_of(rows)])
            assert rows.terminated[0]
            assert rows.info[0, 0] == 3.0, "the info of the last row"
        played.append(bits)
    assert played[0] == played[1]


# -- tasks and pictures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["set_task", "options"])
def test_each_slot_is_told_its_task(by: str) -> None:
    shard, rows = bound_shard(TaskEnv, 3, TaskSetter(by, lambda vector: float(vector[0])))
    assert isinstance(rows.obs, np.ndarray)
    start(shard, [0, 1, 2], tasks=[[5.0], [6.0], [7.0]])
    start(shard, [1], tasks=[[8.0]])
    assert rows.obs[:, 0].tolist() == [5.0, 8.0, 7.0]


def test_a_task_can_be_the_seed() -> None:
    shard, rows = bound_shard(CountingEnv, 2, TaskSetter("seed"))
    assert isinstance(rows.obs, np.ndarray)
    start(shard, [0, 1], seeds=[1, 2], tasks=[[9.0], [9.0]])
    assert rows.obs[:, 1].tolist() == [np.float32(noise_of(9))] * 2


def test_pictures_are_the_environments_own() -> None:
    shard, _ = bound_shard(CountingEnv, 2)
    start(shard, [0, 1])
    act(shard, [1], STILL)
    assert [shard.render(slot).mean() for slot in (0, 1)] == [0.0, 1.0]


def test_an_environment_that_draws_nothing_says_so() -> None:
    class Blind(CountingEnv):
        def render(self) -> Any:
            return None if self.length > 1 else 1 / 0

    for length, says in (
        (2, "returned None; build it with render_mode='rgb_array'"),
        (1, "cannot draw here .ZeroDivisionError.*MUJOCO_GL=egl"),
    ):
        with pytest.raises(RuntimeError, match=says):
            bound_shard(partial(Blind, length))[0].render(0)
