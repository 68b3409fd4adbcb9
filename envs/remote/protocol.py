"""The messages of OpenEnv's WebSocket protocol: what is sent, what an answer holds, and what an error means.

A session is a WebSocket. Both sides send one JSON text at a time, strictly in turn:

    -> {"type": "reset", "data": {"seed": 7, <arguments of the task>}}
    <- {"type": "observation", "data": {"observation": {...}, "reward": null, "done": false}}
    -> {"type": "step", "data": {<fields of the action>}}
    <- {"type": "observation", "data": {...}}
    <- {"type": "error", "data": {"message": "...", "code": "..."}}

There is no number of a request: an answer that comes late looks like that to the next request. So nothing is
ever sent on a connection whose last answer is missing (`session.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

import numpy as np

from utils.options import OptionError

# After these errors the session itself is in order: the environment or its server has refused one call.
REFUSALS = ("VALIDATION_ERROR", "EXECUTION_ERROR")
# What a server says that has no seat left.
AT_CAPACITY = "CAPACITY_REACHED"

# The ports of addresses that name none.
_PORTS = {"http": 80, "https": 443}

_WEBSOCKET = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
_HTTP = {"http": "http", "https": "https", "ws": "http", "wss": "https"}


class RemoteError(RuntimeError):
    """Something is wrong with a service; the text is one sentence that names its server."""


class SessionLostError(RemoteError):
    """A session is over: it was cut, it gave no answer in time, or its answer makes no sense."""


class CapacityError(SessionLostError):
    """The server has no seat left for another session."""

    def __init__(self, text: str, seats: int | None) -> None:
        super().__init__(text)
        self.seats = seats


class CallRefusedError(RemoteError):
    """The server answered a call with an error of the environment, and the session is in order."""


class UnsendableError(RemoteError):
    """A message that JSON cannot hold; the text names its field, and nothing was sent."""


@dataclass(frozen=True)
class Answer:
    """What a reset or a step is answered with."""

    observation: dict[str, Any]
    # None where the environment gives none, as most do at a reset.
    reward: float | None = None
    done: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def truncated(self) -> bool:
        """Whether the episode was cut rather than ended; the protocol itself has no such flag."""
        flags = (self.observation.get("truncated"), self.metadata.get("truncated"))
        return self.done and any(flag is True for flag in (*flags, self.metadata.get("TimeLimit.truncated")))


def websocket_url(url: str) -> str:
    """The address of sessions on the server at `url` (http, https, ws or wss; TLS by its name)."""
    parts = _parts_of(url)
    path = parts.path.rstrip("/")
    path = path if path.endswith("/ws") else f"{path}/ws"
    return urlunsplit((_WEBSOCKET[parts.scheme], parts.netloc, path, parts.query, ""))


def http_url(url: str, page: str) -> str:
    """The address of a page of the server at `url`, such as `schema`."""
    parts = _parts_of(url)
    path = parts.path.rstrip("/").removesuffix("/ws")
    return urlunsplit((_HTTP[parts.scheme], parts.netloc, f"{path}/{page}", parts.query, ""))


def shown_url(url: str) -> str:
    """The address for messages and metrics: without what may be secret in it."""
    parts = _parts_of(url)
    return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")


def is_local(url: str) -> bool:
    """Whether the server is on this machine, where no proxy leads."""
    host = _parts_of(url).hostname or ""
    return host.startswith("127.") or host in ("localhost", "::1")


def refused_redirect(url: str, target: str) -> str | None:
    """Why an answer that leads from one address to another is not followed; None where it is.

    What is sent with a request, such as a password, is meant for the server that was named and for no other.
    """
    if _origin_of(url) == _origin_of(target):
        return None
    return (
        f"{shown_url(url)} redirects to {shown_url(target)}, which may not read what is meant for the first: "
        "give the address of the second if it is the one to ask"
    )


def _origin_of(url: str) -> tuple[str, str | None, int | None]:
    parts = _parts_of(url)
    scheme = _HTTP[parts.scheme]
    return scheme, parts.hostname, parts.port or _PORTS[scheme]


def _parts_of(url: str) -> SplitResult:
    refused = f"{url!r} is no address of a server: write it as http://127.0.0.1:8000."
    try:
        parts = urlsplit(url)
        if parts.scheme in _WEBSOCKET and parts.hostname and parts.port != 0:
            return parts
    except ValueError:  # of a port that is no number, or too large
        raise OptionError(refused) from None
    raise OptionError(refused)


def request(kind: str, data: Mapping[str, Any] | None = None) -> str:
    """The text of a message; a field that JSON cannot hold is an `UnsendableError`."""
    message = {"type": kind} if data is None else {"type": kind, "data": dict(data)}
    try:
        return _ENCODER.encode(message)
    except (TypeError, ValueError, RecursionError) as error:
        raise _unsendable(kind, data or {}) from error


def _plain(value: Any) -> Any:
    """What JSON holds in place of a number or an array of numpy."""
    if isinstance(value, np.floating):
        return float(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} is none of its kinds")


# Made once: `json.dumps` makes one for each text that is not written by its defaults.
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=_plain)


def _unsendable(kind: str, data: Mapping[str, Any]) -> UnsendableError:
    """The error of a message that was not encoded, which names the first field that cannot be."""
    for name, value in data.items():
        try:
            _ENCODER.encode({name: value})
        except (TypeError, ValueError, RecursionError) as error:
            shown = f"{value!r}"[:200]
            return UnsendableError(
                f"The field {name!r} of a {kind} is {shown}, which JSON cannot hold: {error}"
            )
    return UnsendableError(f"The fields of a {kind} are no JSON")


def read_answer(text: str | bytes, server: str) -> Answer:
    """The answer to a reset or a step; an error message is raised as what it means."""
    data = _read_data(text, server, "observation")
    observation, done, reward = data.get("observation"), data.get("done", False), data.get("reward")
    if not isinstance(observation, dict) or not isinstance(done, bool):
        raise SessionLostError(f"{server} sent an answer that holds no observation: {_shortened(text)}")
    if reward is not None and not isinstance(reward, (bool, int, float)):
        raise SessionLostError(f"{server} sent a reward that is no number: {_shortened(text)}")
    # It stands inside of the observation as well as beside it, wherever it is not empty.
    metadata = data.get("metadata") or observation.get("metadata")
    return Answer(
        observation,
        None if reward is None else float(reward),
        done,
        metadata if isinstance(metadata, dict) else {},
    )


def read_state(text: str | bytes, server: str) -> dict[str, Any]:
    """What the server tells of the environment's state."""
    return _read_data(text, server, "state")


def _read_data(text: str | bytes, server: str, kind: str) -> dict[str, Any]:
    """The data of a message that has to be of this kind."""
    try:
        message = json.loads(text)
    except ValueError:
        raise SessionLostError(f"{server} sent what is no JSON: {_shortened(text)}") from None
    found = message.get("type") if isinstance(message, dict) else None
    data = message.get("data") if isinstance(message, dict) else None
    if not isinstance(data, dict) or found not in (kind, "error"):
        raise SessionLostError(f"{server} sent no {kind}, but {_shortened(text)}")
    if found == "error":
        raise _error_of(data, server)
    return data


def _error_of(data: Mapping[str, Any], server: str) -> RemoteError:
    code, said = str(data.get("code", "")), str(data.get("message", "no message"))
    sentence = f"{server} answered {code or 'an error'}: {said[:500]}"
    if code == AT_CAPACITY:
        seats = data.get("max_sessions")
        return CapacityError(sentence, seats if isinstance(seats, int) else None)
    if code in REFUSALS:
        details = f" {json.dumps(data['errors'])[:500]}" if data.get("errors") else ""
        return CallRefusedError(sentence + details)
    return SessionLostError(sentence)


def _shortened(text: str | bytes) -> str:
    return repr(text if len(text) <= 200 else text[:200])
