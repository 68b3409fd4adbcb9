"""Run folders: damaged, edited, with links, files in each other's place, manifests that are signed anew.

Promised: a sentence, or the run as one of its checkpoints was; the recorded options; and nothing outside of
the folder is changed. What is signed anew by somebody who knows how may be other data, which hashes cannot
see; it is still loaded or refused in a sentence.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from configs.compose import Composer
from configs.runs import continued
from policies.learner import Learner
from policies.run.config import CHECKPOINTS, RECORD
from policies.run.failures import is_explained
from tests.fuzz.bytes_of_files import DAMAGE
from tests.fuzz.engine import BrokenPromise, Mutation, Target, check_sentence, remove, snapshot
from tests.fuzz.tiny_run import HERE, TinyRun, quiet, whole_state
from tests.fuzz.values import with_odd_value
from utils.disk.manifest import FILE, digest_of
from utils.disk.own_files import is_plain_file, is_plain_folder
from utils.logger import METRICS

# To train on takes a while: one case in so many does.
GOES_ON = 8
# The env steps that it trains on: an iteration, a save, and what follows a save.
MORE = 24


class RunFolders(Target):
    """A tiny run that is resumed."""

    name = "run_folders"
    num_cases = 40
    kinds = ("bytes", "record", "record", "signed", "link", "link", "remove", "swap", "folder", "extra")
    most = 2

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._run = TinyRun(folder)
        self._outside = snapshot(self._run.outside)
        # As `configs.runs.load_run`, which makes one each time: that takes longer than all the rest.
        self._composer = self.stack.enter_context(Composer())

    def play(self, mutations: Sequence[Mutation]) -> None:
        """Damage a copy, resume it, and perhaps train on."""
        run = self._run.fresh()
        for one in mutations:
            WAYS[one.kind](self, run, one.rng)
        linked = _has_link(run)
        goes_on = sum(one.draw for one in mutations) % GOES_ON == 0
        try:
            self._resume(run, mutations, goes_on=goes_on)
        except Exception as error:
            if not is_explained(error):
                raise
            check_sentence(error)
        else:
            if linked:
                raise BrokenPromise(f"{linked} is a link, and the run was opened")
        finally:
            if snapshot(self._run.outside) != self._outside:
                shutil.rmtree(self._run.outside)
                shutil.copytree(self._run.origin, self._run.outside / "run")
                (self._run.outside / "thesis.tex").write_text("years of work")
                raise BrokenPromise("something outside of the run's folder has changed")

    def _resume(self, run: Path, mutations: Sequence[Mutation], *, goes_on: bool) -> None:
        words = self._composer.parse([f"resume={run}", *HERE])
        config, folder = continued(self._composer, "resume", words).config, run
        signed = any(one.kind == "signed" for one in mutations)
        # Options that may change with a resume may have been edited too.
        given = self._run.config
        kept = replace(
            config,
            backend=given.backend,
            checkpoint_every=given.checkpoint_every,
            profile=given.profile,
            wandb=given.wandb,
            train=replace(
                config.train,
                n_env_steps_total=given.train.n_env_steps_total,
                replay_device=given.train.replay_device,
            ),
        )
        if kept != given and not signed:
            raise BrokenPromise("the config is another one than that of the run")
        with Learner(replace(given, backend=config.backend), folder) as learner:
            learner.load()
            if not signed and whole_state(learner) not in self._run.states:
                raise BrokenPromise("what was loaded is no checkpoint of the run")
            if not goes_on:
                return
            total = min(learner.counters.env_steps, given.train.n_env_steps_total) + MORE
            learner.config.train.n_env_steps_total = total
            with quiet():
                learner.train()
        for line in (folder / METRICS).read_bytes().splitlines():
            json.loads(line)


def _has_link(run: Path) -> str:
    """The first link in a run folder, or nothing."""
    if run.is_symlink():
        return ""
    return next((str(path.relative_to(run)) for path in sorted(run.rglob("*")) if path.is_symlink()), "")


# -- ways to change a run folder -----------------------------------------------------------------------------


def _entries(run: Path) -> list[Path]:
    return sorted(path for path in run.rglob("*"))


def _one_file(run: Path, rng: np.random.Generator) -> Path:
    files = [path for path in _entries(run) if is_plain_file(path)]
    return files[rng.integers(len(files))] if files else run / "config.yaml"


def _one_entry(run: Path, rng: np.random.Generator) -> Path:
    entries = _entries(run)
    return entries[rng.integers(len(entries))] if entries else run / RECORD


def _bytes(target: RunFolders, run: Path, rng: np.random.Generator) -> None:
    """Damage the bytes of one file."""
    path, way = _one_file(run, rng), list(DAMAGE.values())[rng.integers(len(DAMAGE))]
    if is_plain_file(path):
        path.write_bytes(way(path.read_bytes(), rng))


def _record(target: RunFolders, run: Path, rng: np.random.Generator) -> None:
    """Give one option of the record another value."""
    path = run / RECORD
    if not is_plain_file(path):
        return
    try:
        tree = yaml.safe_load(path.read_bytes())
        path.write_text(yaml.safe_dump(with_odd_value(tree, rng)[0], sort_keys=False, allow_unicode=True))
    except (OSError, ValueError, RecursionError, yaml.YAMLError):  # damaged before, or no text
        return


def _signed(target: RunFolders, run: Path, rng: np.random.Generator) -> None:
    """Change one value of a manifest, with the hash that then belongs to it."""
    manifests = [path for path in sorted((run / CHECKPOINTS).glob(f"*/{FILE}")) if is_plain_file(path)]
    if not manifests:
        return
    path = manifests[rng.integers(len(manifests))]
    try:
        body = json.loads(path.read_bytes())["body"]
        body, _ = with_odd_value(body, rng)
        path.write_text(json.dumps({"sha256": digest_of(body), "body": body}))
    except (OSError, ValueError, RecursionError, TypeError, KeyError):
        return


def _link(target: RunFolders, run: Path, rng: np.random.Generator) -> None:
    """A link to something of the user's in the place of an entry, or beside it."""
    path = _one_entry(run, rng)
    outside = target._run.outside
    same = outside / "run" / path.relative_to(run)
    goal = [same, outside / "thesis.tex", outside, outside / "not_there"][rng.integers(4)]
    if rng.random() < 0.2:
        path = path.with_name(f"{path.name}.more")
    remove(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(goal)


def _gone(target: RunFolders, run: Path, rng: np.random.Generator) -> None:
    """An entry is not there."""
    remove(_one_entry(run, rng))


def _swap(target: RunFolders, run: Path, rng: np.random.Generator) -> None:
    """Two entries have each other's names, or one has the content of another."""
    one, other = _one_entry(run, rng), _one_entry(run, rng)
    if one == other or one in other.parents or other in one.parents or not (one.exists() and other.exists()):
        return
    aside = run.with_name("aside")
    os.rename(one, aside)
    os.rename(other, one)
    os.rename(aside, other)


def _folder(target: RunFolders, run: Path, rng: np.random.Generator) -> None:
    """A folder, a pipe or nothing at all in the place of a file."""
    path = _one_file(run, rng)
    remove(path)
    way = rng.integers(3)
    if way == 0:
        path.mkdir(parents=True)
    elif way == 1 and path.parent.is_dir():
        os.mkfifo(path)
    elif path.parent.is_dir():
        path.write_bytes(b"")


def _copy(folder: Path, copy: Path) -> None:
    """Copy the plain files of a checkpoint."""
    copy.mkdir(exist_ok=True)
    for path in folder.iterdir():
        if is_plain_file(path):
            shutil.copy(path, copy / path.name)


def _extra(target: RunFolders, run: Path, rng: np.random.Generator) -> None:
    """What nobody has written: other names of checkpoints and segments, drafts, a module."""
    checkpoints = run / CHECKPOINTS
    names = [path for path in sorted(checkpoints.glob("0*-step-*")) if is_plain_folder(path)]
    way = rng.integers(5)
    if way == 0:
        (run / "numpy.py").write_text("raise SystemExit('imported from the run folder')")
    if not names:
        return
    name = names[rng.integers(len(names))]
    if way == 1:
        copy = checkpoints / f"{rng.integers(10**6):06d}-step-{rng.integers(500)}"
        _copy(name, copy)
    if way == 2:
        os.rename(name, checkpoints / f"999999-step-{rng.integers(500)}")
    if way == 3:
        (checkpoints / f".{name.name}.12345678").mkdir(exist_ok=True)
    if way == 4 and not (checkpoints / "9999999-step-5").exists():
        (checkpoints / "9999999-step-5").mkdir()


WAYS: dict[str, Callable[[RunFolders, Path, np.random.Generator], Any]] = {
    "bytes": _bytes,
    "record": _record,
    "signed": _signed,
    "link": _link,
    "remove": _gone,
    "swap": _swap,
    "folder": _folder,
    "extra": _extra,
}
