"""The front door: mistakes leave nothing behind, runs get a folder and their config, and ends have their exit
codes.
"""

from __future__ import annotations

import multiprocessing.process
import os
import subprocess
import sys
from pathlib import Path

import pytest

import main
from configs.compose import load
from policies.run.config import save

ROOT = Path(main.__file__).resolve().parent

# The real front door with a learner that only prints what it is asked.
FAKE = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import policies.learner
from policies.evaluation import outcome
from policies.evaluation.table import Levels
from policies.recording import services
from policies.run.config import save
from policies.run.progress import Counters
from policies.run.nan_guard import ExplodedError
from utils.checkpoint import CheckpointError, CheckpointStore

class Learner:
    stop_signal = context = None
    counters = Counters(env_steps=40)
    def __init__(self, config, run_dir=None, *, learns=True, family=None, host=None):
        assert family.config.family == config.env.family
        self.config, self.run_dir, self.learns, self.family = config, run_dir, learns, family
    def load(self):
        if self.run_dir.name == "torn":
            raise CheckpointError("all are damaged")
        print("load" if self.learns else "load the agent")
    def train(self):
        save(self.config, self.run_dir)
        config = self.config
        print("train", self.run_dir.name, config.env.family, config.seed, config.train.n_env_steps_total)
        if self.config.seed == 15:
            self.stop_signal = 15
        if self.config.seed == 7:
            raise CheckpointError("no room on the disk")
        if self.config.seed == 9:
            raise ExplodedError("critic_loss was nan")
        if self.config.seed == 8:
            raise ZeroDivisionError("a fault of ours")
        # As after the last evaluation.
        counters = {{"env_steps": config.train.n_env_steps_total, "stage": "collect"}}
        store = CheckpointStore(self.run_dir / "checkpoints")
        store.has_any or store.save(1, tensors={{}}, facts={{"counters": counters}})
        return 1.0
    def film(self):
        return []
    def __enter__(self):
        return self
    def __exit__(self, *_):
        print("closed")

def assess(learner):
    metrics = {{"eval/far/return_episode_1": 2.5, "eval/far/returns": [[2.0], [3.0]]}}
    return outcome.Outcome(metrics, learner.family.spec, "last", Counters(env_steps=40), {{
        "episodes": {{"here": f"{{learner.config.evaluation.episodes_per_trial}} episodes", "in_training": 0}}
    }}, Levels())

policies.learner.Learner, outcome.assess = Learner, assess
services.record_evaluation = lambda *_: None
import main
sys.exit(main.main())
"""

MISTAKES = {
    "a choice that is not": ("algorithm=SAX", "algorithm=SAX is not known. Did you mean 'SAC'?"),
    "an option that is not": (
        "num_wokers=4",
        "There is no option 'num_wokers'. Did you mean 'num_parallel_workers'?",
    ),
    "an option without its section": ("max_episode_steps=9", "Did you mean 'env.max_episode_steps'?"),
    "a value of another kind": (
        "num_parallel_workers=six",
        "num_parallel_workers=six should be a whole number or null.",
    ),
    "a value that is not one of its values": (
        "device=gpu",
        "device=gpu is not one of its values. Did you mean 'cpu'?",
    ),
    "a value out of range": (
        "train.num_rollouts_per_iter=0",
        "train.num_rollouts_per_iter=0 is out of range: it must be at least 1.",
    ),
    "a number that is none": ("algorithm.discount=nan", "algorithm.discount=nan is out of range"),
    "an algorithm for other actions": ("env=GridNavi algorithm=SAC", "cannot learn discrete actions"),
    "a contradiction": ("backend=serial num_parallel_workers=6", "contradicts it"),
    "more workers than slots": (
        "num_slots=4 num_parallel_workers=6",
        "num_parallel_workers=6 is more than num_slots=4",
    ),
    "broken syntax": ("agent.hidden=[128,128", "Cannot read the value in 'agent.hidden=[128,128'"),
    "a name without a value": ("seed", "'seed' has no value"),
    "a choice without its group": ("AntDir", "Did you mean 'env=AntDir'?"),
    "an option as a flag": ("--seed 3", "There is no flag --seed"),
    "an option given twice": ("seed=1 seed=2", "seed is given twice"),
    "values without -m": ("seed=0,1,2", "add -m"),
    "the third job of a multirun": ("-m seed=0,1,-2", "seed=-2 is out of range"),
    "a folder that is no run": ("resume=nowhere", "resume=nowhere is not a run folder: it does not exist."),
    "a folder to evaluate that is no run": (
        "evaluate=nowhere",
        "evaluate=nowhere is not a run folder: it does not exist.",
    ),
    "an addition": ("+foo=1", "There is no option 'foo'."),
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to start from, like a user's; this process itself is not to end what it starts."""
    monkeypatch.setattr("utils.processes.jobs.end_with_this_process", lambda: False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def front_door(*words: str, script: str = FAKE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_mistake_is_one_sentence_exit_2_and_nothing_created(
    kind: str, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("something was started or made for a command line with a mistake")

    words, sentence = MISTAKES[kind]
    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", refuse)
    monkeypatch.setattr(subprocess.Popen, "__init__", refuse)
    monkeypatch.setattr(os, "mkdir", refuse)
    monkeypatch.setattr(sys, "argv", ["main.py", *words.split()])
    assert main.main() == 2
    out, err = capsys.readouterr()
    assert sentence in err
    assert (out, err.count("\n")) == ("", 1)
    assert not list(elsewhere.iterdir())


def test_a_mistake_is_said_soon_and_by_the_real_command(elsewhere: Path) -> None:
    """A wrong environment, which is the one mistake that is followed by a list."""
    done = subprocess.run(
        [sys.executable, ROOT / "main.py", "env=AntDri"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    first, *listed = done.stderr.splitlines()
    assert (done.returncode, done.stdout, first) == (2, "", "env=AntDri is not known. Did you mean 'AntDir'?")
    assert [line for line in listed if line.startswith("env=AntDir ")] and "Grid and memory" in listed
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        "env=list",
        "agent=list",
        "memory=list",
        "algorithm=list",
        "backend=list",
        "experiment=list",
        "--help",
        "env=Wind --help",
    ],
)
def test_what_is_only_asked_is_answered_and_nothing_created(
    words: str, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["main.py", *words.split()])
    assert main.main() == 0
    assert capsys.readouterr().out
    assert not list(elsewhere.iterdir())


def test_a_reader_who_has_read_enough_ends_an_answer_quietly() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, str(ROOT / "main.py"), "algorithm=list"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_run_gets_a_folder_with_its_config_which_can_be_resumed_and_evaluated(elsewhere: Path) -> None:
    done = front_door("env=AntDir", "seed=3", "num_parallel_workers=6", "train.n_env_steps_total=500")
    assert done.returncode == 0, done.stderr
    (folder,) = (elsewhere / "outputs" / "AntDir").iterdir()
    assert done.stdout == f"train {folder.name} AntDir 3 500\nclosed\n"

    before = {file for file in elsewhere.rglob("*") if file.is_dir()}
    resumed = front_door(f"resume={folder.relative_to(elsewhere)}", "train.n_env_steps_total=900")
    assert resumed.stdout == f"load\ntrain {folder.name} AntDir 3 900\nclosed\n", resumed.stderr
    assert "n_env_steps_total: 900" in (folder / "config.yaml").read_text()
    evaluated = front_door(f"evaluate={folder.relative_to(elsewhere)}", "evaluation.episodes_per_trial=4")
    assert evaluated.stdout.split()[:4] == ["load", "the", "agent", "closed"], evaluated.stderr
    assert "the last checkpoint: 40 env steps" in evaluated.stdout and "4 episodes" in evaluated.stdout
    assert "episodes_per_trial: null" in (folder / "config.yaml").read_text(), (
        "an evaluation changes nothing in the run"
    )
    assert {file for file in elsewhere.rglob("*") if file.is_dir()} == before


def test_several_runs_are_evaluated_into_one_table_and_one_that_fails_ends_no_other(elsewhere: Path) -> None:
    for seed, name in enumerate(("0", "torn", "1")):
        (elsewhere / "sweep" / name).mkdir(parents=True)
        save(load(["num_slots=4", f"seed={seed}"]), elsewhere / "sweep" / name)
    done = front_door("evaluate=sweep/0,torn,1")
    assert done.returncode == 1 and done.stderr.strip() == "all are damaged", done.stderr
    header, *rows = [line for line in done.stdout.splitlines() if line.split()[0] not in ("load", "closed")][
        :3
    ]
    assert "IQM" in header
    assert [row.split()[:5] for row in rows] == [
        ["0", "seed=0", "last,", "40", "far"],
        ["1", "seed=2", "last,", "40", "far"],
    ]


# Prints a word whenever a config is composed, a family is built or a user's environment is started.
COUNTING = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from hydra._internal.config_loader_impl import ConfigLoaderImpl
import gymnasium
from policies.run import sizes

def counted(owner, name):
    function = getattr(owner, name)
    def count(*args, **keywords):
        print(name)
        return function(*args, **keywords)
    setattr(owner, name, count)

counted(ConfigLoaderImpl, "load_configuration")
counted(sizes, "make_family")
counted(gymnasium, "make")
"""


@pytest.mark.parametrize(
    ("words", "compositions"),
    # The note on what a choice brought with it composes the config without that choice.
    [("env=Gymnasium env.id=CartPole-v1 algorithm=DiscreteSAC", 2), ("env=Wind seed=3", 1)],
)
def test_one_run_composes_its_config_once_and_builds_its_family_once(words: str, compositions: int) -> None:
    done = front_door(*words.split(), script=COUNTING + FAKE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("load_configuration\n") == compositions
    assert done.stdout.count("make_family\n") == 1
    assert done.stdout.count("make\n") == ("Gymnasium" in words)


def test_each_job_of_a_sweep_composes_once_and_builds_its_family_once_after_the_check() -> None:
    done = front_door("-m", "seed=0,1", "env=Wind", script=COUNTING + FAKE)
    assert done.returncode == 0, done.stderr
    first, second, third = done.stdout.split("train ")
    assert (second.count("load_configuration"), second.count("make_family")) == (1, 1)
    assert first.count("make_family") == 3, "once for each job in the check, and once in the first job"
    assert "make_family" not in third


def test_a_multirun_runs_every_job_in_a_folder_of_its_own(elsewhere: Path) -> None:
    done = front_door("-m", "seed=0,1,2", "env=Wind")
    assert done.returncode == 0, done.stderr
    trained = [line.split()[1:4] for line in done.stdout.splitlines() if line.startswith("train")]
    assert trained == [[job, "Wind", job] for job in "012"]
    assert done.stdout.count("No report: ") == 1  # of runs that a learner that only prints has not evaluated
    assert len(list((elsewhere / "multirun" / "Wind").glob("*/[012]/config.yaml"))) == 3


def trained(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The seeds of the runs that were trained, in their order."""
    return [line.split()[3] for line in done.stdout.splitlines() if line.startswith("train")]


def test_a_job_that_fails_does_not_end_a_sweep_and_a_signal_does() -> None:
    done = front_door("-m", "seed=7,1,9,15,2", "env=Wind")
    assert (done.returncode, trained(done)) == (128 + 15, ["7", "1", "9", "15"])


def test_jobs_that_failed_are_named_and_the_sweep_typed_again_makes_what_is_missing(elsewhere: Path) -> None:
    words = ["-m", "seed=7,1,9,8", "env=Wind", "hydra.sweep.dir=sweep"]
    done = front_door(*words)
    assert done.returncode == 1
    assert done.stderr.endswith(
        "Failed: 3 of 4 jobs.\n"
        "  [0] seed=7 env=Wind: no room on the disk\n"
        "  [2] seed=9 env=Wind: critic_loss was nan\n"
        "  [3] seed=8 env=Wind: a fault of ours\n"
        f"Type the sweep again with hydra.sweep.dir={elsewhere}/sweep to go on with what is missing.\n"
    )
    again = front_door(*words)
    assert trained(again) == ["7", "9", "8"]
    assert f"{elsewhere}/sweep/1 is finished already.\n" in again.stdout


@pytest.mark.parametrize(
    ("seed", "code", "text"),
    [(15, 128 + 15, ""), (7, 1, "no room on the disk\n"), (9, 1, "critic_loss was nan\n")],
    ids=["a signal", "an error of the machine", "a loss that is none"],
)
def test_an_end_has_its_exit_code_and_no_traceback(seed: int, code: int, text: str) -> None:
    done = front_door(f"seed={seed}")
    assert (done.returncode, done.stderr) == (code, text)
    assert done.stdout.endswith("closed\n")


def test_a_fault_of_ours_keeps_its_traceback_and_leaves_it_in_the_run_folder(elsewhere: Path) -> None:
    done = front_door("seed=8")
    assert done.returncode == 1
    assert "ZeroDivisionError: a fault of ours" in done.stderr
    (written,) = elsewhere.rglob("error.log")
    assert "ZeroDivisionError: a fault of ours" in written.read_text()
