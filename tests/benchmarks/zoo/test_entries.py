"""Entries of the zoo: every family has one, and a digest is that of what is learned."""

from __future__ import annotations

import pytest

from benchmarks.zoo.entries import ENTRIES, INFORMED, LEFT_OUT, MARKOV, Entry, digest, is_installed, jobs_of
from configs.compose import composed_settings
from envs.meta import FAMILIES


def test_every_family_has_an_entry_or_a_reason() -> None:
    # Families of packages that are not installed are missing here, and their entries have their names.
    needed = {one.name for one in ENTRIES if one.needs is not None}
    played = {composed_settings(one.words)["env"]["family"] for one in ENTRIES if one.needs is None}
    assert set(FAMILIES) <= played | set(LEFT_OUT) | needed and not (played | needed) & set(LEFT_OUT)
    names = [entry.name for entry in ENTRIES]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("entry", [one for one in ENTRIES if is_installed(one)], ids=lambda one: one.name)
def test_the_command_of_an_entry_and_of_its_control_can_be_composed(entry: Entry) -> None:
    for job in jobs_of(entry):
        composed = composed_settings([*job.words, f"seed={job.seed}"])
        assert (composed["agent"]["arch"] == "Markov") == (job.companion == MARKOV) or not entry.beside
        assert composed["env"]["oracle"] == (job.companion == INFORMED)


def test_a_digest_changes_with_what_is_learned_and_with_nothing_else() -> None:
    words = ["env=RepeatedGame"]
    same = [["seed=3"], ["num_parallel_workers=2"], ["backend=serial"], ["evaluation.every=1000"]]
    other = [
        ["env.max_episode_steps=3"],
        ["algorithm.learning_rate=1e-5"],
        ["agent=Markov"],
        ["train.n_env_steps_total=99"],
    ]
    assert {digest([*words, *more]) for more in same} == {digest(words)}
    assert len({digest(words), *(digest([*words, *more]) for more in other)}) == 1 + len(other)
