"""A run folder gives its config back, and lets only some of it change."""

from __future__ import annotations

from pathlib import Path

import pytest

from configs.compose import MODES, Composer, load
from configs.runs import MAY_CHANGE, continued, evaluated, load_run, run_folders
from policies.run.config import RECORD, Config, save
from utils.options import OptionError

STARTED = [
    "env=AntDir",
    "agent=Markov",
    "env.variant=circle",
    "backend.call_timeout_s=9",
    "train.n_env_steps_total=5000",
    "agent.hidden=[8,8]",
]


@pytest.fixture
def run_dir(composer: Composer, tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    save(composer.config(composer.parse(STARTED)), folder)
    return folder


def again(composer: Composer, run_dir: Path, words: str = "", mode: str = "resume") -> Config:
    return continued(composer, mode, composer.parse([f"{mode}={run_dir}", *words.split()])).config


@pytest.mark.parametrize("mode", MAY_CHANGE)
def test_a_run_comes_back_as_it_was(composer: Composer, run_dir: Path, mode: str) -> None:
    assert again(composer, run_dir, mode=mode) == composer.config(composer.parse(STARTED))


def test_scripts_get_the_config_of_a_run_by_its_folder(tmp_path: Path) -> None:
    save(load(STARTED), tmp_path)
    config, folder = load_run(tmp_path, ["evaluation.episodes_per_trial=4"])
    assert folder == tmp_path and config.evaluation.episodes_per_trial == 4
    config.evaluation.episodes_per_trial = None
    assert config == load(STARTED)


def test_words_may_be_one_text_and_another_way_is_refused(tmp_path: Path) -> None:
    assert load("env=Wind seed=3") == load(["env=Wind", "seed=3"])
    with pytest.raises(OptionError, match=r"mode='resum' is not known\. Did you mean 'resume'"):
        load_run(tmp_path, mode="resum")


@pytest.mark.parametrize("mode", MODES)
def test_a_script_that_loads_a_run_as_if_it_were_new_is_told_how(mode: str, tmp_path: Path) -> None:
    assert mode in MAY_CHANGE
    with pytest.raises(OptionError, match=r"configs\.runs\.load_run"):
        load([f"{mode}={tmp_path}"])


def test_a_folder_is_taken_from_where_one_stands(
    composer: Composer, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run_dir.parent)
    assert continued(composer, "resume", composer.parse(["resume=run"])).run_dir == run_dir


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("resume", "num_parallel_workers=3"),
        ("resume", "backend=process num_parallel_workers=2"),
        ("resume", "backend.call_timeout_s=3 num_parallel_workers=2 backend=process"),
        ("resume", "backend.call_timeout_s=3 checkpoint_every=7 profile=true wandb.mode=disabled"),
        ("resume", "train.n_env_steps_total=6000"),
        ("resume", "env=AntDir agent=Markov env.variant=circle"),
        (
            "evaluate",
            "evaluation.episodes_per_trial=4 evaluation.stochastic=true num_parallel_workers=2 device=cpu",
        ),
        ("evaluate", "env.num_eval_tasks=200 env.max_episode_steps=50 env.max_rollouts_per_task=3"),
    ],
)
def test_what_may_change_changes(composer: Composer, run_dir: Path, mode: str, words: str) -> None:
    changed = again(composer, run_dir, words, mode)
    expected = [
        word for word in STARTED if word.split("=")[0] not in {given.split("=")[0] for given in words.split()}
    ] + words.split()
    if "backend=" in words and "backend.call_timeout_s" not in words:
        expected.remove("backend.call_timeout_s=9")  # another backend comes with its own settings
    assert changed == composer.config(composer.parse(expected))


@pytest.mark.parametrize(
    ("mode", "words", "sentence"),
    [
        (
            "resume",
            "seed=3",
            "seed=3 cannot change with resume=: the run has seed=0. "
            "What may change: num_parallel_workers, backend.*",
        ),
        ("resume", "env=Wind", "env=Wind cannot change with resume=: the run has env=AntDir."),
        ("resume", "env=AntDri", "Did you mean 'AntDir'?"),
        ("resume", "agent=Memory", "agent=Memory cannot change with resume=: the run has agent=Markov."),
        ("resume", "experiment=semi_circle", "the run has its options already"),
        ("resume", "train.n_env_steps_total=4000", "less than the 5000 env steps"),
        ("resume", "num_slots=3", "num_slots=3 cannot change"),
        ("resume", "evaluation.every=3", "evaluation.every=3 cannot change"),
        ("resume", "sed=3", "Did you mean 'seed'?"),
        ("resume", "seed=1,2", "resume= is one run"),
        ("resume", "num_parallel_workers=2 backend=serial", "contradicts it"),
        ("resume", "env.num_eval_tasks=3", "env.num_eval_tasks=3 cannot change"),
        ("evaluate", "train.n_env_steps_total=9000", "cannot change with evaluate="),
        ("evaluate", "env.num_train_tasks=3", "What may change: env.* (but env.num_train_tasks), num_p"),
        ("evaluate", "env.oracle=true", "the observations are Box("),
        ("evaluate", "evaluation.tasks=gone.json", "evaluation.tasks=gone.json cannot be read"),
        ("evaluate", "evaluation.episodes_per_trial=0", "out of range"),
    ],
)
def test_anything_else_is_refused_by_name(
    composer: Composer, run_dir: Path, mode: str, words: str, sentence: str
) -> None:
    with pytest.raises(OptionError) as caught:
        again(composer, run_dir, words, mode)
    assert sentence in str(caught.value)


def test_a_folder_that_is_no_run_is_refused_with_the_nearest_that_is(
    composer: Composer, run_dir: Path
) -> None:
    for folder, sentence in (
        (run_dir.parent / "rum", f"it does not exist. Did you mean '{run_dir}'?"),
        (run_dir.parent / "elsewhere" / "run", "it does not exist."),
        (run_dir.parent, "it holds runs (run): name one of them."),
        (run_dir / RECORD, f"it has no {RECORD}."),
    ):
        with pytest.raises(OptionError) as caught:
            again(composer, folder)
        assert str(caught.value).endswith(sentence)


def test_saving_leaves_one_file(composer: Composer, run_dir: Path) -> None:
    save(again(composer, run_dir, "profile=true"), run_dir)
    assert [file.name for file in run_dir.iterdir()] == [RECORD]
    assert again(composer, run_dir).profile


@pytest.mark.parametrize("name", ["lr=0.1,seed=2", "run(1)", "it's", "a,b", "two words", "[1]", "${seed}"])
@pytest.mark.parametrize("mode", MAY_CHANGE)
def test_a_run_folder_is_taken_as_it_is_typed(
    composer: Composer, tmp_path: Path, mode: str, name: str
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    save(composer.config([]), folder)
    run = continued(composer, mode, composer.parse([f"{mode}={folder}"]))
    assert run.run_dir == folder


def test_runs_to_evaluate_are_named_one_by_one_or_as_a_sweep(
    composer: Composer, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`0,1` beside each other, whole paths, or the folder above them; 10 comes after 2."""
    text, sweep = (run_dir / RECORD).read_text(), run_dir.parent / "sweep"
    for number in ("0", "2", "10"):
        (sweep / number).mkdir(parents=True)
        (sweep / number / RECORD).write_text(text)
    monkeypatch.chdir(run_dir.parent)
    for given, names in {
        "run": ["run"],
        "sweep/0,10": ["sweep/0", "sweep/10"],
        "[sweep/0, sweep/10]": ["sweep/0", "sweep/10"],
        "sweep/2,sweep/2,run/": ["sweep/2", "sweep/run"],
        "sweep": ["sweep/0", "sweep/2", "sweep/10"],
    }.items():
        assert run_folders(given) == list(map(Path, names))
    runs = evaluated(composer, composer.parse(["evaluate=sweep", "env.num_eval_tasks=7"]))
    assert [run.run_dir.name for run in runs] == ["0", "2", "10"]
    assert {run.config.env.num_eval_tasks for run in runs} == {7}
    with pytest.raises(OptionError, match="sweep/1 is not a run folder: it does not exist"):
        evaluated(composer, composer.parse(["evaluate=sweep/0,1"]))


def test_a_folder_without_runs_is_named_as_it_was_typed(composer: Composer, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=rf"evaluate={tmp_path} is not a run folder: it has no config"):
        evaluated(composer, composer.parse([f"evaluate={tmp_path}"]))


@pytest.mark.parametrize("option", ["hydra.run.dir", "hydra.sweep.dir"])
@pytest.mark.parametrize(
    ("mode", "sentence"),
    [
        ("resume", "A run is resumed in its own folder: leave out {option}=X."),
        (
            "evaluate",
            "An evaluation has no folder of its own choice, since it writes into that of its run, or for an "
            "agent's file into a new one below outputs/agents: leave out {option}=X.",
        ),
    ],
)
def test_a_run_on_disk_takes_no_other_folder(
    composer: Composer, run_dir: Path, mode: str, option: str, sentence: str
) -> None:
    with pytest.raises(OptionError) as caught:
        again(composer, run_dir, f"{option}=X", mode)
    assert str(caught.value) == sentence.format(option=option)


def test_a_number_where_a_file_of_tasks_is_named_is_told_the_option(
    composer: Composer, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run_dir.parent)
    with pytest.raises(OptionError, match=r"a file of tasks: their number is env\.num_eval_tasks=30\."):
        again(composer, run_dir, "evaluation.tasks=30", "evaluate")
    (run_dir.parent / "30").touch()
    with pytest.raises(OptionError, match=r"evaluation\.tasks=30 cannot be read as JSON"):
        again(composer, run_dir, "evaluation.tasks=30", "evaluate")


def test_a_mistake_of_that_kind_makes_no_folder_for_an_agents_file(
    composer: Composer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match=r"below outputs/agents: leave out hydra\.run\.dir=X\."):
        evaluated(composer, composer.parse(["evaluate=zoo/CyberDefence", "hydra.run.dir=X"]))
    assert not list(tmp_path.iterdir())
