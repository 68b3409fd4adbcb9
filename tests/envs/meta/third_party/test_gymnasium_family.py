"""The family of any Gymnasium environment: factories, tasks, and every kind of space up to the replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from buffers.base import Needs, Sample
from buffers.replay import Replay
from envs.backends import BACKENDS
from envs.backends.base import BackendConfig
from envs.base import Split, arrays_of
from envs.interop.spaces import MASK_KEY, allowed_choices
from envs.layout import Layout
from envs.meta.make_env import make_env, make_parallel_env
from envs.meta.third_party.gymnasium_family import GymnasiumConfig, GymnasiumFamily, TaskFormat
from envs.parallel_env_manager import ParallelEnvManager
from policies.learner import Learner
from tests.runs import stored_rows, tiny_config
from tests.toys_gym import CountingEnv, MaskedEnv, PictureEnv, SettableEnv, TaskEnv
from utils.options import OptionError

H = 12


def family_of(factory: Callable[[], Any], **options: Any) -> GymnasiumFamily:
    return GymnasiumFamily.from_factory(factory, **{"max_episode_steps": H, **options})


def drawn(family: GymnasiumFamily, n: int, seed: int = 0, split: str = "train") -> np.ndarray[Any, Any]:
    return family.sample_tasks(np.random.default_rng(seed), n, split)


# -- factories -----------------------------------------------------------------------------------------------


def test_a_factory_travels_with_its_family_and_an_environment_does_not() -> None:
    family = family_of(lambda: TaskEnv("dict"))
    tasks = drawn(family, 3)
    copy = cloudpickle.loads(cloudpickle.dumps(family))
    assert copy._task_sampler_env is None and family._task_sampler_env is not None
    assert drawn(copy, 3).tobytes() == tasks.tobytes()


def test_a_factorys_own_time_limit_is_taken_and_a_number_only_shortens_it() -> None:
    limited = partial(gymnasium.make, "CartPole-v1", max_episode_steps=5)
    assert family_of(limited, max_episode_steps=0).config.max_episode_steps == 5
    family = family_of(lambda: TimeLimit(CountingEnv(), 4), max_episode_steps=9)
    with ParallelEnvManager(family, 1) as manager:
        manager.reset()
        lasted = sum(
            1
            for _ in iter(lambda: manager.running.any() and manager.step(np.zeros((1, 2), np.float32)), False)
        )
    assert lasted == 4


def test_the_environment_that_the_family_was_read_from_is_closed() -> None:
    made: list[CountingEnv] = []

    def make() -> CountingEnv:
        made.append(CountingEnv())
        return made[-1]

    family_of(make)
    assert [env.closed for env in made] == [True]


def test_infos_are_recorded_by_name_and_success_is_one_of_them() -> None:
    spec = family_of(CountingEnv, info_names=["t"], success="won").spec
    assert (spec.info_names, spec.success) == (("t", "won"), "won")


def global_stream() -> bytes:
    """The state of numpy's global stream."""
    _, keys, position, *_ = np.random.get_state(legacy=True)
    return np.asarray(keys).tobytes() + str(position).encode()


# -- tasks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "size"), [("number", 1), ("dict", 3), ("global", 1)])
def test_tasks_are_drawn_by_the_environment_and_follow_from_the_stream_alone(kind: str, size: int) -> None:
    family = family_of(partial(TaskEnv, kind))
    before = global_stream()
    tasks = drawn(family, 5)
    assert tasks.shape == (5, size) and tasks.dtype == np.float64
    assert len(np.unique(tasks[:, 0])) == 5
    assert (
        tasks.tobytes() == drawn(family_of(partial(TaskEnv, kind)), 5).tobytes() == drawn(family, 5).tobytes()
    )
    assert tasks.tobytes() != drawn(family, 5, seed=1).tobytes()
    assert drawn(family, 0).shape == (0, size)
    assert global_stream() == before, "no family may use up the global stream"


def test_the_environment_gets_the_task_as_it_wrote_it() -> None:
    tasks_set: list[Any] = []

    class RecordingEnv(TaskEnv):
        def set_task(self, task: Any) -> None:
            tasks_set.append(task)
            super().set_task(task)

    family = family_of(partial(RecordingEnv, "dict"))
    task = drawn(family, 1)
    with ParallelEnvManager(family, 1) as manager:
        rows = manager.reset(task, seeds=[0])
        assert isinstance(rows.obs, np.ndarray)
        assert rows.obs[0, 0] == np.float32(task[0, 0])
    assert tasks_set[-1]["goal"].tolist() == task[0, :2].tolist()
    assert tasks_set[-1]["level"] == task[0, 2] and isinstance(tasks_set[-1]["level"], int)


@pytest.mark.parametrize(
    "task", [0.25, 3, [1.0, 2.0], np.array([[1, 2], [3, 4]]), {"b": 1.5, "a": np.array([2, 3])}], ids=str
)
def test_a_task_survives_being_a_vector(task: Any) -> None:
    form = TaskFormat.of(task, "it")
    vectors = form.vectors([task, task], "it")
    back = form.task(vectors[1])
    assert vectors.shape == (2, form.size)
    for key, part in back.items() if isinstance(task, dict) else [(None, back)]:
        original = np.asarray(task[key] if key else task)
        assert np.array_equal(part, original) and np.asarray(part).dtype.kind == original.dtype.kind


def test_tasks_of_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="several shapes"):
        TaskFormat.of(0.5, "it").vectors([0.5, np.zeros(2)], "it")
    with pytest.raises(OptionError, match="draws tasks of type object, which are no numbers"):
        family_of(partial(TaskEnv, "objects"))


def test_tasks_can_be_drawn_from_outside() -> None:
    def sample(rng: np.random.Generator, n: int, split: str) -> np.ndarray[Any, Any]:
        return rng.uniform(size=(n, 2)) + (10.0 if split == "test" else 0.0)

    family = GymnasiumFamily.from_factory(SettableEnv, sample_tasks=sample, max_episode_steps=H)
    assert family.spec.task_dim == 2
    assert drawn(family, 4, split="test").min() >= 10.0
    with ParallelEnvManager(family, 1) as manager:
        obs = manager.reset([[0.25, 0.5]]).obs
        assert isinstance(obs, np.ndarray) and obs[0, 0] == 0.75
    with pytest.raises(OptionError, match=r"SettableEnv has no sample_tasks\(n\)"):
        family_of(SettableEnv)
    assert family_of(SettableEnv, task_by="none").spec.task_dim == 1


def test_a_task_in_the_options_of_the_reset_arrives() -> None:
    family = family_of(TaskEnv, task_by="options")
    with ParallelEnvManager(family, 2) as manager:
        obs = manager.reset([[0.25], [0.5]]).obs
        assert isinstance(obs, np.ndarray) and obs[:, 0].tolist() == [0.25, 0.5]


def test_worlds_by_seed_stay_the_same_for_a_trial_and_are_disjoint() -> None:
    family = family_of(CountingEnv, task_by="seed")
    assert family.spec.split is Split.disjoint
    assert not set(drawn(family, 500)[:, 0]) & set(drawn(family, 500, split="test")[:, 0])
    with ParallelEnvManager(family, 1, episodes_per_trial=2, max_episode_steps=1) as manager:
        manager.reset([[5.0]])
        worlds = [manager.rows.obs[0, 1]]  # pyright: ignore[reportArgumentType, reportCallIssue]
        manager.step(np.zeros((1, 2), np.float32))
        manager.step(np.zeros((1, 2), np.float32))
        assert manager.rows.episode_start[0]
        worlds.append(manager.rows.obs[0, 1])  # pyright: ignore[reportArgumentType, reportCallIssue]
    assert worlds[0] == worlds[1]


def test_the_oracle_is_shown_the_task() -> None:
    with make_env("Gymnasium", 1, seed=0, oracle=True, id="CartPole-v1", task_by="seed") as env:
        obs, info = env.reset(options={"task": [12345.0]})
        assert obs.shape == (5,) and obs[-1] == 12345.0 == info["task"][0]


def test_a_run_collects_and_updates() -> None:
    with Learner(tiny_config("Gymnasium")) as learner:
        learner.train()
        assert learner.counters.env_steps >= 240
        assert learner.counters.updates > 0
        assert np.isfinite(stored_rows(learner)["reward"]).all()


# -- every kind of space, everywhere -------------------------------------------------------------------------

KINDS: dict[str, Callable[[], GymnasiumFamily]] = {
    "counting": lambda: family_of(partial(CountingEnv, length=5), info_names=["t"]),
    "tasks": lambda: family_of(partial(TaskEnv, "dict")),
    "masked": lambda: family_of(MaskedEnv),
    "pictures": lambda: family_of(PictureEnv),
    "CartPole": lambda: GymnasiumFamily(GymnasiumConfig(id="CartPole-v1", max_episode_steps=H)),
    "FrozenLake": lambda: GymnasiumFamily(GymnasiumConfig(id="FrozenLake-v1", max_episode_steps=H)),
}


def steps_of(manager: ParallelEnvManager) -> Iterator[tuple[Any, np.ndarray[Any, Any]]]:
    """Rows and the random (allowed) actions chosen there, until all trials are over."""
    rng, space = np.random.default_rng(5), manager.single_action_space
    rows = manager.reset(seeds=range(manager.num_envs))
    while True:
        if isinstance(space, spaces.Box):
            actions = rng.uniform(-1, 1, (manager.num_envs, *space.shape)).astype(np.float32)
        else:
            mask = rows.obs.get(MASK_KEY) if isinstance(rows.obs, dict) else None
            actions = allowed_choices(space, rng.random((manager.num_envs, *(space.shape or ()))), mask)
        yield rows, actions
        if not manager.running.any():
            return
        rows = manager.step(actions)


def bytes_of(manager: ParallelEnvManager) -> list[bytes]:
    found = []
    for rows, actions in steps_of(manager):
        valid = rows.valid
        parts = [
            *arrays_of(rows.obs),
            rows.reward,
            rows.terminated,
            rows.truncated,
            rows.info,
            rows.task,
            rows.prev_action,
            rows.trial_end,
            actions,
        ]
        found.append(b"".join(part[valid].tobytes() for part in parts))
    return found


@pytest.mark.parametrize("name", [name for name in BACKENDS if name != "serial"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_backend_gives_the_rows_of_serial(kind: str, name: str) -> None:
    family = KINDS[kind]()
    streams = []
    for backend, workers in (("serial", 1), (name, 1 if name == "asyncio" else 2)):
        with ParallelEnvManager(
            family, 3, num_workers=workers, seed=1, backend=BackendConfig(name=backend)
        ) as manager:
            streams.append(bytes_of(manager))
    assert len(streams[0]) > 4
    assert streams[0] == streams[1]


def test_an_environment_that_only_this_process_has_registered_reaches_the_workers() -> None:
    gymnasium.register("OnlyHere-v0", entry_point=lambda **_: CountingEnv(), max_episode_steps=3)
    try:
        with make_parallel_env("Gymnasium", 1, 2, id="OnlyHere-v0") as manager:
            assert sum(1 for _ in steps_of(manager)) == 4
    finally:
        gymnasium.registry.pop("OnlyHere-v0")


@pytest.mark.parametrize("kind", KINDS)
def test_a_replay_gives_back_what_was_seen_and_done(kind: str) -> None:
    family = KINDS[kind]()
    layout = Layout(family.spec)
    replay = Replay(
        obs_space=layout.obs_space,
        action_space=family.spec.action_space,
        capacity_rows=2 * (H + 1),
        wave_trials=2,
        rows_per_trial=H + 1,
    )
    seen: list[tuple[Any, Any]] = []
    with ParallelEnvManager(family, 1, seed=1) as manager:
        replay.reserve(1)
        for time, (rows, actions) in enumerate(steps_of(manager)):
            replay.write(np.zeros(1, np.int64), np.array([time]), rows, np.zeros(1, np.int64), actions)
            seen.append((rows.copy().obs, actions.copy()))
        replay.commit(np.array([len(seen)]))
    batch = replay.sample(
        Needs(on_policy=False, sample=Sample.trials, batch_size=1), np.random.default_rng(0)
    )
    for time, (obs, actions) in enumerate(seen):
        assert batch.action[time, 0].tolist() == actions[0].tolist()
        for key, part in obs.items() if isinstance(obs, dict) else [(None, obs)]:
            stored: Any = batch.obs[key or ""] if isinstance(batch.obs, dict) else batch.obs
            assert stored[time, 0].tolist() == part[0].tolist()


def test_all_slots_actions_are_one_space() -> None:
    with ParallelEnvManager(KINDS["pictures"](), 3) as manager:
        assert manager.action_space.contains(np.array([[2, 1]] * 3)) and not manager.action_space.contains(
            np.array([[3, 1]] * 3)
        )
        assert manager.rows.prev_action.shape == (3, 2) and manager.rows.prev_action.dtype == np.int64
