"""make_env and make_parallel_env: any family as a Gymnasium environment, or as many slots side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from gymnasium.utils import seeding

from envs.backends.base import BackendConfig
from envs.base import EnvConfig, TaskFamily
from envs.interop.varibad_wrapper import Boundary, VariBadWrapper
from envs.meta import FAMILIES
from envs.meta.third_party.installed import missing
from envs.parallel_env_manager import ParallelEnvManager
from utils.options import OptionError, from_keywords, nearest

_OWN_ARGUMENTS = {"family": "env_id", "max_rollouts_per_task": "episodes_per_task", "oracle": "oracle"}
"""Options that are arguments of their own here, by what they are called in a config."""

_BACKEND_OPTIONS = {item.name for item in fields(BackendConfig)}


def make_family(env: str | EnvConfig, **options: Any) -> TaskFamily:
    """The family of this name with these options (by their config names), or the family of a config."""
    if isinstance(env, EnvConfig):
        if options:
            raise OptionError(
                f"make_family takes a config or options, not both: {', '.join(sorted(options))}."
            )
        return _registered(env.family)(env)
    kind = _registered(env)
    return kind(from_keywords(kind.Config, env, options))


def make_env(
    env_id: str,
    episodes_per_task: int | None,
    seed: int | None = None,
    oracle: bool = False,
    *,
    horizon: int | None = None,
    boundary: Boundary | str = Boundary.reset_obs,
    render_mode: str | None = None,
    **kwargs: Any,
) -> VariBadWrapper:
    """One environment whose Gymnasium episode is a trial: `episodes_per_task` episodes of one task (None: as
    many as the family's default).

    `seed` seeds the first reset, as `reset(seed=)` would. `oracle` shows the task in the observation.
    `boundary` is what the agent sees between two episodes (`reset_obs` or `legacy`, see `Boundary`). kwargs
    are the family's options under their config names. `horizon` is the option max_episode_steps (H), a name
    that `gymnasium.make` keeps to itself: there it cuts the whole trial.
    """
    if horizon is not None:
        if "max_episode_steps" in kwargs:
            raise OptionError("make_env: horizon and max_episode_steps are the same; give one of them.")
        kwargs["max_episode_steps"] = horizon
    family = _family_of(
        env_id, episodes_per_task, oracle, kwargs, also=("horizon", "boundary", "render_mode")
    )
    if str(getattr(boundary, "value", boundary)) not in Boundary.__members__:
        raise OptionError(
            f"make_env: boundary={boundary!r} is not one of its values.{nearest(str(boundary), Boundary.__members__)}"
        )
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
    **kwargs: Any,
) -> ParallelEnvManager:
    """`num_envs` slots (default: one per worker) in `num_workers` worker processes; with one, and no other
    backend named, in this process.

    kwargs are the family's options under their config names, and those of the backend (`BackendConfig`:
    start_method, threads, ...).
    """
    if num_workers < 1:
        raise OptionError(f"make_parallel_env: num_workers={num_workers} must be at least 1.")
    settings = {name: value for name, value in kwargs.items() if name in _BACKEND_OPTIONS}
    options = {name: value for name, value in kwargs.items() if name not in _BACKEND_OPTIONS}
    family = _family_of(env_id, episodes_per_task, oracle, options, also=("num_envs", *_BACKEND_OPTIONS))
    return ParallelEnvManager(
        family,
        num_workers if num_envs is None else num_envs,
        episodes_per_trial=family.config.max_rollouts_per_task,
        num_workers=num_workers,
        seed=seed,
        oracle=oracle,
        backend=from_keywords(BackendConfig, "make_parallel_env", settings),
    )


def _registered(name: str) -> type[TaskFamily]:
    if name not in FAMILIES:
        raise OptionError(f"There is no environment {name!r}.{nearest(str(name), FAMILIES)}")
    lacking = missing(FAMILIES[name])
    if lacking is not None:
        raise OptionError(lacking)
    return FAMILIES[name]


def _family_of(
    env_id: str, episodes_per_task: int | None, oracle: bool, options: Mapping[str, Any], also: Iterable[str]
) -> TaskFamily:
    """The family with these options; a wrong one is refused with the nearest of all that the caller takes."""
    kind = _registered(env_id)
    for name, argument in _OWN_ARGUMENTS.items():
        if name in options:
            raise OptionError(f"{env_id}: {name!r} is given by the argument {argument!r}.")
    known = {item.name for item in fields(kind.Config)} - set(_OWN_ARGUMENTS)
    for name in options:
        if name not in known:
            raise OptionError(f"{env_id} has no option {name!r}.{nearest(name, {*known, *also})}")
    given = {} if episodes_per_task is None else {"max_rollouts_per_task": episodes_per_task}
    return kind(from_keywords(kind.Config, env_id, {**options, **given, "oracle": oracle}))
