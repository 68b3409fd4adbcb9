"""Films: every row of whole trials of the test list is there, and where nothing can be drawn the run says why
and goes on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageSequence

from envs.backends.base import BackendConfig
from envs.meta.toy.point_robot import PointRobotShard
from envs.parallel_env_manager import WorkerError
from policies.learner import Learner
from policies.run import film as module
from tests.runs import tiny_config


def length(film: Image.Image) -> int:
    return sum(1 for _ in ImageSequence.Iterator(film))


def test_a_film_has_a_picture_of_every_row_of_a_trial(tmp_path: Path) -> None:
    with Learner(
        tiny_config(evaluation={"films": 2, "episodes_per_trial": 3}), tmp_path, learns=False
    ) as learner:
        paths = learner.film()
    assert paths == sorted(tmp_path.glob("film_*.gif")) == [tmp_path / "film_1.gif", tmp_path / "film_2.gif"]
    with Image.open(paths[0]) as first, Image.open(paths[1]) as second:
        assert length(first) == length(second) == 3 * (6 + 1)
        assert max(first.size) >= module.SMALLEST and np.asarray(first.convert("L")).std() > 0


def test_films_replace_what_the_run_listed_and_no_file_of_the_user(tmp_path: Path) -> None:
    own = ("film_2.gif", "film_best.gif", "film_7.gif", "film_7.gif.part")
    for name in own:
        (tmp_path / name).write_bytes(b"mine")
    for asked, names in ((3, ["film_1.gif", "film_3.gif", "film_4.gif"]), (1, ["film_1.gif"])):
        with Learner(tiny_config(evaluation={"films": asked}), tmp_path, learns=False) as learner:
            assert learner.film() == [tmp_path / name for name in names]
        there = {path.name for path in tmp_path.iterdir() if "film" in path.name}
        assert there == {*own, *names, module.LIST}, "the films of before go, drafts too"
    assert all((tmp_path / name).read_bytes() == b"mine" for name in own)


def test_of_a_long_trial_some_rows_are_drawn_and_all_starts_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_PICTURES", 4)
    with (
        Learner(tiny_config(evaluation={"films": 1}), tmp_path, learns=False) as learner,
        Image.open(learner.film()[0]) as found,
    ):
        assert length(found) == len({0, 4, 8, 12} | {0, 6, 7, 13})


def test_a_run_ends_with_the_films_that_were_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Learner(tiny_config(evaluation={"films": 1}), tmp_path) as learner:
        learner.train()
    assert f"film         {tmp_path / 'film_1.gif'}" in capsys.readouterr().out


def test_where_nothing_can_be_drawn_a_warning_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def render(self: object, slot: int) -> object:
        raise RuntimeError("no screen")

    (tmp_path / "film_1.gif").write_bytes(b"of another day")
    monkeypatch.setattr(PointRobotShard, "render", render)
    with Learner(tiny_config(evaluation={"films": 1}), tmp_path, learns=False) as learner:
        assert learner.film() == []
    assert "There is no film: " in caplog.text and "no screen" in caplog.text
    assert [path.name for path in tmp_path.glob("*film*.gif*")] == ["film_1.gif"]


def test_its_environment_is_stepped_as_the_runs_are_and_may_die(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def dies(*args: object, **options: Any) -> object:
        asked.append(options["backend"].name)
        raise WorkerError("The environment died.\nAnd where.")

    asked: list[str] = []
    monkeypatch.setattr(module, "ParallelEnvManager", dies)
    with Learner(
        tiny_config(evaluation={"films": 1}, workers=2, backend=BackendConfig(name="process")),
        tmp_path,
        learns=False,
    ) as learner:
        assert learner.film() == []
    assert asked == ["process"] and caplog.messages == ["There is no film: The environment died."]


@pytest.mark.parametrize(("width", "height"), [(8000, 12), (12, 8000), (50, 50), (3, 300), (1, 1)])
def test_a_picture_of_any_shape_has_a_size_to_look_at(width: int, height: int) -> None:
    page = module._page(np.zeros((height, width, 3), np.uint8), "episode 1")
    inner = page.size[0], page.size[1] - module.STRIP[1]
    assert max(inner) <= module.LARGEST and max(inner) >= module.STRIP[0]
    assert page.getpixel((0, module.STRIP[1])) == (0, 0, 0)


def test_without_a_folder_or_a_wish_there_is_no_film(tmp_path: Path) -> None:
    with Learner(tiny_config(evaluation={"films": 1})) as learner:
        assert learner.film() == []
    with Learner(tiny_config(), tmp_path) as learner:
        assert learner.film() == [] and not list(tmp_path.glob("*.gif"))
