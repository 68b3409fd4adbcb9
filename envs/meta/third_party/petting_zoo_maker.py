"""PettingZoo environments, made from the options of the family PettingZoo."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from importlib.util import find_spec
from typing import Any

from envs.meta.third_party.registered_env import imported, named_argument
from utils.options import OptionError, near

Maker = Callable[..., Any]


class Api(Enum):
    """Which of PettingZoo's two interfaces an environment has; `auto`: parallel where there is one."""

    auto = "auto"
    parallel = "parallel"
    aec = "aec"


@dataclass(frozen=True)
class Named:
    """A function by its name: those of PettingZoo's modules are closures, which are no small parcel."""

    module: str
    name: str

    def __call__(self, **keywords: Any) -> Any:
        return getattr(importlib.import_module(self.module), self.name)(**keywords)


def lacking_package(env_id: str) -> str | None:
    """What has to be installed for this id, as a sentence; None where nothing is missing."""
    root = env_id.partition(":")[0].replace("/", ".").partition(".")[0]
    if find_spec(root) is not None or find_spec("pettingzoo") is not None:
        return None
    return (
        f"PettingZoo needs the package pettingzoo for id={env_id}, which is not installed: "
        "pip install -c requirements.txt .[pettingzoo]"
    )


def environment_maker(env_id: str, api: Api, arguments: Iterable[str]) -> Maker:
    """What makes the environment `id`: module:function, a registered id, or a module with an environment."""
    keywords = dict(named_argument(text) for text in arguments)
    module, colon, name = env_id.rpartition(":")
    if colon:
        if not callable(getattr(imported(module, f"id={env_id}"), name, None)):
            raise OptionError(f"id={env_id}: {module} has no {name!r} to call.")
        made: Maker = Named(module, name)
    else:
        made = _registered(env_id, api) or _of_module(env_id, api)
    return _drawing(partial(made, **keywords))


def _registered(env_id: str, api: Api) -> Maker | None:
    """What makes an environment of PettingZoo's registry; None where it does not know the id."""
    pettingzoo = importlib.import_module("pettingzoo") if find_spec("pettingzoo") else None
    for kind in _kinds(api):
        # The registry came with PettingZoo 1.27; the entry itself is sent, since workers may not have it.
        entry = getattr(pettingzoo, f"{kind}_registry", {}).get(env_id)
        if entry is not None:
            return partial(getattr(pettingzoo, "make"), kind, entry)  # noqa: B009 - older ones have none
    return None


def _of_module(env_id: str, api: Api) -> Maker:
    """What makes the environment of a module: its `parallel_env`, or its `env`."""
    dotted = env_id.replace("/", ".")
    try:
        module = importlib.import_module(dotted)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{dotted}.".startswith(f"{error.name}."):
            raise OptionError(f"id={env_id} cannot be imported: {error}.") from error
        raise OptionError(f"There is no environment id={env_id}.{_similar(env_id)}") from error
    names = {"parallel": "parallel_env", "aec": "env"}
    for kind in _kinds(api):
        if callable(getattr(module, names[kind], None)):
            return Named(dotted, names[kind])
    raise OptionError(f"id={env_id}: {dotted} has no {' and no '.join(names[kind] for kind in _kinds(api))}.")


def _kinds(api: Api) -> tuple[str, ...]:
    return ("parallel", "aec") if api is Api.auto else (api.value,)


def _similar(env_id: str) -> str:
    """A hint at the nearest id: of the registry, or of the modules of the package that was named."""
    pettingzoo = importlib.import_module("pettingzoo") if find_spec("pettingzoo") else None
    known = {*getattr(pettingzoo, "aec_registry", {}), *getattr(pettingzoo, "parallel_registry", {})}
    root = env_id.partition("/")[0]
    if "/" in env_id and find_spec(root) is not None:
        inside = getattr(importlib.import_module(root), "__path__", [])
        known |= {f"{root}/{found.name}" for found in pkgutil.iter_modules(inside) if "_v" in found.name}
    return near(env_id, known)


def _drawing(make: Maker) -> Maker:
    """The maker, told to draw pictures when it is asked for one, where it takes that argument."""
    if "render_mode" in getattr(make, "keywords", {}):
        return make
    try:
        make(render_mode="rgb_array").close()
    except (TypeError, ValueError, AssertionError):
        # It takes no such argument, or has no such picture; whatever else is wrong is found without it.
        return make
    return partial(make, render_mode="rgb_array")
