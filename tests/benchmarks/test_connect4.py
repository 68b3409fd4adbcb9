"""The table of Connect4: what scripted players believe, how wins are counted, and a run on a real server."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.several_agents.connect4 import main, summary, win_rates, with_shares
from benchmarks.several_agents.connect4_scripts import Knows, ScriptedPlayer, board_of, likelihoods
from configs.compose import load
from envs.remote.servers.four_in_a_row import THEM, US, FourInARow
from envs.remote.serving import end_served
from policies.learner import Learner

# Three of ours in the lowest row: the fourth is a line across, which opponent 0 does not block.
ACROSS = (0, 0, 1, 1, 2, 2)


def a_board(*columns: int) -> FourInARow:
    """Stones in these columns, ours first."""
    board = FourInARow()
    for number, column in enumerate(columns):
        board.drop(column, THEM if number % 2 else US)
    return board


def test_an_observation_shows_the_board() -> None:
    board = a_board(3, 3, 0, 6)
    shown = board_of(board.flat())
    assert shown.stones == board.stones and shown.heights == board.heights


def test_a_reply_tells_what_only_some_opponents_would_do() -> None:
    board = a_board(*ACROSS)
    assert board.wins(3, US) == {0}
    assert likelihoods(board, 3).tolist() == pytest.approx([1 / 7, 1.0, 1.0, 1.0])
    assert likelihoods(board, 6).tolist() == pytest.approx([1 / 7, 0.0, 0.0, 0.0])
    # Whoever wins tells nothing of what he would have blocked.
    losing = a_board(0, 6, 1, 6, 3, 6)
    assert losing.wins(6, THEM) and likelihoods(losing, 6).tolist() == [1.0] * 4


@pytest.mark.parametrize("knows", [Knows.remembers, Knows.forgets])
def test_a_player_remembers_an_open_line_for_its_trial_or_for_its_game(knows: Knows) -> None:
    player, board = ScriptedPlayer(knows, opponent=0, seed=0), a_board(*ACROSS[:-2])
    board.drop(3, US)
    board.drop(4, THEM)
    player.column(board.flat())
    # It has completed the row but for one place; the opponent plays elsewhere.
    board = a_board(*ACROSS)
    player._left = board_of(board.flat())
    board.drop(6, THEM)
    player.end_of_game(board.flat())
    assert player.belief.tolist() == ([1.0, 0.0, 0.0, 0.0] if knows is Knows.remembers else [0.25] * 4)


def test_rates_are_over_trials_and_the_gain_is_within_them() -> None:
    # Against each weakness half of the trials lose and then win, a quarter wins both, and a quarter none.
    one = np.array([[-1, 1], [-1, 1], [1, 1], [0, 0]], np.float64)
    lost = np.full((4, 2), -1.0)
    found = summary(np.stack([one, one, one, one, lost]))
    assert found["wins"] == [[0.25, 0.75]] * 4 + [[0.0, 0.0]]
    assert found["losses"][0] == [0.5, 0.0] and found["losses"][4] == [1.0, 1.0]
    assert found["over_weaknesses"] == [0.25, 0.75] and found["gains"] == [0.5]
    # The deviation of (1, 1, 0, 0) is sqrt(1/3); over 4 trials, and then over 4 opponents.
    assert found["gain_errors"] == [pytest.approx((1 / 3) ** 0.5 / 2 / 2)]

    told = summary(np.stack([np.ones((4, 2))] * 5)) | {"told": True, "env_steps": 1}
    shared = with_shares({"agent": found | {"told": False, "env_steps": 1}, "told": told})
    assert shared["agent"]["gap"] == 0.75 and shared["agent"]["of_the_gap"] == pytest.approx([2 / 3])
    assert "of_the_gap" not in shared["told"]
    assert "67%" in win_rates(shared) and "+50.0" in win_rates(shared)


@pytest.mark.peers
def test_a_run_is_played_on_a_real_server_beside_the_scripts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("openenv")
    words = ["experiment=connect4", "env.oracle=true", "num_slots=2", "env.num_eval_tasks=2"]
    with Learner(load([*words, "wandb.mode=disabled"]), tmp_path / "told") as learner:
        learner.save()
    for runs in ([], [str(tmp_path / "told")]):
        main([*runs, "--trials", "3", "--output", str(tmp_path / "found.json")])
    end_served()
    players = json.loads((tmp_path / "found.json").read_text())["players"]
    assert len(players) == 5 and players["told"]["told"]
    assert (
        players["script that is told"]["over_weaknesses"][0] > players["random moves"]["over_weaknesses"][0]
    )
    assert "minimax" in capsys.readouterr().out
