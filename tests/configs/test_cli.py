"""A command line is read as a whole: what it asks for, or what is wrong with it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from configs.cli import read
from policies.run.config import CHECKPOINTS
from utils.checkpoint import CheckpointStore
from utils.options import OptionError


def test_one_run_comes_with_its_config_its_family_and_what_hydra_needs_for_its_folder() -> None:
    request = read(["env=AntDir", "num_parallel_workers=6"])
    assert (request.mode, request.text, request.runs) == ("train", None, ())
    assert request.config is not None and request.family is not None and request.composed is not None
    assert request.config.num_parallel_workers == request.composed.num_parallel_workers == 6
    assert request.family.config == request.config.env
    assert list(request.composed.hydra.overrides.task) == ["env=AntDir", "num_parallel_workers=6"]


def test_a_sweep_is_handed_to_hydra_unchanged() -> None:
    request = read(["-m", "env=AntDir", "seed=0,1"])
    assert request.words == ("-m", "env=AntDir", "seed=0,1")
    assert (request.mode, request.text, request.config) == (None, None, None)


@pytest.mark.parametrize(
    "words", [["-m", "seed=0,1"], ["seed=0,1", "-m"], ["seed=0,1", "--multirun", "env=Wind"]], ids=" ".join
)
def test_multirun_may_stand_anywhere(words: list[str]) -> None:
    request = read(words)
    assert request.words[0] in ("-m", "--multirun")
    assert sorted(request.words) == sorted(words)


@pytest.mark.parametrize(
    "words",
    [["env=list"], ["seed=1", "experiment=list"], ["recipe=list"], ["--help"], ["-h", "env=Wind"]],
    ids=" ".join,
)
def test_what_is_only_asked_is_answered(words: list[str]) -> None:
    assert read(words).text


@pytest.mark.parametrize("words", [["--hydra-help"], ["--cfg", "job"], ["--info", "all"]], ids=" ".join)
def test_hydras_own_flags_are_passed_on(words: list[str]) -> None:
    assert read(words).words == tuple(words)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("-m seed=1,2 agent=Memory,Foo", "agent=Foo is not known."),
        ("-m seed=1,2,-1", "seed=-1 is out of range"),
        ("-m num_slots=24,12,2 num_parallel_workers=6", "num_parallel_workers=6 is more than num_slots=2"),
        ("-m seed=range(-1,2)", "seed=-1 is out of range"),
        ("-m seed=range(0,0)", "There is nothing to run"),
        ("hydra.mode=MULTIRUN seed=1,-1", "seed=-1 is out of range"),
        ("-m hydra/sweeper=bayes seed=1", "hydra/sweeper=bayes is not known."),
        ("--seed 3", "There is no flag --seed; options are written without dashes: python main.py seed=3"),
        ("--num-parallel-workers=6", "written without dashes: python main.py num_parallel_workers=6"),
        ("--cfg", "flags are listed by --hydra-help"),
        ("--config-name other", "--config-name is not for Retrial's configs"),
        ("--config-dir nowhere", "--config-dir nowhere is not a folder."),
        ("-m seed=1 --cfg job", "only one can be given"),
        ("--resolve", "go with --cfg"),
        ("resume=a evaluate=b", "give one of the two"),
        ("-m resume=a", "leave out -m"),
        ("num_groups=3 num_slots=2", "num_groups=3 is more than the 2 slots"),
        ("evaluate=", "evaluate= needs the folder of a run"),
        ("num_parallel_workers = 6", "write num_parallel_workers=VALUE, without spaces"),
    ],
)
def test_a_mistake_anywhere_is_one_sentence(words: str, sentence: str) -> None:
    with pytest.raises(OptionError) as caught:
        read(words.split())
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_resume_of_null_is_an_ordinary_run() -> None:
    assert not read(["resume=null"]).runs


@pytest.mark.parametrize(("option", "run"), [("hydra.run.dir", "."), ("hydra.sweep.dir", "0")])
def test_hydra_is_not_let_into_the_folder_of_a_run(option: str, run: str, tmp_path: Path) -> None:
    word = f"{option}={tmp_path}"
    words = [word] if option == "hydra.run.dir" else ["-m", word]
    folder = (tmp_path / run).resolve()
    assert read(words).words == tuple(words)
    CheckpointStore(folder / CHECKPOINTS).save(1, tensors={}, facts={}, segments={})
    with pytest.raises(OptionError, match=rf"holds a run, .*: resume={folder}"):
        read(words)


def a_config_with(folder: Path, sweep: str, job: str = "${hydra.job.num}") -> list[str]:
    """The words that sweep with an experiment of one's own, which sets the folder."""
    text = f"# @package _global_\nhydra:\n  sweep:\n    dir: '{sweep}'\n    subdir: '{job}'\n"
    (folder / "experiment").mkdir(parents=True)
    (folder / "experiment" / "own.yaml").write_text(text)
    return ["-m", "--config-dir", str(folder), "experiment=own", "seed=0,1"]


@pytest.mark.parametrize("job", ["${hydra.job.num}", "deep/${seed}"])
def test_nor_into_the_job_folders_of_a_sweep_wherever_they_are_set(tmp_path: Path, job: str) -> None:
    words = a_config_with(tmp_path / "configs", f"{tmp_path}/${{env.family}}", job)
    sweep = tmp_path / "PointRobot"
    second = sweep / job.replace("${hydra.job.num}", "1").replace("${seed}", "1")
    assert read(words).words
    CheckpointStore(second / CHECKPOINTS).save(1, tensors={}, facts={}, segments={})
    with pytest.raises(OptionError, match=rf"holds a run, .*: resume={second}"):
        read(words)
    shutil.rmtree(second)
    second.mkdir()
    (second / ".hydra").symlink_to(tmp_path)
    with pytest.raises(OptionError, match=r"\.hydra is a link"):
        read(words)
    (second / ".hydra").unlink()
    (sweep / "multirun.yaml").symlink_to(tmp_path / "thesis.tex")
    with pytest.raises(OptionError, match=r"multirun\.yaml is a link"):
        read(words)
