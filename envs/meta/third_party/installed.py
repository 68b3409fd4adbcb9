"""Whether a family can be played with what is installed, as a sentence instead of a worker's traceback."""

from __future__ import annotations

import os
from importlib.metadata import version
from importlib.util import find_spec

from envs.base import EnvConfig, Shelf, TaskFamily
from envs.meta.locomotion.mujoco_shard import mujoco_module
from utils.options import OptionError

# The MuJoCo version that brought mujoco.batch.
FIRST_WITH_BATCH = (3, 17)


def missing(family: type[TaskFamily], config: EnvConfig | None = None) -> str | None:
    """What has to be installed or set for a family, as a sentence; None where nothing is missing.

    `config` are its options, its default ones where it is None.
    """
    name = family.__name__
    if family.package is not None and find_spec(family.package) is None:
        return (
            f"{name} needs the package {family.package}, which is not installed: "
            f"pip install -r requirements-{family.package}.txt, in an environment of its own."
        )
    if family.shelf is Shelf.locomotion:
        # Compared by numbers: as text, "3.9" would come after "3.17".
        installed = version("mujoco")
        if tuple(int(part) for part in installed.split(".")[:2]) < FIRST_WITH_BATCH:
            first = ".".join(map(str, FIRST_WITH_BATCH))
            return (
                f"{name} needs mujoco.batch, which MuJoCo has since {first}, "
                f"and installed is mujoco {installed}."
            )
        return _unusable_opengl()
    return family.lacks(family.Config() if config is None else config)


def _unusable_opengl() -> str | None:
    """What is wrong with the OpenGL that the user chose, as a sentence; None where MuJoCo can load it."""
    # Without a choice MuJoCo can be imported, and that is left to the workers, since it takes its time.
    if os.environ.get("MUJOCO_GL"):
        try:
            mujoco_module()
        except OptionError as error:
            return str(error)
    return None
