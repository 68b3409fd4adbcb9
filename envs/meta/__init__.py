"""Task families: distributions over tasks and the environments that play them. One file each, one contract (`envs/base.py`).

To add one: a file with a subclass of `TaskFamily` and its `Config`, and a line in the registry below. The tests over the registry are then
its tests, and `make_env`, `make_parallel_env` and `env=<Name>` know it.
"""

import gymnasium

from envs.base import TaskFamily
from envs.meta.ant_dir import AntDir
from envs.meta.gymnasium_family import GymnasiumFamily
from envs.meta.point_robot import PointRobot
from envs.meta.wind import Wind

FAMILIES: dict[str, type[TaskFamily]] = {"PointRobot": PointRobot, "Wind": Wind, "AntDir": AntDir, "Gymnasium": GymnasiumFamily}
"""The families by the name that users type."""

for _name, _family in FAMILIES.items():
    gymnasium.register(f"Retrial/{_name}-v{_family.version}", "envs.meta.make_env:make_env", kwargs={"env_id": _name, "episodes_per_task": None})
