"""Connect4 as a service: the opponent is the task, and its weakness is hidden."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from openenv.core.env_server.http_server import create_fastapi_app  # pyright: ignore[reportMissingImports]
from openenv.core.env_server.interfaces import Environment  # pyright: ignore[reportMissingImports]
from openenv.core.env_server.types import Action, Observation, State  # pyright: ignore[reportMissingImports]
from pydantic import Field

from envs.remote.servers import puzzles
from envs.remote.servers.command import seats_told, serve
from envs.remote.servers.four_in_a_row import COLUMNS, DIRECTIONS, OPPONENTS, THEM, US, FourInARow, reply


class Move(Action):
    """The column to drop a stone into."""

    column: int = Field(ge=0, lt=COLUMNS)


# What a line of so many stones is worth: each stone more counts four times.
WORTH = (0.0, 1 / 16, 1 / 4, 1.0)


class Position(Observation):
    """The board, row by row from below: 1 ours, -1 theirs, 0 free; and the columns that are not full.

    `ours` tells for each direction and column how long a line a stone of ours there would join, and `theirs`
    for each column the longest of their lines: 1 where the stone wins, 1/4 for a third stone, 1/16 for a
    second. `threats` is 1 for each direction and column where a stone of ours would threaten to win by the
    next, in a line of that direction. `tried` is 1 for each direction in which our last stone threatened, and
    `left_open` for each in which a line of ours can be completed after their reply.
    """

    board: list[int] = Field(default_factory=list)
    ours: list[float] = Field(default_factory=list)
    theirs: list[float] = Field(default_factory=list)
    threats: list[int] = Field(default_factory=list)
    tried: list[int] = Field(default_factory=list)
    left_open: list[int] = Field(default_factory=list)
    legal_actions: list[int] = Field(default_factory=list)


def _open(longest: list[int]) -> list[int]:
    """1 for each direction in which one stone more would complete a line of three."""
    return [int(3 in longest[first : first + COLUMNS]) for first in range(0, len(longest), COLUMNS)]


class Connect4(Environment[Move, Position, State]):
    """A game against the opponent of the task; 1 for a win, -1 for a loss, 0 for a draw.

    `opponent` 0 to 3 never blocks one direction (across, up, and the two diagonals) and wins or blocks in one
    move otherwise; 4 looks four moves ahead. With `careful` 0 to 3 leave no fork in the directions that they
    block: without it whoever has three open stones wins against any of them, and need not know the weakness.
    With `puzzle` a game begins in a position that is won in two moves by whoever knows the weakness.
    The seed decides who begins, or which puzzle it is, and what a free move is.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state, self._board, self._over = State(), FourInARow(), True
        self._opponent, self._careful, self._rng = 0, False, random.Random(0)
        self._tried = [0] * len(DIRECTIONS)

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        opponent: int = 0,
        careful: bool = False,
        puzzle: bool = False,
        **kwargs: Any,
    ) -> Position:
        if opponent not in range(OPPONENTS):
            raise ValueError(f"opponent={opponent} is none of 0 to {OPPONENTS - 1}")
        self._state = State(episode_id=episode_id, step_count=0)
        self._opponent, self._careful, self._rng = opponent, careful, random.Random(seed or 0)
        self._board, self._over = puzzles.puzzle(self._rng) if puzzle else FourInARow(), False
        self._tried = [0] * len(DIRECTIONS)
        if not puzzle and self._rng.random() < 0.5:
            self._board.drop(self._reply(), THEM)
        return self._position(None)

    def step(self, action: Move, timeout_s: float | None = None, **kwargs: Any) -> Position:
        if self._over or action.column not in self._board.legal():
            raise ValueError("the game is over" if self._over else f"column {action.column} is full")
        self._state.step_count += 1
        reward = self._played(action.column, US)
        self._tried = _open(self._board.longest(US))
        if not self._over:
            reward = -self._played(self._reply(), THEM)
        return self._position(reward)

    # A move takes less than handing it to a thread, which is what OpenEnv does with `reset` and `step`.

    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> Position:
        return self.reset(seed, episode_id, **kwargs)

    async def step_async(self, action: Move, timeout_s: float | None = None, **kwargs: Any) -> Position:
        return self.step(action, timeout_s, **kwargs)

    def _reply(self) -> int:
        return reply(self._board, self._opponent, self._rng, careful=self._careful)

    def _played(self, column: int, player: int) -> float:
        """1 if the stone completes a line, else 0; a full board ends the game, too."""
        won = bool(self._board.wins(column, player))
        self._board.drop(column, player)
        self._over = won or not self._board.legal()
        return float(won)

    def _position(self, reward: float | None) -> Position:
        board, ours, theirs = self._board, self._board.longest(US), self._board.longest(THEM)
        threats = [0] * (len(DIRECTIONS) * COLUMNS)
        for column, places in ({} if self._over else board.threats(US)).items():
            for direction in set().union(*places):
                threats[direction * COLUMNS + column] = 1
        return Position(
            board=board.flat(),
            ours=[WORTH[stones] for stones in ours],
            theirs=[WORTH[max(theirs[column::COLUMNS])] for column in range(COLUMNS)],
            threats=threats,
            tried=self._tried,
            left_open=_open(ours),
            legal_actions=[] if self._over else board.legal(),
            reward=reward,
            done=self._over,
        )

    @property
    def state(self) -> State:
        return self._state


make_app = partial(create_fastapi_app, Connect4, Move, Position, env_name="connect4")
app = make_app(max_concurrent_envs=seats_told())

if __name__ == "__main__":
    serve(make_app, __doc__ or "")
