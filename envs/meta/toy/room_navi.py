"""RoomNavi: three rooms in a row, and three goals that have to be found one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Obs, Reference, Shelf, Split, TaskFamily
from envs.meta.grid.floor_plan import ACTION_SPACE, FloorPlan, WalkShard, walk_to
from envs.meta.kernels import split_choices
from envs.meta.pictures import GOAL, HINT, Colour
from utils.options import option

PLAN = FloorPlan(
    (
        "...   ...   ...",
        "...............",
        "...   ...   ...",
    ),
    origin=(-7, -1),
)
CORNERS = ((-1, 1), (-1, -1), (1, 1), (1, -1))
# The distance of the middles of the side rooms from the middle, (0, 0).
ASIDE = 6
# The reward of a step on the first, second and third goal.
WORTH = (1.0, 10.0, 100.0)


@dataclass
class RoomNaviConfig(EnvConfig):
    """Options of RoomNavi; the defaults are HyperX's."""

    family: str = "RoomNavi"
    max_rollouts_per_task: int = option(1, "k: episodes of one task in a trial", low=1)
    max_episode_steps: int = option(50, "H: environment steps in an episode", low=1)


class RoomNavi(TaskFamily):
    """A walker has to find three goals in three rooms, one after the other.

    Task: the cells (x1, y1, x2, y2, x3, y3) of the goals, 48 tasks, shared by training and tests: the first
    in a corner of the middle room, the second in a corner of the left room if x1 < 0, else of the right one,
    the third in another corner of the middle room. Rooms are 3 x 3 with their middles at x = -6, 0 and 6, y =
    0; between them are corridors of three cells along y = 0. Observation: the cell (x, y), from (0, 0) in
    every episode. Action: stay, up, right, down, left; a move into a wall stays. Reward: that of the cell
    after the step: 1 on the first goal, 10 on the second after the first was found, 100 on the third after
    the second was found, in every step that is spent there, so that the best end is to stay at the third;
    else -0.1. H=50, k=1. The episode never ends by itself. Info: the number of goals found in the episode so
    far, success (all three were found).

    Published as RoomNavi-v0 of HyperX.
    """

    Config = RoomNaviConfig
    shelf = Shelf.toy
    config: RoomNaviConfig
    references = (Reference(oracle=3376.2, random=0.1),)

    def __init__(self, config: RoomNaviConfig) -> None:
        super().__init__(config)
        self.spec = EnvSpec(
            name="RoomNavi",
            obs_space=PLAN.obs_space,
            action_space=ACTION_SPACE,
            task_dim=6,
            info_names=("found", "success"),
            split=Split.shared,
            reference=self.measured_reference(),
            success="success",
        )

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        tasks = all_tasks()
        return tasks[split_choices(rng, n, tuple(range(len(tasks))), split).astype(np.int64)]

    def make_shard(self, num_slots: int, threads: int = 1) -> RoomNaviShard:
        return RoomNaviShard(num_slots, PLAN, (0, 0))

    def oracle_action(
        self, obs: Obs, task: NDArray[np.float64], info: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        assert isinstance(obs, np.ndarray)
        # The goal to go to now; after the third, stay there.
        cell, found = obs.astype(np.float64), np.minimum(info[:, 0], 2.0).astype(np.int64)
        goal = task.reshape(-1, 3, 2)[np.arange(len(task)), found]
        # On the way to another room: to the line of the corridors first, then along it.
        elsewhere = np.abs(cell[:, 0] - goal[:, 0]) > 2
        door = np.stack([np.where(cell[:, 1] == 0, goal[:, 0], cell[:, 0]), np.zeros(len(goal))], axis=1)
        return walk_to(cell, np.where(elsewhere[:, None], door, goal))


class RoomNaviShard(WalkShard):
    """Slots of RoomNavi."""

    def __init__(self, num_slots: int, plan: FloorPlan, start: tuple[int, int]) -> None:
        super().__init__(num_slots, plan, start)
        self._goals = np.zeros((num_slots, 3), np.int64)
        self._found = np.zeros(num_slots, np.int64)

    def set_tasks(self, slots: NDArray[np.int64], tasks: NDArray[np.float64]) -> None:
        for goal in range(3):
            self._goals[slots, goal] = self._plan.number(tasks[:, 2 * goal : 2 * goal + 2])
        self._found[slots] = 0
        self.rows.info[slots] = 0.0

    def score(self, at: NDArray[np.int64] | slice, cell: NDArray[np.int64]) -> NDArray[np.float64]:
        found = self._found[at].copy()
        reward = np.full(len(cell), -0.1)
        # The three goals are different cells, so at most one of them pays in a step.
        for goal in range(3):
            pays = (cell == self._goals[at, goal]) & (found >= goal)
            reward[pays] = WORTH[goal]
            found[pays & (found == goal)] += 1
        self._found[at] = found
        self.rows.info[at, 0] = found
        self.rows.info[at, 1] = found == 3
        return reward

    def marks(self, slot: int) -> list[tuple[int, Colour]]:
        """Goals in green, and those that were found in the colour of hints."""
        colours = [HINT] * int(self._found[slot]) + [GOAL] * 3
        return [(int(cell), colour) for cell, colour in zip(self._goals[slot], colours, strict=False)]


def all_tasks() -> NDArray[np.float64]:
    """[48, 6] every task."""
    tasks = []
    for first in CORNERS:
        # The second goal is in the side room on the side of the first.
        side_x = ASIDE if first[0] > 0 else -ASIDE
        for second in CORNERS:
            tasks += [(*first, second[0] + side_x, second[1], *third) for third in CORNERS if third != first]
    return np.array(tasks, np.float64)
