"""The gallery draws every family, and says why where it cannot."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium import spaces

from benchmarks.pages.gallery import PICTURES, draw_page, main, panel_of
from envs.base import EnvConfig, EnvSpec, Shard, Shelf, TaskFamily
from envs.meta import FAMILIES
from utils.options import OptionError


@dataclass
class DrifterConfig(EnvConfig):
    """Options of Drifter."""

    family: str = "Drifter"
    max_episode_steps: int = 6


class Drifter(TaskFamily):
    """A number that its action changes.

    It ends when it is above 2.
    """

    Config = DrifterConfig
    shelf = Shelf.third_party
    version = 7
    broken: ClassVar[str | None] = None

    def __init__(self, config: EnvConfig) -> None:
        super().__init__(config)
        box = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.spec = EnvSpec("Drifter", spaces.Box(-np.inf, np.inf, (1,), np.float32), box, task_dim=1)

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> Any:
        return np.arange(n, dtype=np.float64)[:, None]

    def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
        return DrifterShard()


class DrifterShard(Shard):
    """Slots of Drifter; the task is how soon it ends."""

    def reset(self, slots: Any, tasks: Any, seeds: Any) -> None:
        self.left = 2 + tasks[:, 0]

    def step(self, slots: Any, actions: Any) -> None:
        self.left[slots] -= 1
        self.rows.reward[slots] = 1.0
        self.rows.terminated[slots] = self.left[slots] <= 0

    def render(self, slot: int) -> Any:
        if Drifter.broken:
            raise RuntimeError(Drifter.broken)
        return np.full((20, 80, 3), int(self.left[slot]), np.uint8)


class Missing(Drifter):
    """A family of a library that is not here."""

    def __init__(self, config: EnvConfig) -> None:
        raise OptionError("Missing needs the package nowhere.")


@pytest.fixture
def drifter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAMILIES, "Drifter", Drifter)


def texts(figure: Any) -> str:
    return " ".join(
        part.get_text().replace("\n", " ")
        for part in [*figure.texts, *(panel.title for panel in figure.axes)]
    )


def test_a_page_of_three_families_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    from matplotlib.image import imread

    page = tmp_path / "new" / "page.png"
    main(["PointRobot", "MetaFrozenLake", "DelayedCatch", "--out", str(page)])
    picture = imread(page)
    assert (
        picture.ndim == 3
        and min(picture.shape[:2]) > 300
        and len(np.unique(picture.reshape(-1, picture.shape[2]), axis=0)) > 50
    )
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "1/3 PointRobot",
        "2/3 MetaFrozenLake",
        "3/3 DelayedCatch",
        "Drawn",
    ]


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["PointRobott"])
    assert "Did you mean 'PointRobot'?" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_every_family_of_the_registry_gets_its_panel(name: str):
    panel = panel_of(name, longest=2)
    assert (panel.shelf, panel.version) == (FAMILIES[name].shelf, FAMILIES[name].version)
    assert panel.note or len(panel.pictures) + len(panel.traces) >= 2
    said = texts(draw_page([panel]))
    assert name in said and panel.shelf.value in said and f"v{panel.version}" in said


def test_the_page_says_who_it_is_and_shows_what_happened(drifter: None):
    panel = panel_of("Drifter")
    assert (panel.line, panel.version, panel.facts, panel.note) == (
        "A number that its action changes.",
        7,
        "k=2, H=6",
        "",
    )
    assert [caption for caption, _ in panel.pictures] == ["random, step 0", "step 1", "step 2"]
    assert [int(picture[0, 0, 0]) for _, picture in panel.pictures] == [2, 1, 0]
    (ways,) = panel.traces
    assert [line.tolist() for line in ways.lines] == [
        [float(step) for step in range(end + 1)] for end in (2, 3, 4, 5, 6, 6)
    ]
    figure = draw_page([panel])
    assert len(figure.axes) == PICTURES
    for wanted in ("Third-party environments", "A number that its action changes.", "random: return so far"):
        assert wanted in texts(figure)


def test_places_on_the_plane_are_drawn_for_oracle_and_random():
    oracle, random = panel_of("Wind", longest=9).traces
    assert (oracle.policy, random.policy, oracle.quantity) == ("oracle", "random", "x, y")
    assert [line.shape for line in oracle.lines] == [(10, 2)] * 6
    assert not any(line[0].any() for line in oracle.lines), "Wind starts at (0, 0)"


def test_where_rendering_raises_the_page_says_why_and_draws_what_happened(
    drifter: None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Drifter, "broken", "OpenGL cannot be used here; set MUJOCO_GL=egl")
    panel = panel_of("Drifter")
    assert not panel.pictures and len(panel.traces) == 1
    figure = draw_page([panel])
    assert "No picture: OpenGL cannot be used here; set MUJOCO_GL=egl" in texts(figure)
    assert len(figure.axes) == 1


def test_a_family_that_cannot_be_built_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(FAMILIES, "Missing", Missing)
    panel = panel_of("Missing")
    assert not panel.pictures and not panel.traces
    assert "Cannot be built here: Missing needs the package nowhere." in texts(draw_page([panel]))


def test_pictures_follow_the_oracle_to_its_first_success():
    captions = [caption for caption, _ in panel_of("PointRobot").pictures]
    assert captions[0] == "oracle, step 0" and 0 < int(captions[1].split()[-1]) < 30, (
        "it reaches the goal long before the horizon"
    )


def test_wide_pictures_stand_in_rows(drifter: None):
    figure = draw_page([panel_of("Drifter")])
    places = {round(panel.get_position().y0, 4) for panel in figure.axes[:-1]}
    assert len(places) > 1


def test_groups_keep_their_order_on_the_page():
    figure = draw_page([panel_of("Gymnasium", 1), panel_of("DelayedCatch", 1), panel_of("Wind", 1)])
    words = [part.get_text() for part in figure.texts]
    assert [word for word in words if word in {group.value for group in Shelf}] == [
        Shelf.toy.value,
        Shelf.grid.value,
        Shelf.third_party.value,
    ]
