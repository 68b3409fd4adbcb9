"""Player: a trained agent, stepped by hand as it was trained; made by `load_agent`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import ActionSpace, ObsSpace, map_obs
from policies.agents.agent import Agent
from policies.agents.base import PolicyRows
from policies.learner import Learner
from policies.memory.base import State
from policies.play.inputs import Face, LoopInputs, Seen
from policies.play.record import AgentRecord
from policies.play.rows import PlayedRows, PlayError
from utils.options import OptionError
from utils.seeding import Phase, Purpose, generator

_log = logging.getLogger(__name__)


def load_agent(
    path: str | Path,
    n: int = 1,
    *,
    checkpoint: str = "last",
    deterministic: bool = True,
    seed: int | None = None,
    episodes: int | None = None,
    horizon: int | None = None,
    env: Any = None,
    device: str = "cpu",
) -> Player:
    """The agent of a run's folder, or of an agent's file, to play in `n` slots.

    Of a run it is the one of the last checkpoint, or with `checkpoint="best"` the one that was best on the
    test list (docs/run.md). With `deterministic=False` actions are sampled, as a function of `seed` (default:
    that of the run) and of the number of the trial. `episodes` (k) and `horizon` (H) are the longest trial to
    be played; by default those of the run's evaluation. `env` is the environment to be played, or a vector of
    them, where its spaces are not those of the agent: its observations are then encoded, and the actions are
    its own.
    """
    whole_numbers = (("n", n, 1), ("episodes", episodes, 1), ("horizon", horizon, 1), ("seed", seed, 0))
    for name, number, low in whole_numbers:
        if number is not None and not (_is_whole(number) and number >= low):
            raise OptionError(f"load_agent: {name}={number!r} must be a whole number of at least {low}.")
    _check_device(device)
    record = AgentRecord.load(Path(path).expanduser(), checkpoint)
    rows = PlayedRows(
        record.layout, n, episodes=episodes or record.episodes, horizon=horizon or record.horizon
    )
    face = None
    if env is None and "rescale_actions" in record.config["env"]:
        _log.warning(
            "The actions of %s were shown to this agent as %s: to step that environment itself, give it as "
            "load_agent(..., env=env).",
            record.config["env"].get("id", record.spec.name),
            record.spec.action_space,
        )
    elif env is not None:
        face = Face.of(env, record.layout, rescale=record.config["env"].get("rescale_actions", True))
    noise_seed = record.config["seed"] if seed is None else seed
    agent = record.build(rows.episodes * (rows.horizon + 1), device)
    return Player(record, agent, rows, face, Sampling(deterministic, noise_seed), device)


def _is_whole(number: object) -> bool:
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool)


def _check_device(device: str) -> None:
    """Refuse what torch does not have here, in one sentence."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # the second where torch was built without it
        raise OptionError(
            f"load_agent: torch finds no device={device!r} here: {error}".rstrip(".") + "."
        ) from None


def save_agent(source: Player | Learner, path: str | Path) -> None:
    """Write the agent alone into a file, which `load_agent` reads without the run and its environment."""
    if isinstance(source, Player):
        record = source.record
    else:
        spec, env_steps = source.family.spec, source.counters.env_steps
        record = AgentRecord.of_agent(source.agent, spec, source.config, env_steps)
    record.save(Path(path).expanduser())


@dataclass(frozen=True)
class Sampling:
    """Whether actions are sampled, and from which streams: as in evaluation, each trial has its own."""

    deterministic: bool
    seed: int

    def noise(self, agent: Agent, trial: int, num_rows: int) -> NDArray[Any]:
        """[num_rows, ...] the noise of all rows of a trial, by its number."""
        return agent.draw_noise(generator(self.seed, Phase.EVALUATE, Purpose.ACTION, trial), num_rows)


class Player:
    """Plays trials of `episodes` episodes in each of its slots, and forgets where a trial starts only.

    The first row starts a trial. The row after `done=True` starts the next episode, and after the last
    episode of a trial the next trial; `reset` starts one at any time. What the agent reads besides the
    observation it has from the player: the previous action as it was chosen, not as it was clipped; the
    reward; the new-episode flag; its normalisation.
    """

    def __init__(
        self,
        record: AgentRecord,
        agent: Agent,
        rows: PlayedRows,
        face: Face | None,
        sampling: Sampling,
        device: str,
    ) -> None:
        self.record, self.num_slots = record, len(rows.episode)
        self._agent, self._rows, self._face, self._sampling = agent, rows, face, sampling
        self._device = device
        self._inputs = LoopInputs(rows.layout, self.num_slots, face)
        # [N, ...] the actions as they were chosen, and the noise of each slot's trial, row by row.
        self._chosen = np.zeros_like(rows.rows.prev_action)
        blank = np.zeros_like(agent.draw_noise(np.random.default_rng(0), 1))
        self._noise = np.repeat(blank[None], self.num_slots, 0)
        if not sampling.deterministic:
            self._noise = np.repeat(self._noise, rows.episodes * (rows.horizon + 1), 1)
        self._trials = 0
        self._state = agent.initial_state(self.num_slots)

    # -- what it is ------------------------------------------------------------------------------------------

    @property
    def observation_space(self) -> ObsSpace:
        """What the agent reads of one slot; task and new-episode flag may be left out of observations."""
        return self._rows.layout.obs_space

    @property
    def action_space(self) -> ActionSpace | spaces.Space[Any]:
        """The actions of one slot."""
        return self._rows.layout.spec.action_space if self._face is None else self._face.writer.raw

    @property
    def episodes_per_trial(self) -> int:
        """k."""
        return self._rows.episodes

    @property
    def max_episode_steps(self) -> int:
        """H."""
        return self._rows.horizon

    @property
    def env_options(self) -> dict[str, Any]:
        """The environment that it was trained in, as arguments of `make_env(name, **player.env_options)`.

        Trials have the player's k and H. Without these options the family's defaults are another environment.
        """
        trial = {"family", "max_rollouts_per_task", "max_episode_steps"}
        options = {name: value for name, value in self.record.config["env"].items() if name not in trial}
        return options | {"episodes_per_task": self.episodes_per_trial, "horizon": self.max_episode_steps}

    @property
    def episode(self) -> NDArray[np.int64]:
        """[N] the episode of its trial that each slot is in, from 0."""
        return self._rows.episode.copy()

    @property
    def state(self) -> dict[str, NDArray[Any]]:
        """[N, ...] what each slot remembers after its last row, by name; empty without a memory."""
        return {name: leaf.cpu().numpy().copy() for name, leaf in self._state.items()}

    # -- playing ---------------------------------------------------------------------------------------------

    def reset(self, ids: int | Sequence[int] | Sequence[bool] | NDArray[Any] | None = None) -> None:
        """Forget: the next rows of these slots start trials; by default all, or the marked ones of a mask."""
        slots = np.arange(self.num_slots) if ids is None else np.atleast_1d(np.asarray(ids))
        if slots.dtype == np.bool_ and slots.shape == (self.num_slots,):
            slots = np.flatnonzero(slots)
        slots = slots.astype(np.int64) if slots.size == 0 else slots
        if slots.dtype.kind not in "iu" or ((slots < 0) | (slots >= self.num_slots)).any():
            raise PlayError(f"reset({ids}) names no slots of the {self.num_slots} that the player has.")
        self._rows.reset(slots)
        start = self._agent.initial_state(self.num_slots)
        with torch.inference_mode():
            for name, leaf in self._state.items():
                where = torch.from_numpy(slots).to(leaf.device)
                self._state[name] = leaf.index_copy(0, where, start[name][where])

    def act(self, obs: Any, reward: Any = None, done: Any = False, info: Any = None) -> Any:
        """The actions of all slots for their next rows, [N, ...], or of one observation without a batch.

        `reward` and `done` (terminated or truncated) are what the environment gave with `obs`. **The last
        observation of an episode is shown too**, with its reward and `done=True`; after it comes
        `env.reset()`, whose observation has no reward (None or 0). So every row is one of training. There is
        nothing to do at the end of an episode: one observation without a batch then gives None, and of a
        batch the action is ignored, as by Gymnasium's vector environments. If an environment begins the next
        episode in the same step, the last observation has to be in `info` (`final_obs` or
        `terminal_observation`), and both are read. An `action_mask` and the `task` of an agent that is shown
        it may be in `info`, too. A loop whose rows cannot be those of a trial is refused by a `PlayError`.
        """
        single = self._inputs.is_single(obs)
        if reward is None and not self._rows.all_start:
            raise PlayError(
                "act(obs) without a reward begins an episode, and the one before has not ended: show its "
                "last observation first, act(obs, reward, True), or call reset() to begin another trial."
            )
        reward = 0.0 if reward is None else reward
        seen, begin, begun = self._inputs.read(obs, reward, done, info, single=single)

        # A slot that shows the end of its trial once more waits there, and reads nothing.
        waits = self._rows.idle(seen.obs, seen.reward, seen.done)
        self._read(seen, ~waits)
        # The environment has begun the next episodes already, behind the last observations.
        if begin is not None:
            self._read(begin, begun)

        # The environment's action is legal; the agent goes on reading its own.
        if single and seen.done[0] and not begun[0] and not self._tells_ends(seen):
            return None
        actions = self._legal(self._chosen)
        return actions[0] if single else actions

    def _tells_ends(self, seen: Seen) -> bool:
        """Whether the environment plays whole trials: it takes an action where an inner episode has ended."""
        return seen.flag is not None and bool(self._rows.episode[0] < self._rows.episodes - 1)

    def _read(self, seen: Seen, present: NDArray[np.bool_]) -> None:
        """Read the next rows of the slots in which one is present, and choose their actions."""
        # 1. The rows, and the noise of the trials that start with them.
        played, slots = self._rows, np.flatnonzero(present)
        if seen.task is not None:
            played.rows.task[slots] = seen.task[slots]
        started = played.arrive(slots, seen.obs, seen.reward, seen.done, flag=seen.flag, chosen=self._chosen)
        for slot in started.tolist():
            if not self._sampling.deterministic:
                self._noise[slot] = self._sampling.noise(self._agent, self._trials, self._noise.shape[1])
            self._trials += 1

        # 2. All slots act in one batch, as in a wave: results depend on the size of a batch in their last
        #    bits. Where no row is present, neither the memory nor the action changes.
        chosen, state = self._acted(present)
        mine = present.reshape(-1, *[1] * (chosen.ndim - 1))
        self._chosen = np.where(mine, chosen, self._chosen)
        self._state = state

    @torch.inference_mode()
    def _acted(self, present: NDArray[np.bool_]) -> tuple[NDArray[Any], State]:
        """(actions [N, ...] as chosen, the state after them)."""
        played, rows = self._rows, self._rows.rows
        policy_rows = PolicyRows(
            map_obs(torch.from_numpy, rows.obs),
            torch.from_numpy(rows.reward.astype(np.float32)),
            torch.from_numpy(rows.prev_action),
            torch.from_numpy(rows.episode_start),
            torch.from_numpy(rows.trial_start & present),
        ).to(self._device)
        row = np.minimum(played.row, self._noise.shape[1] - 1)
        noise = torch.from_numpy(self._noise[np.arange(self.num_slots), row]).to(self._device)
        before = self._state
        with _one_thread():
            action, _, after = self._agent.act(policy_rows, before, noise, self._sampling.deterministic)
        if not present.all():
            valid = torch.from_numpy(present).to(self._device)
            after = {
                name: torch.where(valid.view(-1, *[1] * (leaf.dim() - 1)), leaf, before[name])
                for name, leaf in after.items()
            }
        return action.cpu().numpy(), after

    def _legal(self, chosen: NDArray[Any]) -> NDArray[Any]:
        """The actions as the environment takes them: within their bounds, or its own."""
        if self._face is not None:
            return self._face.writer.convert(chosen, np.arange(self.num_slots))
        space = self._rows.layout.spec.action_space
        if isinstance(space, spaces.Box):
            return np.clip(chosen, space.low, space.high)
        return chosen.copy()

    # -- scripts ---------------------------------------------------------------------------------------------

    def as_agent_fn(self) -> AgentFunction:
        """This player as the `agent_fn(observation, done)` of scripts."""
        return AgentFunction(self)


class AgentFunction:
    """`agent_fn(observation, done) -> action`, for loops that hand an agent nothing else.

    Collectors of Retrial see `reads_rewards` and hand the reward too, and by `follows_episodes` they know
    that it belongs to one environment and is shown the ends of episodes. Anywhere else an agent that reads
    rewards would remember wrong ones, and is refused.
    """

    follows_episodes = True

    def __init__(self, player: Player) -> None:
        self.player = player
        self.reads_rewards = player.record.reads_rewards

    def __call__(self, observation: Any, done: Any = False, reward: Any = None, info: Any = None) -> Any:
        """The action; the last observation of an episode has to come too, with `done=True`."""
        if reward is None and self.reads_rewards:
            raise PlayError(
                "This agent reads rewards, and agent_fn(observation, done) is handed none: step it by "
                "player.act(obs, reward, done), or train one with agent.reward_embedding=0."
            )
        return self.player.act(observation, 0.0 if reward is None else reward, done, info)

    def reset(self) -> None:
        """Forget: the next observation starts a trial, as after an episode that was broken off."""
        self.player.reset()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute as runs do: with several threads torch may split a product, which changes its last bits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
