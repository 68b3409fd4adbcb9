"""Records of the zoo: kept run by run, stale when the settings change, and shown on the page as they are."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import learn
from benchmarks.parts.curves import Point
from benchmarks.zoo import __main__ as command
from benchmarks.zoo import page as pages
from benchmarks.zoo import records
from benchmarks.zoo.entries import ENTRIES, Entry, Recording, digest, jobs_of
from benchmarks.zoo.records import (
    Recorded,
    commit,
    expected_minutes,
    is_current,
    kept_agent,
    load_entry,
    store,
    store_minutes,
)
from policies.play.record import AgentRecord
from policies.run.forecast import MINUTES

GAME = Entry("RepeatedGame", ("env=RepeatedGame",), 2.0)


def recorded(job: Recording, *returns: float) -> Recorded:
    """A record of today's settings, whose last evaluation had these returns."""
    points = [Point(100, 1.0, 0.0, 1, [0.0] * len(returns)), Point(200, 2.0, 0.0, 2, list(returns), 90.0)]
    run = learn.Run(
        job.entry.name, job.seed, [], [], None, points, "env steps", 3.0, 200, 2, 100.0, 1.0, {}, 0.0, ""
    )
    return Recorded(run, digest(job.words), "abc1234", f"{job.words}", {"random": -15.0})


def test_runs_are_kept_one_by_one_and_are_stale_when_settings_change(tmp_path: Path) -> None:
    first, control = jobs_of(GAME)
    assert not is_current(first, load_entry(GAME, tmp_path))
    store(first, recorded(first, -12.5, -9.5), tmp_path)
    store(control, recorded(control, -13.0, -13.0), tmp_path)
    runs = load_entry(GAME, tmp_path)
    assert runs == {
        one.label: recorded(one, *of) for one, of in ((first, (-12.5, -9.5)), (control, (-13.0, -13.0)))
    }
    assert is_current(first, runs) and is_current(control, runs)
    assert expected_minutes(first, runs) == 1.5 and expected_minutes(first, {}) == 2.0
    changed = replace(first, entry=replace(GAME, words=("env=RepeatedGame", "algorithm.learning_rate=1e-5")))
    assert not is_current(changed, runs)


def test_the_page_shows_returns_by_episode_and_says_what_is_stale_or_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, control = jobs_of(GAME)
    runs = {first.label: recorded(first, -12.5, -9.5), control.label: recorded(control, -13.0, -13.25)}
    missing = Entry("Wind", ("env=Wind",), 4.0)
    monkeypatch.setattr(pages, "load_entry", lambda entry: runs if entry is GAME else {})
    text = pages.zoo_page([GAME, missing])
    for part in ("**-12.5, -9.5**", "-13, -13.25", "| random | -15 |", "- Wind: `python main.py env=Wind`"):
        assert part in text
    assert "1.5 minutes of a core; commit abc1234." in text and "**Recorded" not in text
    runs[control.label].digest = "of before"
    assert "**Recorded with other settings than today's: Markov seed 0.**" in pages.zoo_page([GAME])


def test_the_last_episode_is_measured_between_random_actions_and_who_is_given_the_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entry = replace(GAME, beside=("Markov", "informed"), published=(("a paper", "-11"),))
    first, control, informed = jobs_of(entry)
    assert informed.words == (*GAME.words, "env.oracle=true") and informed.label == "informed seed 0"
    runs = {first.label: recorded(first, -14.0, -12.0), control.label: recorded(control, -13.0, -13.0)}
    monkeypatch.setattr(pages, "load_entry", lambda _: runs)
    assert "of the way" not in pages.zoo_page([entry])
    runs[informed.label] = recorded(informed, -11.0, -10.0)
    text = pages.zoo_page([entry])
    # From -15 to -10, and -12 lies between them.
    assert "The last episode has 0.60 of the way from random actions to the informed agent.\n" in text
    assert "| an informed agent, seed 0 | -11, -10 |" in text and "| a paper | -11 |" in text
    for run in runs.values():
        run.levels["oracle"] = -9.0
    assert "has 0.50 of the way from random actions to the oracle.\n" in pages.zoo_page([entry])


def test_three_seeds_are_an_interval_and_many_episodes_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = replace(GAME, seeds=(0, 1, 2), beside=())
    runs = {job.label: recorded(job, *(10.0 * job.seed + t for t in range(9))) for job in jobs_of(entry)}
    monkeypatch.setattr(pages, "load_entry", lambda _: runs)
    text = pages.zoo_page([entry])
    assert "| the agent, 3 seeds |" in text and "10 [0, 20], 11 [1, 21], 12 [2, 22], ..., 18 [8, 28]" in text


def test_curves_are_drawn_the_same_every_time(tmp_path: Path) -> None:
    first, control = jobs_of(GAME)
    runs = {first.label: recorded(first, -12.5, -9.5), control.label: recorded(control, -13.0, -13.0)}
    pages.draw_entry(GAME, runs, tmp_path / "one")
    pages.draw_entry(GAME, runs, tmp_path / "two")
    texts = [(tmp_path / name / "RepeatedGame.svg").read_text() for name in ("one", "two")]
    assert texts[0] == texts[1]
    assert all(word in texts[0] for word in ("episode 1", "episode 2", "Markov", "random"))


@pytest.mark.slow
def test_the_cheapest_is_recorded_first_and_a_run_is_recorded_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real run of a few iterations, as `python -m benchmarks.zoo` plays it."""
    monkeypatch.setattr(command, "FOLDER", tmp_path)
    monkeypatch.setattr(command, "load_entry", lambda _: {})
    short = Entry("Short", ("env=RepeatedGame", "train.n_env_steps_total=3000", "evaluation.every=1000"), 1.0)
    assert [job.entry.name for job in command.left_to_record([GAME, short])][:2] == ["Short", "Short"]
    monkeypatch.setattr(records, "KEPT", ("Short",))
    kept = tmp_path / "kept"
    monkeypatch.setattr(command, "keep_agent", lambda job, run: records.keep_agent(job, run, kept))
    found = command.record(jobs_of(short)[0], Console(quiet=True))
    agent = AgentRecord.load(kept / "Short.pt")
    assert agent.env_steps == found.last.env_steps
    control, other = jobs_of(short)[-1], replace(jobs_of(short)[0], entry=replace(short, name="Other"))
    assert control.companion == "Markov"
    for job in (control, other):
        records.keep_agent(job, Path("nowhere"), tmp_path / "more")
    assert not (tmp_path / "more").exists()
    assert found.last.env_steps >= 3000 and len(found.last.returns) == 2
    assert set(found.levels) == {"oracle", "random"} and found.digest == digest(short.words)


def test_runs_of_the_same_settings_tell_their_mean_time(tmp_path: Path) -> None:
    entry = replace(GAME, seeds=(0, 1), beside=())
    first, second = jobs_of(entry)
    slow = recorded(second, -12.5, -9.5)
    slow.run.curve[-1] = replace(slow.last, processor_s=150.0)
    store(first, recorded(first, -12.5, -9.5), tmp_path)
    store(second, slow, tmp_path)
    store_minutes([entry], tmp_path)
    assert json.loads((tmp_path / MINUTES.name).read_text()) == {f"{first.words}": 2.0}


def test_the_page_in_the_docs_is_that_of_the_records() -> None:
    """If this fails, settings of recorded runs have changed: `python -m benchmarks.zoo --show` names them."""
    assert pages.PAGE.read_text(encoding="utf-8") == pages.zoo_page()


def test_a_commit_is_marked_as_changed_by_code_and_not_by_records(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("main.py", "benchmarks/results/zoo.json", "docs/zoo.md")}
    for file in files.values():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("before")
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], [*author, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    clean = commit(tmp_path)
    assert len(clean) == 7
    files["benchmarks/results/zoo.json"].write_text("a record")
    files["docs/zoo.md"].write_text("a page")
    assert commit(tmp_path) == clean
    files["main.py"].write_text("other code")
    assert commit(tmp_path) == clean + "+"


def test_the_agents_of_the_project_are_small_and_can_be_evaluated_by_name() -> None:
    kept = [entry for entry in ENTRIES if kept_agent(entry).exists()]
    assert {entry.name for entry in kept} <= set(records.KEPT) <= {entry.name for entry in ENTRIES}
    for entry in kept:
        assert kept_agent(entry).stat().st_size <= records.MOST_AGENT_BYTES
        assert AgentRecord.load(kept_agent(entry)).env_steps > 0
