"""Whether a family can be played with what is installed, told in a sentence before a worker fails at it with
a page.
"""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec

from envs.base import Shelf, TaskFamily

FIRST_WITH_BATCH = (3, 17)
"""The MuJoCo version that brought mujoco.batch."""


def missing(family: type[TaskFamily]) -> str | None:
    """What has to be installed for a family, as a sentence; None where nothing is missing."""
    name = family.__name__
    if family.package is not None and find_spec(family.package) is None:
        return (
            f"{name} needs the package {family.package}, which is not installed: "
            f"pip install -r requirements-{family.package}.txt, in an environment of its own."
        )
    if family.shelf is Shelf.locomotion:
        found = version("mujoco")
        if tuple(int(part) for part in found.split(".")[:2]) < FIRST_WITH_BATCH:
            return f"{name} needs mujoco.batch, which MuJoCo has since {'.'.join(map(str, FIRST_WITH_BATCH))}, and installed is mujoco {found}."
    return None
