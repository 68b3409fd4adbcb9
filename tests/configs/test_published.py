"""What the files of `configs/` call "as published" equals the configs of the recurrent model-free baselines.

Their numbers stand in github.com/twni2016/pomdp-baselines, configs/meta/*/rnn.yml. Their critic reads the
observation and the action through a shortcut as wide as its three embeddings together
(policies/models/recurrent_critic.py).
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from configs.compose import load
from envs.meta.make_env import make_family
from policies.agents.base import AgentSpec
from policies.algorithms import ALGORITHMS
from policies.memory import MEMORIES
from policies.run.config import Config
from policies.run.sizes import row_layout

MUJOCO = [
    "AntDir",
    "AntGoal",
    "BodyParams",
    "CheetahDir",
    "CheetahDirSparse",
    "HalfCheetahVel",
    "HopperRandParams",
    "Walker2DRandParams",
]
TOY, LOCOMOTION = [128, 128], [128, 128, 128]
# Words: embeddings of action, observation and reward; layers of the heads, size of the memory, discount.
PUBLISHED = {
    "env=Wind algorithm=SAC memory=GRU": (8, 32, 0, TOY, 64, 0.9),
    "experiment=semi_circle": (0, 32, 8, TOY, 128, 0.9),
    "env=HumanoidDir algorithm=SAC memory=GRU": (32, 128, 16, LOCOMOTION, 128, 0.99),
} | {f"env={name} algorithm=SAC memory=GRU": (16, 32, 16, LOCOMOTION, 128, 0.99) for name in MUJOCO}
WIDTHS = {"env=Wind": 40, "experiment=semi_circle": 40, "env=HumanoidDir": 176, "env=AntDir": 64}


@pytest.mark.parametrize("words", PUBLISHED)
def test_networks_and_step_sizes_are_as_published(words: str) -> None:
    config = load(words.split())
    action, obs, reward, hidden, memory, discount = PUBLISHED[words]
    agent, algorithm = config.agent, config.algorithm
    assert (agent.action_embedding, agent.obs_embedding, agent.reward_embedding) == (action, obs, reward)
    assert agent.shortcut_embedding == obs, "the actor's"
    assert agent.critic_shortcut_embedding == action + obs + reward
    assert (agent.hidden, config.memory.hidden_size, algorithm.discount) == (hidden, memory, discount)
    assert (algorithm.learning_rate, getattr(algorithm, "tau", None)) == (3e-4, 0.005)


def test_the_critics_shortcuts_are_so_wide() -> None:
    widths = {words.split()[0]: sum(row[:3]) for words, row in PUBLISHED.items()}
    assert WIDTHS.items() <= widths.items() and {widths[f"env={name}"] for name in MUJOCO} == {64}


@pytest.mark.parametrize(
    ("words", "train", "test", "episodes", "steps", "trials"),
    [
        ("env=Wind algorithm=SAC", 40, 20, 1, 75, 10),
        ("experiment=semi_circle", 80, 20, 2, 60, 25),
        ("env=HalfCheetahVel algorithm=SAC", 100, 20, 2, 200, 24),
        ("env=AntDir algorithm=SAC", None, 20, 2, 200, 24),
        ("env=CheetahDir algorithm=SAC", None, 20, 2, 200, 24),
        ("env=HumanoidDir algorithm=SAC", None, 20, 2, 200, 24),
    ],
)
def test_tasks_trials_and_iterations_are_as_published(
    words: str, train: int | None, test: int, episodes: int, steps: int, trials: int
) -> None:
    """24 trials in an iteration stand for the 25 of the MuJoCo tasks, as their files say."""
    config = load(words.split())
    env = make_family(config.env).config
    assert (env.num_train_tasks, env.num_eval_tasks) == (train, test)
    assert (env.max_rollouts_per_task, env.max_episode_steps) == (episodes, steps)
    assert config.train.num_rollouts_per_iter == trials


@pytest.mark.parametrize("words", ["env=Wind", "experiment=semi_circle_ppo"])
def test_the_critics_shortcut_is_nothing_to_ppo_whose_critic_reads_no_action(words: str) -> None:
    config = load(words.split())
    assert config.agent.critic_shortcut_embedding == 40
    without = replace(config, agent=replace(config.agent, critic_shortcut_embedding=None))
    one, other = _parameters(config), _parameters(without)
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def _parameters(config: Config) -> dict[str, torch.Tensor]:
    """The first parameters of the agent of this config."""
    family = make_family(config.env)
    layout = row_layout(replace(config, env=family.config), family.spec)
    memory = MEMORIES[config.memory.name]
    spec = AgentSpec(layout.obs_space, family.spec.action_space, config.agent, memory, config.memory)
    torch.manual_seed(0)
    return dict(ALGORITHMS[config.algorithm.name].make_agent(config.algorithm, spec).named_parameters())
