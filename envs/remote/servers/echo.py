"""Echo: says what it is told, waits and fails as it is told; for tests and for timing."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

from openenv.core.env_server.http_server import create_fastapi_app  # pyright: ignore[reportMissingImports]
from openenv.core.env_server.interfaces import Environment  # pyright: ignore[reportMissingImports]
from openenv.core.env_server.types import Action, Observation, State  # pyright: ignore[reportMissingImports]
from pydantic import Field

from envs.remote.servers.command import seats_told, serve


class Saying(Action):
    """A text to repeat, and what to do before: wait without blocking, block, or raise."""

    message: str = ""
    wait_s: float = 0.0
    block_s: float = 0.0
    fail: bool = False
    # So many more letters than were said.
    padding: int = Field(default=0, ge=0)


class Echo(Observation):
    """What was said, how often something was said in this episode, and the seed of the episode."""

    message: str = ""
    step: int = 0
    seed: int = 0


class EchoEnvironment(Environment[Saying, Echo, State]):
    """Repeats; the reward is the length of what was said. `wait_s` of a reset is the wait of every step."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state, self._seed, self._wait_s, self._length = State(), 0, 0.0, 0

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        wait_s: float = 0.0,
        length: int = 20,
        **kwargs: Any,
    ) -> Echo:
        self._state = State(episode_id=episode_id, step_count=0)
        self._seed, self._wait_s, self._length = seed or 0, wait_s, length
        return Echo(seed=self._seed)

    def step(self, action: Saying, timeout_s: float | None = None, **kwargs: Any) -> Echo:
        raise NotImplementedError("step_async is what the server calls")

    async def step_async(self, action: Saying, timeout_s: float | None = None, **kwargs: Any) -> Echo:
        if action.fail:
            raise ValueError("it was told to fail")
        time.sleep(action.block_s)
        await asyncio.sleep(self._wait_s + action.wait_s)
        self._state.step_count += 1
        step, message = self._state.step_count, action.message + "." * action.padding
        return Echo(
            message=message,
            step=step,
            seed=self._seed,
            reward=float(len(action.message)),
            done=step >= self._length,
        )

    @property
    def state(self) -> State:
        return self._state


make_app = partial(create_fastapi_app, EchoEnvironment, Saying, Echo, env_name="echo")
app = make_app(max_concurrent_envs=seats_told())

if __name__ == "__main__":
    serve(make_app, __doc__ or "")
