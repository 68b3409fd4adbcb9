"""Registered Gymnasium environments, made from the options of the family Gymnasium."""

from __future__ import annotations

import difflib
import importlib
import inspect
import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium.envs import registration

from utils.options import OptionError

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RegisteredEnv:
    """A factory of a registered environment with its wrappers.

    It carries the registration itself, because a worker process may not have registered the environment.
    """

    registration: registration.EnvSpec
    max_episode_steps: int | None
    arguments: dict[str, Any]
    wrappers: tuple[Callable[[Any], Any], ...]

    def __call__(self) -> gymnasium.Env[Any, Any]:
        # Gymnasium's own checker checks the first step only, and GymnasiumShard checks every step.
        env: Any = gymnasium.make(
            self.registration,
            max_episode_steps=self.max_episode_steps,
            disable_env_checker=True,
            **self.arguments,
        )
        for wrapper in self.wrappers:
            env = wrapper(env)
        return env


def registered_env(
    env_id: str, max_episode_steps: int, arguments: Iterable[str], wrappers: Iterable[str]
) -> RegisteredEnv:
    """The factory of the environment `id` or `module:id`; each wrong word is refused in one sentence."""
    # module:id imports the module first, because many packages register their environments when imported.
    module, _, name = env_id.rpartition(":")
    if module:
        imported(module, f"id={env_id}")
    try:
        found = gymnasium.spec(name)
    except gymnasium.error.Error as error:
        raise OptionError(
            f"Gymnasium knows no environment {name!r}.{_similar_id(name)} "
            "Another package's is written module:id, which imports the module that registers it."
        ) from error
    keywords = dict(named_argument(text) for text in arguments)
    # To be able to draw costs something only when a picture is asked for.
    if "render_mode" not in keywords and _can_draw(found):
        keywords["render_mode"] = "rgb_array"
    registered = found.max_episode_steps
    if registered and max_episode_steps and registered != max_episode_steps:
        _log.info("%s: episodes of %d steps, registered are %d.", env_id, max_episode_steps, registered)
    return RegisteredEnv(
        found, max_episode_steps or None, keywords, tuple(_wrapper(text) for text in wrappers)
    )


def _similar_id(name: str) -> str:
    """A hint at the registered id that is closest to this name; nothing where none is close."""
    known = {registered.lower(): registered for registered in sorted(registration.registry)}
    close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.6)
    return f" Did you mean {known[close[0]]!r}?" if close else ""


def imported(module: str, asked_by: str) -> Any:
    """The module that an option asks for."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise OptionError(
            f"{asked_by} needs the package {module}, which cannot be imported ({error})."
        ) from error


def _wrapper(text: str) -> Callable[[Any], Any]:
    """The wrapper that module:name stands for."""
    module, colon, name = text.rpartition(":")
    if not module or not colon or not name.isidentifier():
        raise OptionError(f"wrappers: {text!r} should be module:name.")
    wrapper = getattr(imported(module, f"wrappers: {text}"), name, None)
    if not callable(wrapper):
        raise OptionError(f"wrappers: {module} has no {name!r} to call.")
    return wrapper


def named_argument(text: str) -> tuple[str, Any]:
    """The name and the value of name=value, where the value is JSON or else a word."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise OptionError(f"arguments: {text!r} should be name=value.")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _can_draw(found: registration.EnvSpec) -> bool:
    """Whether an environment draws pictures and its constructor takes a `render_mode`.

    Both are checked: an environment may inherit that it draws, while its constructor takes nothing. The
    answer is False where the class cannot be imported; that error is reported when the environment is built.
    """
    try:
        # An entry point is a callable, or the name of one as module:attribute.
        creator: Any = found.entry_point
        if not callable(creator):
            creator = registration.load_env_creator(creator or "")
        parameters = inspect.signature(creator).parameters
        # A constructor with **kwargs takes a render_mode too.
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        modes = getattr(creator, "metadata", {}).get("render_modes") or ()
        return ("render_mode" in parameters or takes_any) and "rgb_array" in modes
    except Exception:  # noqa: BLE001 - importing it runs third-party code
        return False
