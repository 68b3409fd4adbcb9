"""A search is checked as a whole before its folder is made: options, ends of the space, and the folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from configs import cli
from configs.search import command, study
from configs.search.command import SearchCommand
from utils.options import OptionError

TINY = ("env.max_episode_steps=6", "train.n_env_steps_total=600", "evaluation.every=200", "backend=serial")
RATE = "algorithm.learning_rate=tag(log,interval(1e-4,1e-2))"


@pytest.fixture
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Optuna, which reading a command does not need, counts as installed."""
    monkeypatch.setattr(command, "check_optuna", lambda: None)


def read(folder: Path, *words: str) -> SearchCommand:
    found = cli.read([f"search={folder}", *TINY, *words])
    assert found.mode == "search" and found.search is not None
    return found.search


MISTAKES = {
    "algorithm.learning_rate=1e-3": "has nothing to try",
    "algorithm.learning_rat=choice(1,2)": "Did you mean 'algorithm.learning_rate'",
    "algorithm.learning_rate=interval(-1,1)": "algorithm.learning_rate=-1.0 is out of range",
    "memory.hidden_size=interval(16,64)": r"memory.hidden_size=16.0 should be a whole number",
    "algorithm=choice(SAC,SAX)": "algorithm=SAX is not known. Did you mean 'SAC'",
    f"{RATE} seed=0,1": "a seed is no setting to choose",
    f"{RATE} search.trails=3": "search has no option 'trails'. Did you mean 'trials'",
    f"{RATE} search.trials=0": "must be at least 1",
    f"{RATE} search.hours=1,2": "search.hours=1,2 gives several values",
    f"{RATE} search.objective=best": "Known: last_episode, trial",
    f"{RATE} search=elsewhere": "search is given twice",
    f"{RATE} hydra.run.dir=elsewhere": "leave out hydra.run.dir=elsewhere",
    f"{RATE} resume=elsewhere": "leave out resume=.",
    f"{RATE} -m": "leave out -m",
}


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_a_sentence_and_leaves_nothing(words: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=MISTAKES[words]):
        read(tmp_path / "study", *words.split())
    assert not list(tmp_path.iterdir())


def test_without_optuna_the_line_that_installs_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(OptionError, match=r"pip install -c requirements.txt '.\[search\]'"):
        read(tmp_path / "study", RATE)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("_installed")
def test_options_without_a_folder_are_refused() -> None:
    with pytest.raises(OptionError, match="needs the folder of the study"):
        cli.read(["search.trials=3", RATE])


@pytest.mark.usefixtures("_installed")
def test_a_search_has_a_number_of_runs_unless_it_has_hours(tmp_path: Path) -> None:
    mosts = [
        read(tmp_path / "study", RATE, *more).options.most
        for more in ([], ["search.trials=3"], ["search.hours=2"], ["search.hours=2", "search.trials=7"])
    ]
    assert mosts == [command.RUNS, 3, None, 7]


@pytest.mark.usefixtures("_installed")
def test_a_run_has_its_own_values_what_was_typed_for_all_and_its_folder(tmp_path: Path) -> None:
    search = read(tmp_path / "study", RATE, "algorithm=choice(SAC,TD3)")
    composed = search.compose({"algorithm": "TD3", "algorithm.learning_rate": 0.003}, "4")
    assert composed.algorithm.name == "TD3" and composed.algorithm.learning_rate == 0.003
    assert composed.env.max_episode_steps == 6
    assert composed.hydra.run.dir == str(tmp_path / "study" / "4")


@pytest.mark.usefixtures("_installed")
def test_the_same_search_is_let_in_again_and_another_one_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    read(folder, RATE).claim()
    # More runs, and other workers, are the same search; the order of words says nothing.
    read(folder, "num_parallel_workers=1", RATE, "search.trials=50")
    others = {
        "algorithm.learning_rate=interval(1e-4,1e-2)": "holds another search, with space",
        f"{RATE} train.num_rollouts_per_iter=3": "holds another search, with options",
        f"{RATE} search.seed=1": "with seed 0, and this one has 1",
        f"{RATE} search.objective=trial": "with objective last_episode, and this one has trial",
    }
    for words, sentence in others.items():
        with pytest.raises(OptionError, match=sentence):
            read(folder, *words.split())
    # The length of the runs may grow in a resume, but runs of two lengths cannot be compared.
    with pytest.raises(OptionError, match="holds another search, with options"):
        cli.read([f"search={folder}", *TINY[:1], "train.n_env_steps_total=900", *TINY[2:], RATE])


@pytest.mark.usefixtures("_installed")
def test_a_folder_with_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").touch()
    with pytest.raises(OptionError, match="holds something else than a search"):
        read(tmp_path, RATE)


@pytest.mark.usefixtures("_installed")
def test_who_wants_runs_to_be_stopped_early_is_told_where_that_cannot_be(tmp_path: Path) -> None:
    folder = f"search={tmp_path / 'study'}"
    common = [folder, *TINY[:2], RATE]
    assert any("it is evaluated once" in note for note in cli.read([*common, "evaluation.every=600"]).notes)
    assert not cli.read([*common, "evaluation.every=200"]).notes
    assert not cli.read([*common, "evaluation.every=600", "search.prune=false"]).notes
