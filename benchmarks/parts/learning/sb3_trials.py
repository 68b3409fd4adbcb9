"""A learner of Stable-Baselines3 on the trials of a recipe's family, which writes a curve as `main.py` does.

    python -m benchmarks.parts.learning.sb3_trials --peer sb3-recurrent-ppo --folder DIR env=AntDir

What differs from the recipe is the learner alone. It has the recipe's numbers where it has the same option
(not `desired_kl` and embeddings, which it has not): with its library's own an LSTM reads minibatches of 128
rows of one slot, row by row, and the first update, of 8,192 rows, took 196 s. It steps as many slots, an
episode of it is a whole trial, and it sees what our agents see of a row: the observation, the previous action
and the reward. It is judged as often, on the recipe's list of test tasks, by the loop that judges our agents.
"""

from __future__ import annotations

import argparse
import importlib
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import nn

from benchmarks.parts.learning.sb3_runs import learn, peer_class
from configs.compose import load
from envs.base import Rows
from envs.interop.sb3 import as_sb3_vec_env
from envs.meta.make_env import make_family
from envs.parallel_env_manager import ParallelEnvManager, SlotGroup
from policies.agents.normalisation import FARTHEST, LARGEST_REWARD
from policies.algorithms.ppo import PPOConfig
from policies.collection.actors import GroupActor
from policies.evaluation.playing import evaluate_list
from policies.memory.lstm import LSTMConfig
from policies.nn.mlp import Activation
from policies.run.config import Config
from policies.run.context import RunContext
from policies.run.progress import by_episode

# The peers that can play trials: they have a memory, and the options of `numbers_of`.
TRIAL_PEERS = ("sb3-recurrent-ppo",)


@dataclass(frozen=True)
class TrialTask:
    """A recipe, of which a peer plays the family with its env steps and evaluations."""

    words: tuple[str, ...]

    def command(self, peer: str, seed: int, folder: Path) -> list[str]:
        """The command that plays a peer."""
        options = ["--peer", peer, "--seed", str(seed), "--folder", str(folder)]
        return [sys.executable, "-m", __name__, *options, *self.words]


def inputs_of(rows: Rows) -> NDArray[np.float32]:
    """[N, F] the observation, the previous action and the reward of each row."""
    assert isinstance(rows.obs, np.ndarray)
    return np.concatenate([rows.obs, rows.prev_action, rows.reward[:, None]], -1, dtype=np.float32)


def trials_env(manager: ParallelEnvManager, seed: int) -> Any:
    """The slots of a manager as a VecEnv whose observations are `inputs_of`; it counts `env_steps`."""
    library = importlib.import_module("stable_baselines3.common.vec_env")

    class TrialsEnv(library.VecEnvWrapper):
        def __init__(self) -> None:
            bound = np.full(inputs_of(manager.rows).shape[1:], np.inf, np.float32)
            super().__init__(as_sb3_vec_env(manager, seed=seed), spaces.Box(-bound, bound))
            self.env_steps = 0

        def reset(self) -> NDArray[np.float32]:
            self.venv.reset()
            return inputs_of(manager.rows)

        def step_async(self, actions: NDArray[Any]) -> None:
            # An action counts unless its row ends an episode, where it is ignored.
            self.env_steps += int(np.count_nonzero(~manager.rows.ended))
            self._sent = actions
            self.venv.step_async(actions)

        def step_wait(self) -> tuple[Any, ...]:
            _, rewards, dones, infos = self.venv.step_wait()
            for slot in np.flatnonzero(dones):
                last = infos[slot]["terminal_observation"], self._sent[slot], rewards[[slot]]
                infos[slot]["terminal_observation"] = np.concatenate(last, dtype=np.float32)
            return inputs_of(manager.rows), rewards, dones, infos

    return TrialsEnv()


def numbers_of(config: Config, num_slots: int) -> dict[str, Any]:
    """The options of a peer's PPO: those of the recipe."""
    ppo = config.algorithm
    if not isinstance(ppo, PPOConfig) or not isinstance(config.memory, LSTMConfig):
        raise SystemExit("A peer plays recipes of PPO with an LSTM: algorithm=PPO memory=LSTM.")
    trial = config.env.max_rollouts_per_task * config.env.max_episode_steps
    rows = math.ceil((config.train.num_env_steps_per_iter or num_slots * trial) / num_slots)
    return {
        "n_steps": rows,
        "batch_size": rows * num_slots // ppo.minibatches,
        "n_epochs": ppo.epochs,
        "learning_rate": ppo.learning_rate,
        "gamma": ppo.discount,
        "gae_lambda": ppo.gae_lambda,
        "clip_range": ppo.clip,
        "max_grad_norm": ppo.max_grad_norm or math.inf,
        "ent_coef": ppo.entropy_coef,
        "vf_coef": ppo.value_coef,
        "policy_kwargs": {
            "lstm_hidden_size": config.memory.hidden_size,
            "net_arch": list(config.agent.hidden),
            "log_std_init": math.log(ppo.init_std),
            "activation_fn": {Activation.relu: nn.ReLU, Activation.tanh: nn.Tanh}[config.agent.activation],
        },
    }


@dataclass(frozen=True)
class PeerActor:
    """A model of Stable-Baselines3 as what acts in a wave: without noise, and it forgets at trial starts."""

    model: Any
    # What it does to observations first.
    normalised: Callable[[NDArray[np.float32]], NDArray[np.float32]] = lambda inputs: inputs

    def for_group(self, manager: ParallelEnvManager, group: SlotGroup) -> GroupActor:
        """One with a hidden state of its own."""
        return _PeerGroupActor(self, group.rows)

    def draw_noise(self, rng: np.random.Generator, num_rows: int) -> NDArray[Any]:
        """Nothing."""
        return np.zeros((num_rows, 0))


class _PeerGroupActor(GroupActor):
    def __init__(self, actor: PeerActor, rows: Rows) -> None:
        self._actor, self._rows, self._state = actor, rows, None

    def act(self, noise: NDArray[Any]) -> NDArray[Any]:
        inputs = self._actor.normalised(inputs_of(self._rows))
        actions, self._state = self._actor.model.predict(
            inputs, self._state, self._rows.trial_start, deterministic=True
        )
        return actions


def played_on_trials(peer: str, words: Sequence[str], seed: int, path: Path) -> None:
    """Learn the family of these words, and write a line of metrics at each evaluation."""
    config = load([*words, f"seed={seed}"])
    family = make_family(config.env)
    context = RunContext.of(config, family, "cpu", None)
    if context.tasks.train is not None or not isinstance(family.spec.action_space, spaces.Box):
        raise SystemExit(
            f"{family.spec.name}: a peer plays families of vectors, with a new task in each trial."
        )
    name, episodes = context.tasks.test, config.env.max_rollouts_per_task

    def manager() -> ParallelEnvManager:
        return ParallelEnvManager(family, context.sizes.num_slots, episodes_per_trial=episodes, seed=seed)

    with manager() as training, manager() as judging:
        env, numbers = trials_env(training, seed), numbers_of(config, context.sizes.num_slots)
        scaled = importlib.import_module("stable_baselines3.common.vec_env").VecNormalize(
            env,
            norm_obs=config.agent.normalise_obs,
            norm_reward=config.agent.normalise_reward,
            gamma=numbers["gamma"],
            clip_obs=FARTHEST,
            clip_reward=LARGEST_REWARD,
        )
        kind, policy = peer_class(peer)
        model = kind(policy, scaled, seed=seed, device="cpu", **numbers)
        actor = PeerActor(model, scaled.normalize_obs)

        def judge() -> dict[str, float]:
            found = evaluate_list(judging, actor, context.tasks.evaluation[name], seed=seed)
            return by_episode(f"eval/{name}/return", found.returns.mean(0))

        learn(
            model,
            judge,
            path,
            env_steps=config.train.n_env_steps_total,
            every=config.evaluation.every,
            taken=lambda: env.env_steps,
        )


def main() -> None:
    """Play one peer."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--peer", choices=TRIAL_PEERS, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("words", nargs="+", metavar="WORD", help="of a recipe, as after `main.py`")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    asked.folder.mkdir(parents=True, exist_ok=True)
    played_on_trials(asked.peer, asked.words, asked.seed, asked.folder / "metrics.jsonl")


if __name__ == "__main__":
    main()
