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
    is_current,
    is_enough,
    kept_agent,
    load_entry,
    minutes_left,
    store,
    store_minutes,
)
from configs.compose import load
from policies.learner import Learner
from policies.play.record import AgentRecord
from policies.run.forecast import MINUTES
from tests.runs import metrics_of, stop_at

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
    assert minutes_left(first, runs, 45.0) == 1.5 and minutes_left(first, {}, 45.0) == 2.0
    changed = replace(first, entry=replace(GAME, words=("env=RepeatedGame", "algorithm.learning_rate=1e-5")))
    assert not is_current(changed, runs) and not is_enough(changed, runs, 45.0)


def test_a_run_that_was_ended_by_its_limit_is_left_until_it_has_had_its_minutes(tmp_path: Path) -> None:
    (job,) = jobs_of(replace(GAME, minutes=4.0, beside=()))
    assert not is_enough(job, {}, 1.0) and minutes_left(job, {}, 3.0) == 3.0
    start = recorded(job, -12.5, -9.5)
    start.run.ended = learn.LIMIT
    runs = {job.label: start}
    assert is_enough(job, runs, 1.6) and not is_enough(job, runs, 2.0)
    assert minutes_left(job, runs, 2.0, had=1.5) == 0.5 and minutes_left(job, runs, 45.0, had=1.5) == 2.5
    # Its folder is not there, or it has other settings by now: it begins anew.
    assert minutes_left(job, runs, 45.0) == 4.0
    # The start of a run does not take the place of more of it.
    assert store(job, recorded(job, -12.5, -9.5), tmp_path)
    start.run.env_steps = 150
    assert not store(job, start, tmp_path)
    assert load_entry(job.entry, tmp_path)[job.label].is_whole
    store_minutes([job.entry], tmp_path)
    store(job, replace(start, digest="other settings"), tmp_path)
    assert not load_entry(job.entry, tmp_path)[job.label].is_whole


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
    assert "\n200 env steps, 1.5 minutes of a core; commit abc1234." in text and "**Recorded" not in text
    runs[first.label].run.ended = learn.LIMIT
    assert "As far as it was recorded: 200 env steps of 1,000,000, 1.5 min" in pages.zoo_page([GAME])
    runs[control.label].digest = "of before"
    assert "**Recorded with other settings than today's: Markov seed 0.**" in pages.zoo_page([GAME])


def test_the_last_episode_is_measured_between_random_actions_and_who_is_given_the_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entry = replace(GAME, beside=("Markov", "informed"), searching="-13", published=(("a paper", "-11"),))
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
    assert "| a script that is told nothing | -13 |" in text
    for run in runs.values():
        run.levels["oracle"] = -9.0
    assert "has 0.50 of the way from random actions to the oracle.\n" in pages.zoo_page([entry])


def test_three_seeds_are_an_interval_and_many_episodes_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = replace(GAME, seeds=(0, 1, 2), beside=())
    runs = {job.label: recorded(job, *(10.0 * job.seed + t for t in range(9))) for job in jobs_of(entry)}
    monkeypatch.setattr(pages, "load_entry", lambda _: runs)
    text = pages.zoo_page([entry])
    assert "| the agent, 3 seeds |" in text and "10 [0, 20], 11 [1, 21], 12 [2, 22], ..., 18 [8, 28]" in text


def test_runs_that_were_not_recorded_as_far_are_compared_where_both_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entry = replace(GAME, seeds=(0, 1))
    first, second, control = jobs_of(entry)
    runs = {job.label: recorded(job, -12.0, -10.0) for job in (first, second, control)}
    for job, env_steps in ((second, 300), (control, 500)):
        runs[job.label].run.curve.append(Point(env_steps, 3.0, 0.0, 3, [-2.0, -1.0], 120.0))
    monkeypatch.setattr(pages, "load_entry", lambda _: runs)
    text = pages.zoo_page([entry])
    assert "| the agent, 2 seeds | **-12, -10** |" in text
    assert "| a Markov agent, seed 0, 500 env steps | -2, -1 |" in text and "\n200 env steps, 1.5 min" in text


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
    assert [job.entry.name for _, job in command.left_to_record([GAME, short], 45.0)][:2] == ["Short"] * 2
    monkeypatch.setattr(records, "KEPT", ("Short",))
    kept = tmp_path / "kept"
    found, folder = command.record(jobs_of(short)[0], Console(quiet=True), 45.0)
    records.keep_agent(jobs_of(short)[0], folder, kept)
    agent = AgentRecord.load(kept / "Short.pt")
    assert agent.env_steps == found.last.env_steps
    control, other = jobs_of(short)[-1], replace(jobs_of(short)[0], entry=replace(short, name="Other"))
    assert control.companion == "Markov"
    for job in (control, other):
        records.keep_agent(job, Path("nowhere"), tmp_path / "more")
    assert not (tmp_path / "more").exists()
    assert found.last.env_steps >= 3000 and len(found.last.returns) == 2
    assert set(found.levels) == {"oracle", "random"} and found.digest == digest(short.words)


@pytest.mark.slow
def test_a_run_that_was_ended_by_its_limit_goes_on_as_if_it_had_not_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = ("train.n_env_steps_total=4000", "train.num_env_steps_per_iter=800", "num_slots=8")
    words = ("env=RepeatedGame", "evaluation.every=1000", *sizes)
    (job,) = jobs_of(Entry("Short", words, 1.0, beside=()))
    monkeypatch.setattr(command, "FOLDER", tmp_path / "whole")
    whole, _ = command.record(job, Console(quiet=True), 45.0)
    assert whole.is_whole and records.unfinished(job, tmp_path / "whole") is None
    folder = tmp_path / "parts" / f"{records.name_of(job)}_seed0_of_before"
    with Learner(load([*words, "seed=0", "wandb.mode=disabled"]), folder) as learner:
        stop_at(learner, "update")
        learner.train()
    lines = metrics_of(folder)
    start = replace(
        whole.run,
        curve=[point for point in whole.run.curve if point.env_steps <= lines[-1]["env_steps"]],
        ended=learn.LIMIT,
        env_steps=lines[-1]["env_steps"],
        processor_s=600.0,
        wall_s=700.0,
    )
    records.save_beside(replace(whole, run=start), folder)
    monkeypatch.setattr(command, "FOLDER", tmp_path / "parts")
    # It has had its minutes: nothing is played.
    assert command.record(job, Console(quiet=True), 10.0)[0].run.env_steps == start.env_steps
    found, _ = command.record(job, Console(quiet=True), 45.0)
    assert [entry.name for entry in (tmp_path / "parts").iterdir()] == [folder.name] and found.is_whole
    curves = [[(one.env_steps, one.returns) for one in run.run.curve] for run in (found, whole)]
    assert curves[0] == curves[1] and len(curves[0]) > len(start.curve) > 0
    assert found.minutes > 10 and found.run.wall_s > 700 and found.last.processor_s > 600
    # Somebody went on with it without the zoo: its record is not that of the folder any more.
    records.save_beside(replace(whole, run=start), folder)
    assert records.unfinished(job, tmp_path / "parts") is None


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
