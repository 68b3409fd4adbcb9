"""HttpEnvClient: an OpenEnv server as an object with `reset` and `step`, never stepped in doubt.

    with HttpEnvClient("http://127.0.0.1:8000") as client:
        answer = client.reset(seed=7)
        while not answer.done:
            answer = client.step({"message": "hello"})

The name is that of scripts; the session is a WebSocket. What a session promises (`envs/remote/session.py`)
holds here: a step is sent once, and after any doubt only a reset goes on. `reset` and `step` block the thread
that calls them, those with `_async` are awaited in any event loop. All sessions live in one loop of the
process, so they are kept alive, and keep their limits together, whoever calls.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, Self

from envs.remote.protocol import Answer, RemoteError, websocket_url
from envs.remote.rollouts.home_loop import HomeLoop, shared_loop
from envs.remote.service_setup import Limits, Patience
from envs.remote.session import Session


class HttpEnvClient:
    """A client of one server, which plays one episode at a time; see the module.

    `limits` are those of all clients of this process on that server which have the same. `headers` are sent
    when a session opens, and never shown.
    """

    def __init__(
        self,
        base_url: str,
        *,
        patience: Patience | None = None,
        limits: Limits | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        websocket_url(base_url)  # refuses what is no address
        self.base_url = base_url
        self._session = Session(base_url, patience or Patience(), limits or Limits(), headers or {})
        # The loop of the session, from its first reset until `close`.
        self._home: HomeLoop | None = None
        self._forgotten: weakref.finalize[Any, Any] | None = None

    def __repr__(self) -> str:
        return f"HttpEnvClient({self._session.url!r})"

    # -- for threads -----------------------------------------------------------------------------------------

    def reset(self, **arguments: Any) -> Answer:
        """Start an episode; the arguments are those of the environment's reset, `seed` among them."""
        return self._at_home().run(self._session.reset(arguments))

    def step(self, action: Any) -> Answer:
        """Step once; an action is a dict, or an object with `model_dump` as those of pydantic."""
        return self._at_home().run(self._session.step(_fields_of(action)))

    def state(self) -> dict[str, Any]:
        """What the server tells of the environment's state."""
        return self._at_home().run(self._session.state())

    def close(self) -> None:
        """Give the seat back; a reset opens another session."""
        if self._home is not None:
            self._home.run(self._session.close())
            self._leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- for event loops -------------------------------------------------------------------------------------

    async def reset_async(self, **arguments: Any) -> Answer:
        """`reset`, awaited."""
        return await self._at_home().awaited(self._session.reset(arguments))

    async def step_async(self, action: Any) -> Answer:
        """`step`, awaited."""
        return await self._at_home().awaited(self._session.step(_fields_of(action)))

    async def close_async(self) -> None:
        """`close`, awaited."""
        if self._home is not None:
            await self._at_home().awaited(self._session.close())
            self._leave()

    # -- where the session lives -----------------------------------------------------------------------------

    def _at_home(self) -> HomeLoop:
        if self._home is None:
            self._home = shared_loop()
            self._forgotten = weakref.finalize(self, _abandon, self._home, self._session)
            # At the end of the program its sockets are closed anyway, and the loop may be gone before.
            self._forgotten.atexit = False
        return self._home

    def _leave(self) -> None:
        self._home = None
        if self._forgotten is not None:
            self._forgotten.detach()


def _abandon(home: HomeLoop, session: Session) -> None:
    """Cut the session of a client that was forgotten without `close`."""
    home.thread.loop.call_soon_threadsafe(session.abort)


def _fields_of(action: Any) -> Mapping[str, Any]:
    dump = getattr(action, "model_dump", None)
    fields = dump() if callable(dump) else action
    if not isinstance(fields, Mapping):
        raise RemoteError(f"An action is a dict of its fields, as in {{'column': 3}}, and not {action!r}.")
    return fields
