"""A package that is not installed is named in one sentence, before a worker fails at it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from envs.base import Shelf
from envs.meta import FAMILIES
from envs.meta.make_env import make_env, make_family
from envs.meta.third_party import installed
from envs.meta.third_party.installed import missing
from utils.options import OptionError

ROOT = Path(__file__).resolve().parents[4]


def test_an_older_mujoco_has_no_robots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "version", lambda name: "3.3.0")
    with pytest.raises(
        OptionError,
        match=r"^AntDir needs mujoco\.batch, which MuJoCo has since 3\.17, "
        r"and installed is mujoco 3\.3\.0\.$",
    ):
        make_family("AntDir")
    assert make_family("Wind").spec.name == "Wind"


@pytest.mark.parametrize(
    ("found", "serves"), [("3.9.1", False), ("3.17.0", True), ("4.0.0", True), ("10.0", True)]
)
def test_versions_are_compared_as_numbers(found: str, serves: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "version", lambda name: found)
    assert (missing(FAMILIES["AntDir"]) is None) == serves


ROBOTS = [name for name, family in FAMILIES.items() if family.shelf is Shelf.locomotion]


@pytest.mark.parametrize("name", ROBOTS)
def test_an_opengl_that_mujoco_cannot_load_is_named_before_a_worker_fails_at_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mujoco", None)  # so an import fails
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    assert make_family(name).spec.name == name, "without a choice MuJoCo is left to the workers"
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    with pytest.raises(OptionError, match=r"^MuJoCo cannot be imported with MUJOCO_GL=osmesa .*unset it"):
        make_family(name)


def test_a_package_that_is_not_there_is_named_with_the_file_that_brings_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(installed, "find_spec", lambda name: None)
    for make in (lambda: make_family("MetaWorld"), lambda: make_env("MetaWorld", 2)):
        with pytest.raises(
            OptionError,
            match=r"MetaWorld needs the package metaworld.*pip install -r requirements-metaworld\.txt",
        ) as caught:
            make()
        assert "\n" not in str(caught.value)


def test_the_file_that_brings_a_package_is_there() -> None:
    packages = [family.package for family in FAMILIES.values() if family.package is not None]
    assert packages and all((ROOT / f"requirements-{package}.txt").is_file() for package in packages)
