"""Films of a trained agent: whole trials of its test list, picture by picture, in which one sees what a curve
only counts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from envs.base import Rows
from envs.parallel_env_manager import ParallelEnvManager
from policies.collection.wave import AgentActor, Plan, WaveInterrupted, run_wave
from policies.evaluation import held_out_name
from utils.seeding import Phase

if TYPE_CHECKING:
    from PIL.Image import Image

    from policies.learner import Learner

MOST_PICTURES = 200
"""Of a film; of longer trials every second row is drawn, or every third, ..."""
SECONDS = 8.0
"""How long a film lasts, unless its pictures would change faster than 25 times a second, or slower than 5
times.
"""
SMALLEST, LARGEST = 240, 960
"""Pixels of a film's longer side: smaller pictures are enlarged, larger ones reduced."""
STRIP = (220, 22)
"""The least width and the height of the line above the picture."""
UNFINISHED = ".part"

_log = logging.getLogger(__name__)


def film(learner: Learner) -> list[Path]:
    """`film_1.gif`, `film_2.gif`, ... in the run folder: the first `evaluation.films` trials of the test
    list, all of their episodes.

    The agent acts as in evaluation, without noise, and an environment of its own is stepped as the run's are,
    so that one which hangs or dies ends nothing else. Where no film can be made, a warning says why, and
    films that there were stay.
    """
    config, folder = learner.config, learner.run_dir
    if not config.evaluation.films or folder is None:
        return []
    tasks = learner.tasks.evaluation[held_out_name(learner.family.spec)]
    try:
        with ParallelEnvManager(
            type(learner.family)(config.env.for_pictures()),
            1,
            episodes_per_trial=config.evaluation.episodes_per_trial or config.env.max_rollouts_per_task,
            num_workers=1,
            seed=config.seed,
            oracle=config.env.oracle,
            new_episode_flag=config.env.max_rollouts_per_task > 1,
            backend=replace(learner.backend.backend, min_ready=None, max_worker_memory=None),
        ) as manager:
            camera = _Camera(manager, folder)
            actor = AgentActor(learner.agent, device=learner.device, deterministic=True)
            plan = Plan(config.seed, Phase.EVALUATE, 0, tasks[: config.evaluation.films])
            run_wave(manager, actor, plan, sink=camera, tick=lambda _: learner.tick())
    except WaveInterrupted:
        return []
    except (
        RuntimeError,
        OSError,
        ValueError,
        OverflowError,
    ) as error:  # no OpenGL, a family that draws nothing, an environment that dies, a full disk
        _log.warning("There is no film: %s", str(error).partition("\n")[0])
        return []
    finally:
        for unfinished in folder.glob(f"film_*.gif{UNFINISHED}"):
            unfinished.unlink()
    return camera.films


class _Camera:
    """A sink that draws rows instead of keeping them. The slot is not being stepped when its row is written,
    so it can be drawn.
    """

    def __init__(self, manager: ParallelEnvManager, folder: Path) -> None:
        self._manager, self._folder = manager, folder
        self._every = -(-manager.rows_per_trial // MOST_PICTURES)
        self._return = 0.0
        self._pictures: list[tuple[NDArray[np.uint8], str]] = []
        """Of the trial that is being played: as drawn, with the lines above them."""
        self.films: list[Path] = []

    def reserve(self, n: int) -> None:
        """Nothing to make room for."""

    def write(
        self,
        trials: NDArray[np.int64],
        times: NDArray[np.int64],
        rows: Rows,
        slots: object,
        actions: object,
        extras: object,
    ) -> None:
        """Draw the row of the one slot, if it is its turn; starts and ends of episodes always are."""
        if rows.trial_start[0]:
            self._develop()
        self._return = 0.0 if rows.episode_start[0] else self._return + float(rows.reward[0])
        if rows.episode_start[0] or rows.ended[0] or times[0] % self._every == 0:
            line = f"episode {self._manager.episode[0] + 1} of {self._manager.episodes_per_trial}   return {self._return:.1f}"
            self._pictures.append((self._manager.render(0), line))

    def commit(self, lengths: NDArray[np.int64]) -> None:
        """All trials are drawn: now their films take the place of older ones."""
        self._develop()
        for old in self._folder.glob("film_*.gif"):
            old.unlink()
        for path in self.films:
            path.with_name(path.name + UNFINISHED).rename(path)

    def discard(self, started: int) -> None:
        """Whoever stopped the wave wants no film."""

    def _develop(self) -> None:
        """Write the film of the trial that is over, so that only one is in memory."""
        taken, self._pictures = self._pictures, []
        if not taken:
            return
        self.films.append(self._folder / f"film_{len(self.films) + 1}.gif")
        first, *others = taken
        pace = int(1000 * min(max(SECONDS / len(taken), 0.04), 0.2))

        def pages() -> Iterator[Image]:
            yield from (_page(*one) for one in others)

        with open(f"{self.films[-1]}{UNFINISHED}", "wb") as file:
            durations = [pace] * len(others) + [10 * pace]
            _page(*first).save(file, "GIF", save_all=True, append_images=pages(), duration=durations, loop=0)


def _page(picture: NDArray[np.uint8], line: str) -> Image:
    """The picture, in a size to look at, below a line of text."""
    from PIL import Image, ImageDraw  # here: no run that draws nothing needs them

    height, width = picture.shape[:2]
    longer = max(height, width)
    scale = -(-SMALLEST // longer) if longer < SMALLEST else min(1.0, LARGEST / longer)
    size = max(1, round(scale * width)), max(1, round(scale * height))
    page = Image.new("RGB", (max(size[0], STRIP[0]), size[1] + STRIP[1]), "white")
    page.paste(
        Image.fromarray(picture).resize(
            size, Image.Resampling.NEAREST if scale >= 1 else Image.Resampling.BOX
        ),
        (0, STRIP[1]),
    )
    ImageDraw.Draw(page).text((6, 5), line, fill="black")
    return page
