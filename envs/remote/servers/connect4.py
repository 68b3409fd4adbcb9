"""Connect4 as a service: the opponent is the task, and its weakness is hidden."""

from __future__ import annotations

import random
from typing import Any

from openenv.core.env_server.http_server import create_fastapi_app  # pyright: ignore[reportMissingImports]
from openenv.core.env_server.interfaces import Environment  # pyright: ignore[reportMissingImports]
from openenv.core.env_server.types import Action, Observation, State  # pyright: ignore[reportMissingImports]
from pydantic import Field

from envs.remote.servers.command import SEATS, serve
from envs.remote.servers.four_in_a_row import COLUMNS, OPPONENTS, THEM, US, FourInARow, reply


class Move(Action):
    """The column to drop a stone into."""

    column: int = Field(ge=0, lt=COLUMNS)


class Position(Observation):
    """The board, row by row from below: 1 ours, -1 theirs, 0 free; and the columns that are not full."""

    board: list[int] = Field(default_factory=list)
    legal_actions: list[int] = Field(default_factory=list)


class Connect4(Environment[Move, Position, State]):
    """A game against the opponent of the task; 1 for a win, -1 for a loss, 0 for a draw.

    `opponent` 0 to 3 never blocks one direction (across, up, and the two diagonals) and wins or blocks in one
    move otherwise; 4 looks four moves ahead. The seed decides who begins and what a free move is.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state, self._board, self._over = State(), FourInARow(), True
        self._opponent, self._rng = 0, random.Random(0)

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, opponent: int = 0, **kwargs: Any
    ) -> Position:
        if opponent not in range(OPPONENTS):
            raise ValueError(f"opponent={opponent} is none of 0 to {OPPONENTS - 1}")
        self._state = State(episode_id=episode_id, step_count=0)
        self._board, self._over = FourInARow(), False
        self._opponent, self._rng = opponent, random.Random(seed or 0)
        if self._rng.random() < 0.5:
            self._board.drop(reply(self._board, opponent, self._rng), THEM)
        return self._position(None)

    def step(self, action: Move, timeout_s: float | None = None, **kwargs: Any) -> Position:
        if self._over or action.column not in self._board.legal():
            raise ValueError("the game is over" if self._over else f"column {action.column} is full")
        self._state.step_count += 1
        reward = self._played(action.column, US)
        if not self._over:
            reward = -self._played(reply(self._board, self._opponent, self._rng), THEM)
        return self._position(reward)

    def _played(self, column: int, player: int) -> float:
        """1 if the stone completes a line, else 0; a full board ends the game, too."""
        won = bool(self._board.wins(column, player))
        self._board.drop(column, player)
        self._over = won or not self._board.legal()
        return float(won)

    def _position(self, reward: float | None) -> Position:
        legal = [] if self._over else self._board.legal()
        return Position(board=self._board.flat(), legal_actions=legal, reward=reward, done=self._over)

    @property
    def state(self) -> State:
        return self._state


app = create_fastapi_app(Connect4, Move, Position, max_concurrent_envs=SEATS, env_name="connect4")

if __name__ == "__main__":
    serve(app, __doc__ or "")
