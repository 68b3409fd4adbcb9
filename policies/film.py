"""Films of a trained agent: whole trials of its test list, picture by picture, in which one sees what a curve only counts."""

from __future__ import annotations

import logging
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from envs.backends.base import BackendConfig
from envs.base import Rows
from envs.meta.gallery import drawable
from envs.parallel_env_manager import ParallelEnvManager
from policies.evaluation import held_out_name
from policies.rollout import AgentActor, Plan, WaveInterrupted, run_wave
from utils.seeding import Phase

if TYPE_CHECKING:
    from PIL.Image import Image

    from policies.learner import Learner

MOST_PICTURES = 200
"""Of a film; of longer trials every second row is drawn, or every third, ..."""
SECONDS = 8.0
"""How long a film lasts, unless its pictures would change faster than 25 times a second, or slower than 5 times."""
SMALLEST = 240
"""Pixels: smaller pictures are enlarged."""

_log = logging.getLogger(__name__)


def film(learner: Learner) -> list[Path]:
    """`film_1.gif`, `film_2.gif`, ... in the run folder: the first `evaluation.films` trials of the test list, all of their episodes.

    The agent acts as in evaluation, without noise. Where no picture can be drawn, a warning says why.
    """
    config, folder = learner.config, learner.run_dir
    if not config.evaluation.films or folder is None:
        return []
    tasks = learner.tasks.evaluation[held_out_name(learner.family.spec)]
    with ParallelEnvManager(
        type(learner.family)(drawable(deepcopy(config.env))),
        1,
        episodes_per_trial=config.evaluation.episodes_per_trial or config.env.max_rollouts_per_task,
        seed=config.seed,
        oracle=config.env.oracle,
        new_episode_flag=config.env.max_rollouts_per_task > 1,
        backend=BackendConfig(name="serial", threads=1),
    ) as manager:
        camera = _Camera(manager)
        actor = AgentActor(learner.agent, device=learner.device, deterministic=True)
        plan = Plan(config.seed, Phase.EVALUATE, 0, tasks[: config.evaluation.films])
        try:
            run_wave(manager, actor, plan, sink=camera, tick=lambda _: learner.tick())
        except WaveInterrupted:
            return []
        except RuntimeError as error:  # no OpenGL, or a family that draws nothing
            _log.warning("There is no film: %s", error)
            return []
    for old in folder.glob("film_*.gif"):
        old.unlink()
    paths = [folder / f"film_{number}.gif" for number in range(1, len(camera.films) + 1)]
    for path, pictures in zip(paths, camera.films, strict=True):
        pace = int(1000 * min(max(SECONDS / len(pictures), 0.04), 0.2))
        pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=[pace] * (len(pictures) - 1) + [10 * pace], loop=0)
    return paths


class _Camera:
    """A sink that keeps pictures instead of rows. The slot is not being stepped when its row is written, so it can be drawn."""

    def __init__(self, manager: ParallelEnvManager) -> None:
        self._manager = manager
        self._every = -(-manager.rows_per_trial // MOST_PICTURES)
        self._return = 0.0
        self.films: list[list[Image]] = []

    def reserve(self, n: int) -> None:
        """Nothing to make room for."""

    def write(self, trials: NDArray[np.int64], times: NDArray[np.int64], rows: Rows, slots: object, actions: object, extras: object) -> None:
        """Draw the row of the one slot, if it is its turn; starts and ends of episodes always are."""
        if rows.trial_start[0]:
            self.films.append([])
        self._return = 0.0 if rows.episode_start[0] else self._return + float(rows.reward[0])
        if rows.episode_start[0] or rows.ended[0] or times[0] % self._every == 0:
            line = f"episode {self._manager.episode[0] + 1} of {self._manager.episodes_per_trial}   return {self._return:.1f}"
            self.films[-1].append(_titled(self._manager.render(0), line))

    def commit(self, lengths: NDArray[np.int64]) -> None:
        """All trials are drawn."""

    def discard(self, started: int) -> None:
        """Whoever stopped the wave wants no film."""


def _titled(picture: NDArray[np.uint8], line: str) -> Image:
    from PIL import Image, ImageDraw  # here: no run that draws nothing needs them

    height, width = picture.shape[:2]
    factor = -(-SMALLEST // min(height, width))
    size, strip = (factor * width, factor * height), 22
    page = Image.new("RGB", (size[0], size[1] + strip), "white")
    page.paste(Image.fromarray(picture).resize(size, Image.Resampling.NEAREST), (0, strip))
    ImageDraw.Draw(page).text((6, 5), line, fill="black")
    return page
