"""The family PettingZoo: turns, deaths and rewards of random games, faults, a sentence for each mistake."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.backends.base import BackendConfig
from envs.base import SlotError, Split, uniform_actions
from envs.interop.spaces import MASK_KEY
from envs.meta.make_env import make_family
from envs.meta.third_party import petting_zoo, petting_zoo_maker
from envs.meta.third_party.petting_zoo import PettingZoo
from envs.parallel_env_manager import ParallelEnvManager
from tests.envs.interop.pettingzoo.random_games import RandomAtOnce, RandomTurns
from tests.envs.interop.pettingzoo.rounds import Rounds
from tests.envs.meta.played import Played
from utils.options import OptionError

GAMES = "tests.envs.interop.pettingzoo.random_games"
MAKERS: dict[str, Callable[..., Any]] = {
    "turns": RandomTurns,
    "cycles": lambda **options: RandomTurns(in_cycles=True, **options),
    "at once": RandomAtOnce,
}
any_game = {
    "kind": st.sampled_from(sorted(MAKERS)),
    "agents": st.integers(2, 4),
    "deadliness": st.sampled_from([0.0, 0.05, 0.3]),
    "limit": st.sampled_from([0, 7]),
    "seed": st.integers(0, 2**31 - 1),
}


def cycle_of(obs: Any, space: Any, rng: np.random.Generator) -> int:
    """A partner whose choice follows from what it sees."""
    return int(obs[0] + obs[3]) % 3


def played_rows(family: PettingZoo, seed: int, actions: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
    """The rows of one episode, to its end or to that of the actions."""
    played = Played(family, 1)
    rows = played.reset([0], [[0.0]], [seed])
    found: list[dict[str, Any]] = []
    for action in [None, *actions]:
        if action is not None:
            rows = played.step([0], action[None])
        obs: Any = rows.obs
        found.append(
            {
                "obs": (obs["observation"] if isinstance(obs, dict) else obs)[0].copy(),
                "mask": obs[MASK_KEY][0].copy() if isinstance(obs, dict) else None,
                "reward": float(rows.reward[0]),
                "ended": bool(rows.ended[0]),
                "truncated": bool(rows.truncated[0]),
                "info": rows.info[0].copy(),
            }
        )
        if rows.ended[0]:
            break
    return found


@settings(max_examples=60, deadline=None)
@given(**any_game)
def test_what_all_agents_are_paid_adds_up_to_what_the_game_has_paid(
    kind: str, agents: int, deadliness: float, limit: int, seed: int
) -> None:
    made: list[Any] = []

    def make() -> Any:
        made.append(MAKERS[kind](agents=agents, deadliness=deadliness, limit=limit))
        return made[-1]

    family = PettingZoo.from_factory(make, reward="sum")
    actions = np.random.default_rng(seed).integers(3, size=(30, agents))
    rows = played_rows(family, seed, actions)
    paid = np.sum([row["info"] for row in rows], axis=0)
    assert dict(zip(made[-1].possible_agents, paid.tolist(), strict=True)) == made[-1].paid
    assert sum(row["reward"] for row in rows) == sum(made[-1].paid.values())
    # Who is out stays out, sees zeros, and has one choice, so that none of it reaches a loss.
    counts = np.array([row["obs"][-agents:] for row in rows])
    parts = np.array([row["obs"][:-agents].reshape(agents, -1) for row in rows])
    free = np.array([row["mask"].reshape(agents, 3).sum(1) for row in rows])
    assert ((free == 3) == (counts == 1)).all() and ((free == 1) == (counts == 0)).all()
    if kind != "turns":
        assert (np.diff(counts, axis=0) <= 0).all()
    was_out = np.cumsum((parts == 0).all(axis=2), axis=0) > 0
    assert (parts[was_out] == 0).all()
    assert rows[-1]["ended"] == (not made[-1].agents)


@settings(max_examples=60, deadline=None)
@given(**any_game | {"kind": st.sampled_from(["turns", "cycles"])})
def test_the_rows_of_an_agent_are_what_pettingzoos_own_loop_gives_it(
    kind: str, agents: int, deadliness: float, limit: int, seed: int
) -> None:
    last = f"agent_{agents - 1}"
    options = {"agents": agents, "deadliness": deadliness, "limit": limit}
    made: list[RandomTurns] = []

    def make() -> RandomTurns:
        made.append(MAKERS[kind](**options))
        return made[-1]

    family = PettingZoo.from_factory(make, partners=[cycle_of], mode="ego", seat=last)
    actions = np.random.default_rng(seed).integers(3, size=30)
    rows = played_rows(family, 5, actions)
    # A game that is over before the agent's first turn is begun anew, with the next seed.
    seeds, expected = np.random.default_rng(5), []
    while len(expected) < 2:
        expected = plain_rows(MAKERS[kind](**options), last, int(seeds.integers(2**31)), actions)
    for row, (obs, reward, terminated, truncated) in zip(rows, expected, strict=True):
        assert row["obs"].tolist() == obs.tolist()
        assert (row["reward"], row["ended"]) == (reward, terminated or truncated)
        assert row["truncated"] == (truncated and not terminated)


def plain_rows(env: Any, seat: str, seed: int, actions: np.ndarray[Any, Any]) -> list[tuple[Any, ...]]:
    """What `last()` says to one agent in the loop that PettingZoo's pages show."""
    env.reset(seed=seed)
    found, own = [], iter(actions)
    for name in env.agent_iter():
        obs, reward, terminated, truncated, _ = env.last()
        if name == seat:
            # The reward before the first turn is not a consequence of an action.
            found.append((obs, reward if found else 0.0, terminated, truncated))
            if terminated or truncated or len(found) > len(actions):
                return found
        if terminated or truncated:
            env.step(None)
        else:
            env.step(next(own) if name == seat else cycle_of(obs, None, env.rng))
    return found


# -- tasks ---------------------------------------------------------------------------------------------------


def drawn(family: PettingZoo, split: str, n: int = 40) -> np.ndarray[Any, Any]:
    return family.sample_tasks(np.random.default_rng(0), n, split)


def test_partners_and_worlds_are_the_task() -> None:
    family = PettingZoo.from_factory(
        RandomTurns,
        mode="ego",
        partners=[cycle_of, lambda *_: 2],
        test_partners=["random"],
        task_by_seed=True,
    )
    train, test = drawn(family, "train"), drawn(family, "test")
    assert set(train[:, 0]) == {0, 1} and set(test[:, 0]) == {2}
    assert set(train[:, 1] % 2) == {0} and set(test[:, 1] % 2) == {1}
    assert family.spec.split is Split.disjoint
    # The world of a task is the same in every episode of it, and luck is what the game draws first.
    played = Played(family, 3)
    rows: Any = played.reset([0, 1, 2], train[[0, 0, 1]], [1, 2, 3])
    luck = rows.obs[:, 2]
    assert luck[0] == luck[1] != luck[2]


def test_without_partners_or_worlds_there_is_one_task() -> None:
    family = PettingZoo.from_factory(RandomAtOnce)
    assert drawn(family, "train").tolist() == [[0.0]] * 40 and family.spec.split is Split.shared


# -- faults --------------------------------------------------------------------------------------------------


class Faulty(RandomTurns):
    """Its process is killed, or it raises or waits, in the middle of a cycle, once."""

    def __init__(self, how: str, once: str, **options: Any) -> None:
        super().__init__(in_cycles=True, deadliness=0.1, **options)
        self.how, self.once = how, once

    def step(self, action: Any) -> None:
        if self.steps == 4 and action is not None and self.how != "never":
            self._fail_once()
        super().step(action)

    def _fail_once(self) -> None:
        try:
            os.close(os.open(self.once, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        if self.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "hang":
            threading.Event().wait(1000)
        raise RuntimeError("100% of %s went wrong")


def stream_of(how: str, mode: str, once: str) -> list[bytes]:
    """All rows of two trials in each of three slots."""
    partners = [cycle_of] if mode == "ego" else []
    family = PettingZoo.from_factory(
        partial(Faulty, how, once), partners=partners, mode=mode, max_episode_steps=12
    )
    backend = BackendConfig(name="process" if how != "never" else "serial", call_timeout_s=5.0)
    rng, found = np.random.default_rng(0), []
    with ParallelEnvManager(
        family, 3, num_workers=2 if how != "never" else 1, seed=3, backend=backend
    ) as manager:
        for _ in range(2):
            manager.reset()
            while manager.running.any():
                rows = manager.step(uniform_actions(rng, manager.single_action_space, 3))
                found += [part[rows.valid].tobytes() for part in (*rows.of_shard, rows.trial_end)]
    return found


@pytest.mark.parametrize("mode", ["joint", "ego"])
def test_a_fault_in_the_middle_of_a_cycle_leaves_the_data_as_it_would_have_been(
    mode: str, tmp_path: Any
) -> None:
    untouched = stream_of("never", mode, "")
    for how in ("raise", "kill", "hang"):
        once = str(tmp_path / how)
        assert stream_of(how, mode, once) == untouched, how
        assert os.path.exists(once)


# -- mistakes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"mode": "shared"}, "mode='shared' is not one of its values. Known: ego, joint."),
        ({"mode": "ego", "seat": "agent_7"}, "There is no seat 'agent_7'. Did you mean"),
        ({"seat": "agent_1"}, "seat= is for mode=ego, and mode=joint is chosen."),
        ({"mode": "ego", "reward": "sum"}, "reward= is for mode=joint, and mode=ego is chosen."),
        ({"mode": "ego", "partners": []}, "partners= is empty: name at least one"),
        (
            {"mode": "ego", "partners": ["randum"]},
            "module:function. Did you mean 'random'?",
        ),
        ({"mode": "ego", "partners": ["math:sine"]}, "partners: math has no 'sine' to call."),
        ({"mode": "ego", "test_partners": ["random"]}, "random is among partners= and test_partners="),
        ({"id": f"{GAMES}:turn"}, "random_games has no 'turn' to call."),
        ({"id": "nowhere/at_all_v0"}, "There is no environment id=nowhere/at_all_v0."),
        ({"id": "math"}, "math has no parallel_env and no env."),
        ({"arguments": ["agent=2"]}, "unexpected keyword argument 'agent'"),
        ({"arguments": ["agents"]}, "'agents' should be name=value."),
    ],
    ids=str,
)
def test_a_wrong_option_is_one_sentence(
    options: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(petting_zoo_maker, "find_spec", lambda name: None)
    monkeypatch.setattr(petting_zoo, "lacking_package", lambda env_id: None)
    monkeypatch.setattr(PettingZoo, "lacks", lambda config: None)
    with pytest.raises(OptionError) as caught:
        make_family("PettingZoo", **{"id": f"{GAMES}:turns"} | options)
    assert sentence in str(caught.value) and "\n" not in str(caught.value)


def test_where_pettingzoo_is_not_installed_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(petting_zoo_maker, "find_spec", lambda name: None)
    with pytest.raises(OptionError, match=r"needs the package pettingzoo .*not installed: pip install"):
        make_family("PettingZoo")


class Blind(RandomAtOnce):
    """One of its agents sees what its space does not have."""

    def seen_by(self, agent: str) -> Any:
        seen = super().seen_by(agent)
        return seen * np.nan if agent == "agent_1" and self.steps == 2 else seen


class Endless(RandomTurns):
    """After some turns, only one agent is on turn."""

    def _select(self) -> None:
        super()._select()
        self.agent_selection = "agent_0" if self.steps > 2 else self.agent_selection


class Revived(RandomTurns):
    """Who is dead comes back when the next one leaves."""

    def _leave(self, name: str, action: Any) -> None:
        super()._leave(name, action)
        if len(self.agents) == 1:
            self.agents.append("agent_0")


@pytest.mark.parametrize(
    ("make", "options", "sentence"),
    [
        (Blind, {}, "What agent_1 sees is not in Box"),
        (
            Endless,
            {"mode": "ego", "seat": "agent_1"},
            "agent_1 is not on turn, though its partners",
        ),
        (partial(Revived, deadliness=0.9), {}, "agent_0 was out of the episode and is in `agents` again."),
        (RandomAtOnce, {"mode": "ego", "partners": [lambda *_: 5]}, "agent_1 is played by a partner, whose"),
        (partial(Rounds, "nan"), {}, "The reward of b is not finite"),
        (partial(Rounds, "silent"), {}, "The environment gives no observation of b, which is alive."),
    ],
)
def test_a_broken_game_is_one_sentence_that_names_the_agent(make: Any, options: Any, sentence: str) -> None:
    family = PettingZoo.from_factory(make, **options)
    played = Played(family, 1)
    played.reset([0], [[0.0]], [0])
    with pytest.raises(SlotError) as caught:
        for _ in range(20):
            played.step([0], np.zeros((1, *(family.spec.action_space.shape or ())), np.int64))
    assert sentence in str(caught.value)


def test_a_partner_must_not_make_a_forbidden_move() -> None:
    # The mask of b forbids its choice 1 in every other step.
    family = PettingZoo.from_factory(Rounds, mode="ego", seat="a", partners=[lambda *_: 1])
    played = Played(family, 1)
    played.reset([0], [[0.0]], [0])
    with pytest.raises(SlotError, match="b is played by a partner, whose action 1 its mask forbids"):
        played.step([0], np.zeros(1, np.int64))


def test_after_the_end_a_step_changes_nothing() -> None:
    family = PettingZoo.from_factory(partial(RandomAtOnce, limit=2))
    played = Played(family, 1)
    played.reset([0], [[0.0]], [0])
    for _ in range(2):
        played.step([0], np.zeros((1, 3), np.int64))
    last = played.bits(0)
    rows = played.step([0], np.ones((1, 3), np.int64))
    assert rows.truncated[0] and rows.reward[0] == 0.0 and played.bits(0) != last


# -- with the packages of others -----------------------------------------------------------------------------


@pytest.mark.peers
@pytest.mark.parametrize("mode", ["joint", "ego"])
def test_turns_and_cycles_are_the_same_where_turns_do_not_interact(mode: str) -> None:
    pytest.importorskip("mpe2")
    seat = {"seat": "agent_0"} if mode == "ego" else {}
    streams = []
    for api in ("parallel", "aec"):
        family = make_family("PettingZoo", id="mpe2/simple_push_v3", api=api, mode=mode, **seat)
        assert isinstance(family, PettingZoo)
        actions = uniform_actions(np.random.default_rng(1), family.spec.action_space, 30)
        streams.append(played_rows(family, 3, actions))
    assert len(streams[0]) == 26 and streams[0][-1]["truncated"]
    for one, other in zip(*streams, strict=True):
        assert (one["obs"] == other["obs"]).all() and one["ended"] == other["ended"]
        assert one["reward"] == pytest.approx(other["reward"], abs=1e-12)


@pytest.mark.peers
def test_a_move_that_the_mask_forbids_is_the_games_to_judge() -> None:
    pytest.importorskip("pettingzoo")
    family = make_family("PettingZoo", id="classic/tictactoe-v3", mode="ego")
    played = Played(family, 1)
    played.reset([0], [[0.0]], [0])
    rows = played.step([0], np.array([4]))
    assert not rows.ended[0]
    rows = played.step([0], np.array([4]))
    assert rows.terminated[0] and rows.reward[0] == -1
