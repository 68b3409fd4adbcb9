"""Films of a trained agent: whole trials of its test list, picture by picture."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from envs.backends.base import BackendConfig, BackendError
from envs.base import Rows
from envs.parallel_env_manager import ParallelEnvManager, WorkerError
from policies.agents.agent import Agent
from policies.collection.actors import AgentActor
from policies.collection.wave import Sink, WaveInterrupted, WavePlan, run_wave
from policies.run.context import RunContext
from utils.disk.own_files import open_own
from utils.disk.written import WrittenFiles
from utils.options import OptionError
from utils.seeding import Phase

if TYPE_CHECKING:
    from PIL.Image import Image

# The most pictures of a film: of longer trials every second row is drawn, or every third, and so on.
MOST_PICTURES = 200
# How long a film lasts, unless its pictures would change more than 25 or less than 5 times a second.
SECONDS = 8.0
# Pixels of a film's longer side: smaller pictures are enlarged, larger ones reduced.
SMALLEST, LARGEST = 240, 960
# The least width and the height of the line of text above the picture.
STRIP = (220, 22)
# The file in the run folder that lists the films which the run drew: only these are replaced or removed.
LIST = "films.json"

_log = logging.getLogger(__name__)


class FilmError(RuntimeError):
    """An environment gave no picture that can be shown; the text is one sentence for the user."""


def film(
    context: RunContext, agent: Agent, backend: BackendConfig, tick: Callable[[], bool] = lambda: False
) -> list[Path]:
    """Draw `film_1.gif`, `film_2.gif`, ...: the first `evaluation.films` trials of the test list.

    The agent acts as in evaluation, without noise. The environment is one of its own, stepped as the run's
    are, so that nothing else ends with one that hangs or dies. Where no film can be made, a warning says why,
    and films that there were stay. So does a file of somebody else's: a film takes the next free number.
    """
    config, folder = context.config, context.run_dir
    if not config.evaluation.films or folder is None:
        return []
    tasks = context.tasks.evaluation[context.tasks.test][: config.evaluation.films]
    files = WrittenFiles(folder, LIST, r"film_\d+\.gif")
    try:
        # One slot, of a family that draws: some environments have to be built for it.
        with ParallelEnvManager(
            type(context.family)(config.env.for_pictures()),
            1,
            episodes_per_trial=context.evaluation_episodes,
            num_workers=1,
            seed=config.seed,
            oracle=config.env.oracle,
            new_episode_flag=config.env.max_rollouts_per_task > 1,
            backend=replace(backend, min_ready=None, max_worker_memory=None),
        ) as manager:
            camera = _Camera(manager, files)
            actor = AgentActor(agent, context.device, deterministic=True)
            plan = WavePlan.of_tasks(config.seed, Phase.EVALUATE, 0, tasks)
            run_wave(manager, actor, plan, sink=camera, tick=lambda _: tick())
    except WaveInterrupted:
        return []
    # A family that draws nothing, no OpenGL, an environment that dies, a full disk.
    except (BackendError, FilmError, OptionError, OSError, WorkerError) as error:
        _log.warning("There is no film: %s", str(error).partition("\n")[0])
        return []
    finally:
        with suppress(OSError):  # what stays on the list is removed the next time
            files.tidy()
    return [folder / name for name in camera.films]


class _Camera(Sink):
    """A sink that draws rows instead of storing them.

    The slot is not being stepped while its row is written, so it can be drawn.
    """

    def __init__(self, manager: ParallelEnvManager, files: WrittenFiles) -> None:
        self._manager, self._files = manager, files
        self._names = files.free(f"film_{number}.gif" for number in count(1))
        self._every = -(-manager.rows_per_trial // MOST_PICTURES)
        self._return = 0.0
        # The pictures of the present trial, as drawn, with the lines above them.
        self._pictures: list[tuple[NDArray[np.uint8], str]] = []
        self.films: list[str] = []

    def write(
        self,
        trials: NDArray[np.int64],
        times: NDArray[np.int64],
        rows: Rows,
        slots: object,
        actions: object,
        extras: object,
    ) -> None:
        """Draw the row of the one slot, if it is its turn; starts and ends of episodes are always drawn."""
        # The first row of a trial: the film of the one before it is complete.
        if rows.trial_start[0]:
            self._develop()
        self._return += float(rows.reward[0])
        if rows.episode_start[0]:
            self._return = 0.0
        if rows.episode_start[0] or rows.ended[0] or times[0] % self._every == 0:
            episode, episodes = self._manager.episode[0] + 1, self._manager.episodes_per_trial
            line = f"episode {episode} of {episodes}   return {self._return:.1f}"
            self._pictures.append((self._draw(), line))

    def _draw(self) -> NDArray[np.uint8]:
        try:
            picture = self._manager.render(0)
        except RuntimeError as error:  # the environment is of another library, or the machine cannot draw
            raise FilmError(str(error)) from error
        if picture.ndim != 3 or picture.shape[2] != 3 or not picture.size:
            raise FilmError(f"A picture must be [height, width, 3], and this one is {list(picture.shape)}.")
        return picture

    def commit(self, lengths: NDArray[np.int64]) -> None:
        """All trials are drawn: now their films take the place of older ones."""
        self._develop()
        self._files.publish(self.films)

    def _develop(self) -> None:
        """Write the film of the trial that is over, so that the pictures of only one are in memory."""
        pictures, self._pictures = self._pictures, []
        if not pictures:
            return
        self.films.append(next(self._names))
        first, *others = pictures
        # Long trials are shown faster, within what a viewer can follow.
        pace_ms = int(1000 * min(max(SECONDS / len(pictures), 0.04), 0.2))
        durations = [pace_ms] * len(others) + [10 * pace_ms]  # the last picture stays
        pages = (_page(picture, line) for picture, line in others)  # made while the file is written
        with open_own(self._files.draft(self.films[-1]), "wb") as file:
            _page(*first).save(file, "GIF", save_all=True, append_images=pages, duration=durations, loop=0)


def _page(picture: NDArray[np.uint8], line: str) -> Image:
    """The picture, in a size that is easy to see, below a line of text."""
    from PIL import Image, ImageDraw  # here: no run that draws nothing needs them

    # Small pictures grow by whole numbers, and their pixels stay square; large ones are averaged.
    height, width = picture.shape[:2]
    longer = max(height, width)
    if longer < SMALLEST:
        scale = -(-SMALLEST // longer)
    else:
        scale = min(1.0, LARGEST / longer)
    how = Image.Resampling.NEAREST if scale >= 1 else Image.Resampling.BOX
    size = max(1, round(scale * width)), max(1, round(scale * height))
    page = Image.new("RGB", (max(size[0], STRIP[0]), size[1] + STRIP[1]), "white")
    page.paste(Image.fromarray(picture).resize(size, how), (0, STRIP[1]))
    ImageDraw.Draw(page).text((6, 5), line, fill="black")
    return page
