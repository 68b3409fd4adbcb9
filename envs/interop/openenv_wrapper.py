"""OpenEnvGymnasiumWrapper: a client of a service as one Gymnasium environment, for SB3, RLlib and others."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.remote.observations import FieldReader
from envs.remote.pages import get_json
from envs.remote.rollouts import HttpEnvClient
from envs.remote.rollouts.answers import Client, Observed, read_reset, read_step, reset_arguments
from envs.remote.rollouts.calls import blocking_face
from utils.options import OptionError, nearest

OBSERVATION_MODES = ("text", "dict", "array")
ACTION_MODES = ("text", "discrete")
# The one field of an observation that is a text, or is shown as one.
TEXT = "text"
# An observation has it beside its own fields.
_NO_FIELD = "metadata"
# The longest text of an action.
TEXT_ACTION = 1000


class OpenEnvGymnasiumWrapper(gymnasium.Env[Any, Any]):
    """One environment of a service.

    `client` is a client with `reset` and `step`, which is closed with this environment, or a dict with
    `env_url` and the other arguments, as RLlib hands it on.

    Observations are vectors of float32, whose sizes the first reset tells: "array" has all numbers of the
    observation, one field after the other; "text" the bytes of its texts over 255 (of the whole as JSON where
    it has none), with zeros behind their end; "dict" a vector for each field. `fields` names those that are
    read: a list that changes its length must be left out.

    Actions: "discrete" chooses one of `discrete_actions`, which are dicts, or texts; by default they are the
    values of the one field that the server's schema bounds. "text" sends a text in the one field that is one.
    A reset without a seed draws one from the environment's own generator; `options` are arguments of the
    service's reset.
    """

    def __init__(
        self,
        client: Client,
        observation_mode: str = "text",
        max_episode_steps: int = 1000,
        action_mode: str = "text",
        discrete_actions: Sequence[Any] | None = None,
        *,
        fields: Sequence[str] | None = None,
        text_length: int = 256,
    ) -> None:
        if isinstance(client, Mapping):
            OpenEnvGymnasiumWrapper.__init__(self, **_arguments_of(client))
            return
        for name, value, known in (
            ("observation_mode", observation_mode, OBSERVATION_MODES),
            ("action_mode", action_mode, ACTION_MODES),
        ):
            if value not in known:
                raise OptionError(f"{name}={value!r} is none.{nearest(value, known)}")
        self.client = blocking_face(client)
        if inspect.iscoroutinefunction(self.client.reset):
            raise OptionError(
                "This client has coroutines alone: give one that blocks, as client.sync() does."
            )
        self._mode, self._max_steps, self._steps = observation_mode, max_episode_steps, 0
        self._actions = _Actions(client, action_mode, discrete_actions)
        self.action_space = self._actions.space
        first = _fields_of(self._reset(None, {}).observation)
        self._readers = _readers(first, observation_mode, fields, text_length)
        boxes: dict[str, spaces.Space[Any]] = {name: _box(reader) for name, reader in self._readers.items()}
        self.observation_space = spaces.Dict(boxes) if observation_mode == "dict" else boxes[TEXT]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        drawn = int(self.np_random.integers(2**31)) if seed is None else seed
        seen = self._reset(drawn, options or {})
        return self._read(seen.observation), seen.metadata

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        seen = read_step(self.client.step(self._actions.fields(action)))
        self._steps += 1
        cut = seen.truncated or (self._steps >= self._max_steps and not seen.terminated)
        return self._read(seen.observation), seen.reward, seen.terminated, cut, seen.metadata

    def close(self) -> None:
        """Close the client."""
        close = getattr(self.client, "close", None)
        if callable(close):
            close()

    def _reset(self, seed: int | None, options: Mapping[str, Any]) -> Observed:
        reset = self.client.reset
        takes_seed = {"seed", "kwargs"} & set(inspect.signature(reset).parameters)
        arguments = reset_arguments(reset, seed if takes_seed else None, options)
        return read_reset(reset(**arguments))

    def _read(self, observation: Any) -> Any:
        fields = _fields_of(observation)
        if self._mode == "text":
            fields = {TEXT: _text_of(fields)}
        parts = {name: reader.read(fields) for name, reader in self._readers.items()}
        return parts if self._mode == "dict" else parts[TEXT]


class _Actions:
    """How an action of Gymnasium becomes one of the service."""

    def __init__(self, client: Client, mode: str, discrete: Sequence[Any] | None) -> None:
        self._field: str | None = None
        self._choices: list[Any] | None = None
        if mode == "text":
            self._field = _text_field(client)
            self.space: spaces.Space[Any] = spaces.Text(TEXT_ACTION)
            return
        self._choices = _bounded_choices(client) if discrete is None else list(discrete)
        if not self._choices:
            raise OptionError("discrete_actions has to have one action at least.")
        if not all(isinstance(choice, Mapping) for choice in self._choices):
            self._field = _text_field(client)
        self.space = spaces.Discrete(len(self._choices))

    def fields(self, action: Any) -> Any:
        """The dict that is sent."""
        chosen = action if self._choices is None else self._choices[int(action)]
        return chosen if self._field is None or isinstance(chosen, Mapping) else {self._field: chosen}


def _arguments_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments in a dict; `env_url` becomes a client."""
    arguments = dict(config)
    if "env_url" not in arguments:
        raise OptionError("env_url is missing: the address of the server, as in http://127.0.0.1:8000.")
    return {"client": HttpEnvClient(arguments.pop("env_url")), **arguments}


def _fields_of(observation: Any) -> dict[str, Any]:
    """An observation as a dict of its fields; typed clients have objects of pydantic, some a text alone."""
    dump = getattr(observation, "model_dump", None)
    fields = dump() if callable(dump) else observation
    return dict(fields) if isinstance(fields, Mapping) else {TEXT: fields}


def _readers(
    first: dict[str, Any], mode: str, names: Sequence[str] | None, text_length: int
) -> dict[str, FieldReader]:
    """What reads the parts of an observation; the parts are one but in mode "dict"."""
    for name in names or ():
        if name not in first:
            raise OptionError(f"fields: the observation has no field {name!r}.{nearest(name, first)}")
    if mode == "text":
        return {TEXT: FieldReader((), ((TEXT, text_length),))}
    chosen = names or [name for name in first if name != _NO_FIELD]
    sizes = {name: size for name in chosen if (size := _numbers_in(first[name]))}
    texts = [name for name in chosen if isinstance(first[name], str)]
    if mode == "array":
        if not sizes:
            raise OptionError(f"The observation has no numbers in {sorted(first)}: observation_mode='text'.")
        return {TEXT: FieldReader(tuple(sizes.items()))}
    parts = {name: FieldReader(((name, size),)) for name, size in sizes.items()}
    return parts | {name: FieldReader((), ((name, text_length),)) for name in texts}


def _numbers_in(value: Any) -> int:
    """How many numbers a field has; 0 for one that is none."""
    try:
        array: NDArray[Any] = np.asarray(value)
    except ValueError:  # lists of different lengths
        return 0
    return array.size if array.dtype.kind in "fiub" else 0


def _text_of(fields: Mapping[str, Any]) -> str:
    texts = [value for value in fields.values() if isinstance(value, str)]
    return "\n".join(texts) if texts else json.dumps(fields, default=str)


def _box(reader: FieldReader) -> spaces.Box:
    low, high = (0.0, 1.0) if reader.texts else (-np.inf, np.inf)
    return spaces.Box(low, high, (reader.size,), np.float32)


def _action_schema(client: Client) -> dict[str, Any]:
    """The fields of an action as the server's page describes them."""
    url = getattr(client, "base_url", None)
    schema = get_json(url, "schema", {}) if url else None
    return dict(schema["action"].get("properties", {})) if schema else {}


def _text_field(client: Client) -> str:
    fields = [name for name, about in _action_schema(client).items() if about.get("type") == "string"]
    if len(fields) != 1:
        raise OptionError(
            f"An action has the texts {fields}, and not one: give discrete_actions=[{{...}}, ...] as dicts, "
            "with action_mode='discrete'."
        )
    return fields[0]


def _bounded_choices(client: Client) -> list[dict[str, Any]]:
    """The values of the one field of an action that has bounds, or whose values are listed."""
    found = {name: values for name, about in _action_schema(client).items() if (values := _values_of(about))}
    if not found:
        raise OptionError(
            "An action has no bounded field to choose a value of: discrete_actions=[...] lists the texts to "
            "choose from, as in discrete_actions=['north', 'south'], or whole actions as dicts, as in "
            "discrete_actions=[{'column': 0}, {'column': 1}]."
        )
    if len(found) > 1:
        raise OptionError(
            f"An action has the bounded fields {sorted(found)}, and not one: say what may be chosen, as in "
            "discrete_actions=[{'column': 0}, {'column': 1}]."
        )
    ((name, values),) = found.items()
    return [{name: value} for value in values]


def _values_of(about: Mapping[str, Any]) -> list[Any]:
    if "enum" in about:
        return list(about["enum"])
    if about.get("type") != "integer":
        return []
    low = about.get("minimum", about.get("exclusiveMinimum", np.nan) + 1)
    high = about.get("maximum", about.get("exclusiveMaximum", np.nan) - 1)
    return list(range(int(low), int(high) + 1)) if np.isfinite([low, high]).all() else []
