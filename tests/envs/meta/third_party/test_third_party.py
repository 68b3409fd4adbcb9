"""MiniGrid and POPGym, as their YAML files play them.

They are in the environment of requirements-partners.txt; elsewhere most of these tests are skipped.
"""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import gymnasium
import numpy as np
import pytest

from configs.compose import Composer
from envs.base import Split
from envs.meta.make_env import make_family
from envs.parallel_env_manager import ParallelEnvManager
from policies.learner import Learner
from policies.run.config import Config
from tests.envs.meta.played import Played, random_actions
from utils.options import OptionError

PARTNERS = {"MiniGrid": "minigrid", "POPGym": "popgym"}

SMALL = [
    "train.num_rollouts_per_iter=2",
    "train.num_init_rollouts_pool=2",
    "num_slots=2",
    "agent.hidden=[8]",
    "memory.hidden_size=8",
]
SMALL += [
    "backend=serial",
    "env.num_eval_tasks=2",
    "wandb.mode=disabled",
    "env.max_episode_steps=12",
    "train.n_env_steps_total=100",
]


def composed(name: str, *words: str) -> Config:
    with Composer() as composer:
        return composer.config(composer.parse([f"env={name}", *words]))


def needs(name: str) -> None:
    pytest.importorskip(PARTNERS[name], reason=f"pip install -c requirements.txt .[{PARTNERS[name]}]")


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.peers) for name in PARTNERS])
def name(request: pytest.FixtureRequest) -> str:
    needs(request.param)
    return request.param


@pytest.mark.parametrize("name", PARTNERS)
def test_where_it_is_not_installed_its_package_is_named(name: str) -> None:
    if find_spec(PARTNERS[name]) is not None:
        pytest.skip("it is installed")
    with pytest.raises(
        OptionError, match=f"needs the package {PARTNERS[name]}, which cannot be imported"
    ) as caught:
        composed(name)
    assert "\n" not in str(caught.value)


def test_its_config_trains(name: str) -> None:
    with Learner(composed(name, *SMALL)) as learner:
        learner.train()
        assert learner.counters.env_steps >= 100 and learner.counters.updates > 0


def test_its_horizon_is_the_environments_own_length(name: str) -> None:
    env = composed(name).env
    played, rng = Played(make_family(replace(env, max_episode_steps=1000)), 3), np.random.default_rng(0)
    played.reset(np.arange(3), make_family(env).sample_tasks(rng, 3, "train"), np.arange(3))
    longest, going = 0, np.arange(3)
    while len(going):
        actions = (
            random_actions(rng, make_family(env), len(going))
            if name == "POPGym"
            else np.zeros(len(going), np.int64)
        )  # turn left for ever
        rows = played.step(going, actions)
        longest, going = longest + 1, going[~rows.ended[going]]
    assert longest == env.max_episode_steps


@pytest.mark.peers
def test_minigrid_plays_one_level_in_a_trial_and_others_in_the_test() -> None:
    needs("MiniGrid")
    family = make_family(composed("MiniGrid").env)
    assert family.spec.split is Split.disjoint
    assert (family.spec.obs_space.shape, family.spec.obs_space.dtype) == ((7 * 7 * 20,), np.uint8)
    with ParallelEnvManager(family, 8, episodes_per_trial=2, seed=0, max_episode_steps=2) as manager:
        first = manager.reset().copy().obs
        for _ in range(3):
            manager.step(np.zeros(8, np.int64))
        assert manager.rows.episode_start.all()
        first, second = (
            np.asarray(obs)[:, :-1] for obs in (first, manager.rows.obs)
        )  # without the flag of the new episode
        assert np.array_equal(first, second) and len(np.unique(first, axis=0)) > 2
    assert first.sum(1).tolist() == [3 * 49] * 8, "an object, a colour and a state for each cell"


@pytest.mark.peers
def test_minigrids_pictures_reach_the_agent_by_other_wrappers() -> None:
    needs("MiniGrid")
    family = make_family(
        composed(
            "MiniGrid", "env.wrappers=[minigrid.wrappers:ImgObsWrapper]", "env.max_rollouts_per_task=1"
        ).env
    )
    assert (family.spec.obs_space.shape, family.spec.obs_space.dtype) == ((7, 7, 3), np.uint8)


@pytest.mark.peers
def test_every_popgym_environment_is_served() -> None:
    needs("POPGym")
    make_family("Gymnasium", id="popgym:popgym-RepeatFirstEasy-v0", max_episode_steps=1)
    ids = [name for name in gymnasium.registry if name.startswith("popgym-")]
    assert len(ids) == 42
    rng = np.random.default_rng(0)
    for one in ids:
        tuples = ["gymnasium.wrappers:FlattenObservation"] if "Autoencode" in one else []
        family = make_family("Gymnasium", id=one, max_episode_steps=1000, wrappers=tuples)
        played = Played(family, 1)
        rows = played.reset([0], [[0.0]], [0])
        for _ in range(5):
            rows = played.step([0], random_actions(rng, family, 1))
        assert np.isfinite(rows.reward).all()
        played.shard.close()
