"""A command line is read as a whole: what it asks for, or what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from configs.cli import read
from configs.compose import load
from policies.run.config import CHECKPOINTS, save
from utils.checkpoint import CheckpointStore
from utils.options import OptionError


def test_one_run_comes_with_its_config_its_family_and_what_hydra_needs_for_its_folder() -> None:
    request = read(["env=AntDir", "num_parallel_workers=6"])
    assert (request.mode, request.text, request.runs) == ("train", None, ())
    assert request.config is not None and request.family is not None and request.composed is not None
    assert request.config.num_parallel_workers == request.composed.num_parallel_workers == 6
    assert request.family.config == request.config.env
    assert list(request.composed.hydra.overrides.task) == ["env=AntDir", "num_parallel_workers=6"]


def test_a_sweep_is_handed_to_hydra_with_the_folder_that_was_found_for_it() -> None:
    request = read(["-m", "env=AntDir", "seed=0,1"])
    assert request.plan is not None
    assert request.words == ("-m", "env=AntDir", "seed=0,1", f"hydra.sweep.dir='{request.plan.folder}'")
    assert (request.mode, request.text, request.config) == (None, None, None)
    named = ["-m", "seed=0,1", "hydra.sweep.dir=here"]
    assert read(named).words == tuple(named)


@pytest.mark.parametrize("flag", [["-m"], ["--cfg", "job"]], ids=" ".join)
def test_options_under_names_of_ones_own_are_added_where_hydra_composes(flag: list[str]) -> None:
    words = [*flag, "env=Mixture", "env.parts.a.family=GridNavi", "env.num_eval_tasks=4"]
    sizes = "env.parts.a.size=3,4" if "-m" in flag else "env.parts.a.size=3"
    handed = read([*words, sizes]).words
    assert "++env.parts.a.family=GridNavi" in handed and f"++{sizes}" in handed
    assert "env=Mixture" in handed and "env.num_eval_tasks=4" in handed


def test_pairs_that_are_typed_as_a_mapping_are_handed_to_hydra_as_the_list_that_they_are() -> None:
    handed = read(["-m", "env=Gymnasium", "env.id=Pendulum-v1", "env.info_names={a: 2}", "seed=0,1"]).words
    assert "env.info_names=[a:2]" in handed and "env.id=Pendulum-v1" in handed


@pytest.mark.parametrize(
    "words", [["-m", "seed=0,1"], ["seed=0,1", "-m"], ["seed=0,1", "--multirun", "env=Wind"]], ids=" ".join
)
def test_multirun_may_stand_anywhere(words: list[str]) -> None:
    request = read(words)
    assert request.words[0] in ("-m", "--multirun")
    assert set(words) < set(request.words)


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


@pytest.mark.parametrize("option", ["hydra.run.dir", "hydra.sweep.dir"])
def test_hydra_is_not_let_into_the_folder_of_a_run(option: str, tmp_path: Path) -> None:
    word = f"{option}={tmp_path}"
    words = [word] if option == "hydra.run.dir" else ["-m", word]
    assert read(words).words == tuple(words)
    CheckpointStore(tmp_path / CHECKPOINTS).save(1, tensors={}, facts={}, segments={})
    with pytest.raises(OptionError, match=rf"holds a run, .*: resume={tmp_path}"):
        read(words)


def test_a_script_that_is_queued_again_goes_on_with_its_run_and_with_no_other(tmp_path: Path) -> None:
    words = ["env=Wind", f"hydra.run.dir={tmp_path}", "resume_if_there=true"]
    assert read(words).mode == "train"
    save(load(["env=Wind"]), tmp_path)
    CheckpointStore(tmp_path / CHECKPOINTS).save(1, tensors={}, facts={}, segments={})
    request = read([*words, "num_parallel_workers=2"])
    (run,) = request.runs
    assert (request.mode, run.run_dir, run.config.num_parallel_workers) == ("resume_if_there", tmp_path, 2)
    with pytest.raises(OptionError, match=r"holds another run, with seed=0, and this one has seed=1"):
        read([*words, "seed=1"])
    with pytest.raises(OptionError, match="holds a run, which a new one would overwrite"):
        read(words[:2])
