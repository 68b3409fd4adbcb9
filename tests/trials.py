"""Made-up trials for tests of buffers and policies: every row tells its trial and its place in it, and the flags follow the table of the row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from buffers.replay import Replay
from envs.base import EnvSpec, Layout, Rows
from policies.agents.base import AgentConfig, AgentSpec, Arch
from policies.memory import MEMORIES

OBS_DIM, ACTION_DIM = 4, 2
OBS_SPACE = spaces.Box(-np.inf, np.inf, (OBS_DIM,), np.float32)
ACTION_SPACE = spaces.Box(-1.0, 1.0, (ACTION_DIM,), np.float32)


@dataclass
class Trial:
    """One trial, [rows, ...] each."""

    obs: NDArray[np.float32]
    """[trial number, row, episode, noise]"""
    action: NDArray[np.float32]
    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    episode_start: NDArray[np.bool_]
    trial_start: NDArray[np.bool_]
    trial_end: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.reward)

    @property
    def ended(self) -> NDArray[np.bool_]:
        """[rows]"""
        return self.terminated | self.truncated

    @property
    def prev_action(self) -> NDArray[np.float32]:
        """[rows, A] written out, to be compared with."""
        values = np.zeros_like(self.action)
        for t in range(1, len(self)):
            if not self.episode_start[t]:
                values[t] = self.action[t - 1]
        return values


def make_trial(rng: np.random.Generator, number: int, *, k: int, horizon: int, fall: float = 0.2, scale: float = 1.0) -> Trial:
    """k episodes; after each step the agent falls with probability `fall`; `scale` shrinks the counting for networks to read."""
    rows: list[tuple[Any, ...]] = []
    for episode in range(k):
        for step in range(horizon + 1):
            terminated = step > 0 and bool(rng.random() < fall)
            truncated = step == horizon and not terminated
            obs = [number * scale, len(rows) * scale, episode, rng.standard_normal()]
            action = rng.uniform(-0.9, 0.9, ACTION_DIM)
            reward = 0.0 if step == 0 else (1000.0 * number + len(rows)) * scale
            last = (terminated or truncated) and episode == k - 1
            rows.append((obs, action, reward, terminated, truncated, step == 0, len(rows) == 0, last))
            if terminated or truncated:
                break
    columns = list(zip(*rows, strict=True))
    obs, action, reward = (np.array(column, np.float32) for column in columns[:3])
    return Trial(obs, action, reward, *(np.array(column, np.bool_) for column in columns[3:]))


def make_trials(seed: int, count: int, *, first: int = 0, k: int = 2, horizon: int = 5, fall: float = 0.2, scale: float = 1.0) -> list[Trial]:
    """Trials number `first` and on."""
    rng = np.random.default_rng(seed)
    return [make_trial(rng, first + i, k=k, horizon=horizon, fall=fall, scale=scale) for i in range(count)]


def make_replay(capacity: int, *, k: int = 2, horizon: int = 5) -> Replay:
    """A replay for such trials."""
    return Replay(obs_space=OBS_SPACE, action_space=ACTION_SPACE, capacity_trials=capacity, rows_per_trial=k * (horizon + 1))


def make_rows(num_slots: int) -> Rows:
    """Live rows of all slots."""
    return Layout(EnvSpec("made up", OBS_SPACE, ACTION_SPACE, task_dim=1)).allocate(num_slots)


Policy = Callable[[Rows, NDArray[np.int64], NDArray[np.int64]], NDArray[np.float32]]
"""(rows of all slots, trial of each slot or -1, its row) -> actions [N, A]"""


def play(replay: Replay, trials: list[Trial], *, num_slots: int, policy: Policy | None = None) -> None:
    """A wave: a free slot takes the next trial, so that trials start staggered; slots without one hold rubbish.

    With a `policy` its actions are what is recorded (and what the next rows tell); otherwise those of the trials.
    """
    rows = make_rows(num_slots)
    assert isinstance(rows.obs, np.ndarray)
    replay.reserve(len(trials))
    trial, time, waiting = np.full(num_slots, -1), np.zeros(num_slots, np.int64), list(range(len(trials)))
    actions = np.zeros((num_slots, ACTION_DIM), np.float32)
    while True:
        for slot in range(num_slots):
            over = trial[slot] < 0 or time[slot] == len(trials[trial[slot]]) - 1
            trial[slot], time[slot] = ((waiting.pop(0) if waiting else -1), 0) if over else (trial[slot], time[slot] + 1)
        slots = np.flatnonzero(trial >= 0)
        if not len(slots):
            break
        rows.obs[:], rows.reward[:], rows.prev_action[:], rows.valid[:] = 7e7, 7e7, 7e7, trial >= 0
        for slot in slots:
            source, t = trials[trial[slot]], time[slot]
            rows.obs[slot], rows.reward[slot] = source.obs[t], source.reward[t]
            rows.prev_action[slot] = 0 if source.episode_start[t] else actions[slot]
            for name in ("terminated", "truncated", "episode_start", "trial_start", "trial_end"):
                getattr(rows, name)[slot] = getattr(source, name)[t]
        if policy is not None:
            actions = policy(rows, trial, time)
        else:
            for slot in slots:
                actions[slot] = trials[trial[slot]].action[time[slot]]
        replay.write(trial[slots], time[slots], rows, slots, actions)
    replay.commit(np.array([len(one) for one in trials]))


def make_spec(arch: Arch, memory: str = "GRU", **changes: Any) -> AgentSpec:
    """A small agent for such rows."""
    config = AgentConfig(
        **{"arch": arch, "action_embedding": 3, "reward_embedding": 3, "obs_embedding": 4, "shortcut_embedding": 4, "hidden": [8], **changes}
    )
    kind = MEMORIES[memory]
    return AgentSpec(OBS_SPACE, ACTION_SPACE, config, kind, kind.Config(name=memory, hidden_size=6))
