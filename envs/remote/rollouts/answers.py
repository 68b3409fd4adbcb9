"""Answers: what a client of any kind returns from `reset` and `step`, read into one form.

reset   an object or a dict with `observation` (OpenEnv's StepResult), Gymnasium's (observation, info), or
        the observation itself
step    an object or a dict with observation, reward and done, or a tuple of five (Gymnasium) or of four
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from envs.remote.protocol import RemoteError

# Somebody else's object, of which we know how it is called and what its answers look like.
Client = Any

_CUT = ("truncated", "TimeLimit.truncated")
_MISSING = object()


@dataclass(frozen=True)
class Observed:
    """What came of a reset or of a step."""

    observation: Any
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """Whether the episode is over."""
        return self.terminated or self.truncated


def read_reset(answer: Any) -> Observed:
    """The first observation of an episode, which may be over already."""
    if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], Mapping):
        return Observed(answer[0], metadata=dict(answer[1]))
    if _get(answer, "observation") is _MISSING:
        return Observed(answer)
    return _of_fields(answer)


def read_step(answer: Any) -> Observed:
    """The consequence of an action."""
    if isinstance(answer, tuple) and len(answer) == 5:
        observation, reward, terminated, truncated, info = answer
        return Observed(observation, _number(reward), bool(terminated), bool(truncated), dict(info))
    if isinstance(answer, tuple) and len(answer) == 4:
        observation, reward, done, info = answer
        cut = bool(done) and _is_cut(info)
        return Observed(observation, _number(reward), bool(done) and not cut, cut, dict(info))
    ends = (_get(answer, name) for name in ("done", "terminated", "truncated"))
    if _get(answer, "observation") is _MISSING or all(end is _MISSING for end in ends):
        raise RemoteError(
            f"step returned a {type(answer).__name__}: an object or a dict with observation, reward and done "
            "is needed, or Gymnasium's tuple."
        )
    return _of_fields(answer)


def reset_arguments(reset: Callable[..., Any], seed: int | None, others: Mapping[str, Any]) -> dict[str, Any]:
    """What `reset` is called with; what its signature does not take is refused, and never dropped."""
    wanted = dict(others) if seed is None else {"seed": seed, **others}
    try:
        parameters = inspect.signature(reset).parameters.values()
    except (TypeError, ValueError):  # a function of C has none
        return wanted
    named = {one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters)
    refused = sorted(wanted.keys() - named)
    if refused and not takes_all:
        takes = f"only {', '.join(sorted(named))}" if named else "no arguments"
        raise RemoteError(f"reset is given {', '.join(refused)}, and this client's takes {takes}.")
    return wanted


def _of_fields(answer: Any) -> Observed:
    """The fields of an object or a dict; OpenEnv itself knows `done`, and cuts are told in three places."""
    metadata = _first(answer, "metadata", "info", default={})
    metadata = dict(metadata) if isinstance(metadata, Mapping) else {}
    observation, terminated = _get(answer, "observation"), _get(answer, "terminated") is True
    cut = _is_cut(answer) or _is_cut(observation) or _is_cut(metadata)
    done = _first(answer, "done", default=terminated or cut)
    cut = cut and bool(done)
    return Observed(
        observation,
        _number(_first(answer, "reward", default=None)),
        terminated or (bool(done) and not cut),
        cut,
        metadata,
    )


def _get(value: Any, name: str) -> Any:
    """The field of an object or of a dict, or `_MISSING`."""
    return value.get(name, _MISSING) if isinstance(value, Mapping) else getattr(value, name, _MISSING)


def _first(value: Any, *names: str, default: Any) -> Any:
    found = (_get(value, name) for name in names)
    return next((one for one in found if one is not _MISSING), default)


def _is_cut(value: Any) -> bool:
    return any(_get(value, name) is True for name in _CUT)


def _number(reward: Any) -> float:
    """The reward as a plain float; none is 0, as OpenEnv answers where it has nothing to say."""
    number = 0.0 if reward is None else float(reward)
    if not math.isfinite(number):
        raise RemoteError(f"The reward of a step is {number}.")
    return number
