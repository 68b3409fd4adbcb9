"""Made-up trials for tests of buffers and policies: every row shows its trial and its place in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from buffers.replay import Replay
from buffers.rollout import RolloutBuffer
from envs.base import ActionSpace, EnvSpec, Obs, ObsSpace, Rows
from envs.interop.spaces import MASK_KEY, allowed_choices
from envs.layout import Layout
from policies.agents.base import AgentConfig, AgentSpec, Arch
from policies.memory import MEMORIES

OBS_DIM, ACTION_DIM = 4, 2
OBS_SPACE = spaces.Box(-np.inf, np.inf, (OBS_DIM,), np.float32)
ACTION_SPACE = spaces.Box(-1.0, 1.0, (ACTION_DIM,), np.float32)


@dataclass(frozen=True)
class Kind:
    """How the numbers of a trial look in its rows, and as actions."""

    obs_space: ObsSpace
    action_space: ActionSpace

    def look(self, numbers: NDArray[np.float32]) -> Obs:
        """The observation of a row that shows these numbers."""
        if isinstance(self.obs_space, spaces.Box):
            return _look(self.obs_space, numbers)
        return {
            key: _allowed(part, numbers) if key == MASK_KEY else _look(part, numbers)
            for key, part in self.obs_space.spaces.items()
        }

    def act(self, numbers: NDArray[np.float32], seen: Obs) -> Any:
        """An action: the numbers themselves, or one of those that are allowed."""
        if isinstance(self.action_space, spaces.Box):
            return numbers
        mask = seen[MASK_KEY][None] if isinstance(seen, dict) and MASK_KEY in seen else None
        uniforms = (numbers.astype(np.float64) + 0.9) / 1.8
        if isinstance(self.action_space, spaces.Discrete):
            return allowed_choices(self.action_space, uniforms[:1], mask)[0] + self.action_space.start
        return allowed_choices(self.action_space, uniforms[None, : len(self.action_space.nvec)], mask)[0]


def _look(space: spaces.Space[Any], numbers: NDArray[np.float32]) -> NDArray[Any]:
    assert space.shape is not None
    if space.dtype == np.uint8:
        return (
            ((int(abs(numbers[-1]) * 1e4) + 7 * np.arange(int(np.prod(space.shape)))) % 256)
            .astype(np.uint8)
            .reshape(space.shape)
        )
    return numbers.reshape(space.shape)


def _allowed(space: spaces.Space[Any], numbers: NDArray[np.float32]) -> NDArray[Any]:
    assert space.shape is not None
    return (np.arange(space.shape[0]) != int(abs(numbers[-1]) * 1e4) % space.shape[0]).astype(space.dtype)


def _picture(side: int) -> spaces.Box:
    return spaces.Box(0, 255, (side, side, 3), np.uint8)


PLAIN = Kind(OBS_SPACE, ACTION_SPACE)
KINDS = {
    "continuous": PLAIN,
    "continuous-dict": Kind(spaces.Dict({"picture": _picture(7), "where": OBS_SPACE}), ACTION_SPACE),
    "discrete": Kind(OBS_SPACE, spaces.Discrete(3)),
    "discrete-from-5": Kind(OBS_SPACE, spaces.Discrete(3, start=5)),
    "discrete-picture": Kind(_picture(5), spaces.Discrete(3)),
    "discrete-masked": Kind(
        spaces.Dict({"where": OBS_SPACE, "picture": _picture(5), MASK_KEY: spaces.Box(0, 1, (4,), np.int8)}),
        spaces.Discrete(4),
    ),
    "multi-discrete": Kind(OBS_SPACE, spaces.MultiDiscrete([3, 2])),
    "multi-discrete-masked": Kind(
        spaces.Dict({"where": OBS_SPACE, MASK_KEY: spaces.Box(0, 1, (5,), np.int8)}),
        spaces.MultiDiscrete([3, 2]),
    ),
}


@dataclass
class Trial:
    """One trial, [rows, ...] each."""

    # [trial number, row, episode, noise]
    obs: NDArray[np.float32]
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


def make_trial(
    rng: np.random.Generator, number: int, *, k: int, horizon: int, fall: float = 0.2, scale: float = 1.0
) -> Trial:
    """k episodes; after each step the agent falls with probability `fall`.

    `scale` shrinks the counting, for networks to read. The flags follow the table of envs/base.py.
    """
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


def make_trials(
    seed: int,
    count: int,
    *,
    first: int = 0,
    k: int = 2,
    horizon: int = 5,
    fall: float = 0.2,
    scale: float = 1.0,
) -> list[Trial]:
    """Trials number `first` and on."""
    rng = np.random.default_rng(seed)
    return [make_trial(rng, first + i, k=k, horizon=horizon, fall=fall, scale=scale) for i in range(count)]


# What a memory would remember that knows of a row which trial it is of, and its place in it.
COUNTING = {"where": ((2,), np.dtype(np.float32)), "rows": ((), np.dtype(np.int64))}


def make_replay(
    capacity: int,
    *,
    k: int = 2,
    horizon: int = 5,
    kind: Kind = PLAIN,
    storage: type[Replay] = Replay,
    state_every: int = 0,
    **more: Any,
) -> Replay:
    """A replay with room for so many of such trials at their full length."""
    rows_per_trial = k * (horizon + 1)
    more |= {"capacity_rows": 0 if storage is RolloutBuffer else capacity * rows_per_trial}
    more |= {"states": COUNTING, "state_every": state_every} if state_every else {}
    return storage(
        obs_space=kind.obs_space,
        action_space=kind.action_space,
        wave_trials=capacity,
        rows_per_trial=rows_per_trial,
        **more,
    )


def make_rows(num_slots: int, kind: Kind = PLAIN) -> Rows:
    """Live rows of all slots."""
    return Layout(EnvSpec("made up", kind.obs_space, kind.action_space, task_dim=1)).allocate(num_slots)


def write_obs(obs: Obs, slots: Any, value: Any) -> None:
    """Write one row's observation, or one number into all of it."""
    parts = obs if isinstance(obs, dict) else {"": obs}
    for key, part in parts.items():
        number = value[key] if isinstance(value, dict) else value
        if part.dtype.kind in "iu" and not isinstance(number, np.ndarray):
            number = min(number, 1 if key == MASK_KEY else 255)
        part[slots] = number


# (rows of all slots, trial of each slot or -1, its row) -> actions [N, A]
Policy = Callable[[Rows, NDArray[np.int64], NDArray[np.int64]], NDArray[Any]]


def play(
    replay: Replay, trials: list[Trial], *, num_slots: int, policy: Policy | None = None, kind: Kind = PLAIN
) -> None:
    """A wave: a free slot takes the next trial, so that trials start staggered.

    Slots without a trial hold rubbish. With a `policy` its actions are recorded (and are the previous actions
    of the next rows); otherwise those of the trials.
    """
    rows = make_rows(num_slots, kind)
    replay.reserve(len(trials))
    trial, time, waiting = np.full(num_slots, -1), np.zeros(num_slots, np.int64), list(range(len(trials)))
    actions = np.zeros_like(rows.prev_action)
    while True:
        for slot in range(num_slots):
            time[slot] += 1
            if trial[slot] < 0 or time[slot] == len(trials[trial[slot]]):
                trial[slot], time[slot] = waiting.pop(0) if waiting else -1, 0
        slots = np.flatnonzero(trial >= 0)
        if not len(slots):
            break
        write_obs(rows.obs, slice(None), 7e7)
        rows.reward[:], rows.prev_action[:], rows.valid[:] = 7e7, 7e7, trial >= 0
        for slot in slots:
            source, t = trials[trial[slot]], time[slot]
            write_obs(rows.obs, slot, kind.look(source.obs[t]))
            rows.reward[slot] = source.reward[t]
            rows.prev_action[slot] = 0 if source.episode_start[t] else actions[slot]
            for name in ("terminated", "truncated", "episode_start", "trial_start", "trial_end"):
                getattr(rows, name)[slot] = getattr(source, name)[t]
        if policy is not None:
            actions = policy(rows, trial, time)
        else:
            for slot in slots:
                source, t = trials[trial[slot]], time[slot]
                actions[slot] = kind.act(source.action[t], kind.look(source.obs[t]))
        replay.write(trial[slots], time[slots], rows, slots, actions)
        kept = (
            slots[(time[slots] > 0) & (time[slots] % replay.state_every == 0)] if replay.state_every else []
        )
        if len(kept):
            where = [trials[trial[slot]].obs[time[slot], :2] for slot in kept]
            replay.write_states(trial[kept], time[kept], {"where": np.array(where), "rows": time[kept]})
    replay.commit(np.array([len(one) for one in trials]))


def make_spec(arch: Arch, memory: str = "GRU", kind: Kind = PLAIN, **changes: Any) -> AgentSpec:
    """A small agent for such rows."""
    config = AgentConfig(
        **{
            "arch": arch,
            "action_embedding": 3,
            "reward_embedding": 3,
            "obs_embedding": 4,
            "shortcut_embedding": 4,
            "picture_embedding": 5,
            "hidden": [8],
            **changes,
        }
    )
    remembers = MEMORIES[memory]
    return AgentSpec(
        kind.obs_space,
        kind.action_space,
        config,
        remembers,
        remembers.fitted(remembers.Config(name=memory, hidden_size=6), 402),
    )
