"""One PettingZoo environment, played a step at a time: who has a row, who is paid, how it ends."""

from __future__ import annotations

from typing import Any

import pytest
from gymnasium import spaces

from envs.interop.pettingzoo.game import GameError, game_of
from tests.envs.interop.pettingzoo.rounds import Rounds


class Turns:
    """Rounds by turns, without a package: b is paid 5 in a's turn, and whoever chooses 2 dies."""

    def __init__(self, in_cycles: bool, stays: bool = False) -> None:
        self.metadata = {"is_parallelizable": in_cycles}
        self.possible_agents, self.agents = ["a", "b"], list[str]()
        self.stays = stays

    def observation_space(self, agent: str) -> Any: ...
    def agent_iter(self) -> Any: ...

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents, self.turns = list(self.possible_agents), list[str]()
        self.rewards, self.infos = dict.fromkeys(self.agents, 0.0), {name: {} for name in self.agents}
        self.terminations, self.truncations = (dict.fromkeys(self.agents, False) for _ in range(2))
        self.agent_selection = "a"

    def observe(self, agent: str) -> str:
        return f"{agent} after {len(self.turns)}"

    def step(self, action: int | None) -> None:
        name = self.agent_selection
        later = self.agents[self.agents.index(name) + 1 :] + self.agents
        if action is None:
            self.rewards = dict.fromkeys(self.agents, 0.0)
            if not self.stays:
                self.agents.remove(name)
        else:
            self.turns.append(name)
            self.rewards = dict.fromkeys(self.agents, 0.0) | {name: 1.0}
            self.terminations[name] = action == 2
            if name == "a":
                self.rewards["b"] = self.rewards.get("b", 0.0) + 5.0
        self.agent_selection = next((one for one in later if one in self.agents), name)


def test_a_step_is_a_cycle_and_pays_the_sum_of_its_turns() -> None:
    game = game_of(Turns(in_cycles=True))
    assert game.reset().on_turn == ("a", "b")
    played = game.step({"a": 0, "b": 0})
    assert played.rewards == {"a": 1, "b": 6} and game.env.turns == ["a", "b"]
    assert played.obs == {"a": "a after 2", "b": "b after 2"}
    # b dies at its turn: this row is its last one.
    played = game.step({"a": 0, "b": 2})
    assert played.terminations == {"a": False, "b": True} and played.on_turn == ("a",)
    played = game.step({"a": 2, "b": 0})
    assert played.obs.keys() == {"a"} and played.ends() == (True, False)
    assert not game.env.agents, "all have left"


def test_a_game_without_cycles_is_played_a_turn_at_a_time() -> None:
    game = game_of(Turns(in_cycles=False))
    assert game.reset().on_turn == ("a",)
    played = game.step({"a": 0, "b": 2})
    assert played.on_turn == ("b",) and played.rewards == {"a": 1, "b": 5}
    assert game.step({"a": 2, "b": 0}).on_turn == ("a",), "the choice of a did not count"


def test_one_that_waits_to_leave_has_its_last_row_once() -> None:
    game = game_of(Turns(in_cycles=False))
    game.reset()
    assert game.step({"a": 2, "b": 0}).terminations == {"a": True, "b": False}
    played = game.step({"a": 0, "b": 0})
    assert played.obs.keys() == {"b"} and game.env.agents == ["b"]


def test_one_that_never_leaves_is_named() -> None:
    game = game_of(Turns(in_cycles=True, stays=True))
    game.reset()
    with pytest.raises(GameError, match=r"b has ended, but its step\(None\) does not take it out"):
        game.step({"a": 0, "b": 2})
        game.step({"a": 0, "b": 2})


@pytest.mark.parametrize(
    ("break_it", "sentence"),
    [
        ("returns", "b was out of the episode and is in `agents` again"),
        ("silent", "no observation of b, which is alive"),
        ("nan", "The reward of b is not finite"),
    ],
)
def test_a_broken_environment_is_one_sentence_that_names_the_agent(break_it: str, sentence: str) -> None:
    game = game_of(Rounds(break_it))
    game.reset(seed=0)
    with pytest.raises(GameError, match=sentence):
        for _ in range(2):
            game.step({"a": 1, "b": 2 * (break_it == "returns"), "c": 1})
