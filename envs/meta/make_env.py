"""make_env, make_parallel_env and make_family: any family as a Gymnasium environment, or as many slots."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from gymnasium.utils import seeding

from envs.backends.base import BackendConfig
from envs.base import EnvConfig, EnvSpec, TaskFamily
from envs.interop.varibad_wrapper import Boundary, VariBadWrapper
from envs.meta import FAMILIES
from envs.meta.third_party.installed import missing
from envs.parallel_env_manager import ParallelEnvManager
from utils.options import OptionError, from_keywords, nearest

# Options that the functions below take as arguments: name in a config -> name of the argument.
_NAMED_ARGUMENTS = {"family": "env_id", "max_rollouts_per_task": "episodes_per_task", "oracle": "oracle"}

_BACKEND_OPTIONS = {item.name for item in fields(BackendConfig)}


def make_family(env: str | EnvConfig, **options: Any) -> TaskFamily:
    """The family of this name with these options, by their names in a config; or the family of a config."""
    if isinstance(env, EnvConfig):
        if options:
            raise OptionError(
                f"make_family takes a config or options, not both: {', '.join(sorted(options))}."
            )
        return _playable(_registered(env.family), env)
    kind = _registered(env)
    return _playable(kind, from_keywords(kind.Config, env, options))


def recorded_spec(options: Mapping[str, Any]) -> EnvSpec:
    """What the family of a record reports, which says what an agent sees and does.

    A service need not be there for that: what was served for a run is not served for its agent.
    """
    options = dict(options)
    kind = _registered(options.pop("family"))
    config = from_keywords(kind.Config, kind.__name__, options)
    return (kind(config) if kind.is_declared else _playable(kind, config)).spec


def make_env(
    env_id: str,
    episodes_per_task: int | None = None,
    seed: int | None = None,
    oracle: bool = False,
    *,
    horizon: int | None = None,
    boundary: Boundary | str = Boundary.reset_obs,
    render_mode: str | None = None,
    **kwargs: Any,
) -> VariBadWrapper:
    """One environment whose Gymnasium episode is a trial: `episodes_per_task` episodes of one task.

    With `episodes_per_task=None` a trial has as many episodes as the family's default says. `seed` seeds the
    first reset, as `reset(seed=)` does. `oracle` shows the task in the observation. `boundary` is what the
    agent sees between two episodes, see `Boundary`. kwargs are the family's options, by their names in a
    config. `horizon` is another name of the option max_episode_steps (H), because `gymnasium.make` takes
    max_episode_steps itself and cuts the whole trial there.
    """
    # Options first, then the arguments that only a single environment has, then the environment.
    options = with_horizon(kwargs, horizon)
    family = _family_of(
        env_id, episodes_per_task, oracle, options, also=("horizon", "boundary", "render_mode")
    )
    if str(getattr(boundary, "value", boundary)) not in Boundary.__members__:
        hint = nearest(str(boundary), Boundary.__members__)
        raise OptionError(f"make_env: boundary={boundary!r} is not one of its values.{hint}")
    if render_mode not in (None, "rgb_array"):
        raise OptionError(f"make_env: render_mode={render_mode!r} must be None or 'rgb_array'.")
    manager = ParallelEnvManager(
        family,
        1,
        episodes_per_trial=family.config.max_rollouts_per_task,
        seed=seed,
        oracle=oracle,
        backend=BackendConfig(name="serial", threads=1),
    )
    env = VariBadWrapper(
        manager,
        boundary=boundary if isinstance(boundary, Boundary) else Boundary[boundary],
        render_mode=render_mode,
    )
    # The first reset is then the one that `reset(seed=seed)` would have given.
    if seed is not None:
        env.np_random = seeding.np_random(seed)[0]
    return env


def make_parallel_env(
    env_id: str,
    episodes_per_task: int | None,
    num_workers: int,
    seed: int | None = None,
    oracle: bool = False,
    *,
    num_envs: int | None = None,
    horizon: int | None = None,
    **kwargs: Any,
) -> ParallelEnvManager:
    """A manager of `num_envs` slots (default: one per worker) in `num_workers` worker processes.

    With one worker the slots are stepped in this process, unless `name=` names another backend. kwargs are
    the options of the family, by their names in a config, and those of the backend (see `BackendConfig`).
    `horizon` is another name of the option max_episode_steps (H), as in `make_env`.
    """
    if num_workers < 1:
        raise OptionError(f"make_parallel_env: num_workers={num_workers} must be at least 1.")
    # No option of a family has the name of an option of the backend, so kwargs can be split by name.
    settings = {name: value for name, value in kwargs.items() if name in _BACKEND_OPTIONS}
    options = {name: value for name, value in kwargs.items() if name not in _BACKEND_OPTIONS}
    options = with_horizon(options, horizon)
    also = ("num_envs", "horizon", *_BACKEND_OPTIONS)
    family = _family_of(env_id, episodes_per_task, oracle, options, also=also)
    return ParallelEnvManager(
        family,
        num_workers if num_envs is None else num_envs,
        episodes_per_trial=family.config.max_rollouts_per_task,
        num_workers=num_workers,
        seed=seed,
        oracle=oracle,
        backend=from_keywords(BackendConfig, "make_parallel_env", settings),
    )


def with_horizon(options: Mapping[str, Any], horizon: int | None) -> dict[str, Any]:
    """The options, where `horizon` is another name of max_episode_steps."""
    if horizon is None:
        return dict(options)
    if "max_episode_steps" in options:
        raise OptionError("horizon and max_episode_steps are the same; give one of them.")
    return {**options, "max_episode_steps": horizon}


def _registered(name: str) -> type[TaskFamily]:
    """The family that is registered under this name."""
    if name not in FAMILIES:
        raise OptionError(f"There is no environment {name!r}.{_hint(str(name))}")
    return FAMILIES[name]


def _playable(kind: type[TaskFamily], config: EnvConfig) -> TaskFamily:
    """The family with these options, if it can be played with what is on this machine."""
    lacking = missing(kind, config)
    if lacking is not None:
        raise OptionError(lacking)
    return kind(config)


def _hint(name: str) -> str:
    """What to write instead of an unknown name: published repositories put a version behind theirs."""
    plain = re.sub(r"^Retrial/|-v\d+$", "", name)
    if plain != name and plain in FAMILIES:
        return (
            f" The names of families have no version and no prefix here: write {plain!r}, "
            f'for example make_env("{plain}", episodes_per_task=2).'
        )
    return nearest(plain, FAMILIES)


def _family_of(
    env_id: str, episodes_per_task: int | None, oracle: bool, options: Mapping[str, Any], also: Iterable[str]
) -> TaskFamily:
    """The family with these options; `also` are the names that the caller takes besides, for the hint."""
    kind = _registered(env_id)
    # An option that is an argument of the caller as well must not be given twice.
    for name, argument in _NAMED_ARGUMENTS.items():
        if name in options:
            raise OptionError(f"{env_id}: {name!r} is given by the argument {argument!r}.")
    # Unknown names are refused here, since only here all names that would have been legal are known.
    known = {item.name for item in fields(kind.Config)} - set(_NAMED_ARGUMENTS)
    for name in options:
        if name not in known:
            raise OptionError(f"{env_id} has no option {name!r}.{nearest(name, {*known, *also})}")
    given = {} if episodes_per_task is None else {"max_rollouts_per_task": episodes_per_task}
    return _playable(kind, from_keywords(kind.Config, env_id, {**options, **given, "oracle": oracle}))
