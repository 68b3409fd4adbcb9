"""GymnasiumShard: rows are the environment's own numbers, and its habits do not reach them."""

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
    written_arrays,
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
    with pytest.raises(SlotError, match=r"the action \[0, 2\] is none of MultiDiscrete") as caught:
        act(shard, [0, 1], [[2, 0], [0, 2]])
    assert caught.value.slot == 1


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
            bits.append([part.tobytes() for part in written_arrays(rows)])
            for _ in range(3):
                act(shard, [0], STILL + 0.25)
                bits.append([part.tobytes() for part in written_arrays(rows)])
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
