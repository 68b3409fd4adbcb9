"""A grid world that is told in words: find the goal, whose place is the task."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from openenv.core.env_server.http_server import create_fastapi_app  # pyright: ignore[reportMissingImports]
from openenv.core.env_server.interfaces import Environment  # pyright: ignore[reportMissingImports]
from openenv.core.env_server.types import Action, Observation, State  # pyright: ignore[reportMissingImports]
from pydantic import Field

from envs.remote.servers.command import seats_told, serve

SIZE = 5
MOVES = {"north": (0, 1), "south": (0, -1), "east": (1, 0), "west": (-1, 0)}


class Step(Action):
    """A word: north, south, east or west."""

    message: str


class Told(Observation):
    """Where we are, in words, and as numbers."""

    text: str = ""
    place: list[int] = Field(default_factory=list)


class GridWorld(Environment[Step, Told, State]):
    """Reach the goal in a square of rooms: 1 in the goal, which ends the episode, and -0.04 for a step."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state, self._place, self._goal = State(), (0, 0), (0, 0)

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        goal_x: int = SIZE - 1,
        goal_y: int = SIZE - 1,
        **kwargs: Any,
    ) -> Told:
        self._state = State(episode_id=episode_id, step_count=0)
        self._goal = goal_x, goal_y
        rooms = [(x, y) for x in range(SIZE) for y in range(SIZE) if (x, y) != self._goal]
        self._place = random.Random(seed or 0).choice(rooms)
        return self._told(None)

    def step(self, action: Step, timeout_s: float | None = None, **kwargs: Any) -> Told:
        if action.message not in MOVES:
            raise ValueError(f"{action.message!r} is none of {', '.join(MOVES)}")
        self._state.step_count += 1
        right, up = MOVES[action.message]
        x, y = self._place[0] + right, self._place[1] + up
        if 0 <= x < SIZE and 0 <= y < SIZE:
            self._place = x, y
        return self._told(1.0 if self._place == self._goal else -0.04)

    def _told(self, reward: float | None) -> Told:
        found = self._place == self._goal
        text = "You are in the goal." if found else "You are in room {} {}.".format(*self._place)
        return Told(text=text, place=list(self._place), reward=reward, done=found)

    @property
    def state(self) -> State:
        return self._state


make_app = partial(create_fastapi_app, GridWorld, Step, Told, env_name="grid_world")
app = make_app(max_concurrent_envs=seats_told())

if __name__ == "__main__":
    serve(make_app, __doc__ or "")
