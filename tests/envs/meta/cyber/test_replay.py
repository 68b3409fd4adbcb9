"""Recorded episodes of CybORG 2.1, replayed without a mismatch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from envs.meta.cyber.attackers import Attacker
from envs.meta.cyber.replay import RecordedEpisodes, attacker_of, main, rules_of

# Up to 30 episodes of each kind, those with rare events first. They are data of the real simulator.
RECORDED = Path(__file__).parent / "recorded"
FILES = sorted(RECORDED.glob("*.npz"))


def load(file: Path) -> dict[str, NDArray[Any]]:
    with np.load(file) as recorded:
        return dict(recorded)


def replay_of(file: Path, recorded: dict[str, NDArray[Any]], **options: str) -> RecordedEpisodes:
    name = file.stem
    return RecordedEpisodes(recorded, rules_of(name, **options), attacker_of(name), "green" in name)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_recorded_episodes_are_replayed_step_by_step(file: Path):
    assert replay_of(file, load(file)).first_mismatch() is None


def test_there_are_episodes_of_every_attacker_policy_and_version():
    names = {file.stem for file in FILES}
    policies = {"random", "sleep", "mixed", "restore_decoy", "mixed__green"}
    assert {f"{red.name}__{policy}" for red in Attacker for policy in policies} <= names
    versions = {
        f"{version}__{red}__mixed"
        for version in ("era2022", "cardiffwrapper")
        for red in ("bline", "meander")
    }
    assert versions <= names


def test_the_recorded_episodes_contain_what_is_rare():
    bline = load(RECORDED / "bline__remove_analyse.npz")["bline_state"].astype(int)
    assert ((bline[:, 1:] == 1) & (bline[:, :-1] == 11)).any(), "sent back to the user host"
    meander = load(RECORDED / "meander__mixed.npz")
    assert ((meander["red_act"] == 1) & (meander["red_success"] == 0)).any(), "a failed sweep"


@pytest.mark.parametrize(
    "what", ["obs", "rew10", "red_success", "level", "decoys", "red_ports", "malware", "op", "bline_state"]
)
def test_a_changed_number_is_found_where_it_is(what: str):
    file = RECORDED / "bline__mixed.npz"
    recorded = load(file)
    # A bit that is in the numbers: the first of 52 of an observation.
    recorded[what][3, 40] ^= np.asarray(128 if what == "obs" else 1, recorded[what].dtype)
    mismatch = replay_of(file, recorded).first_mismatch()
    assert mismatch is not None
    assert (mismatch.episode, mismatch.step, mismatch.what) == (3, 40, what)
    assert str(mismatch).startswith(f"episode 3, step 40: {what} was recorded as ")


def test_a_choice_that_meander_cannot_make_is_found():
    file = RECORDED / "meander__mixed.npz"
    recorded = load(file)
    # Its second action scans a user host; the server's address is not known yet.
    recorded["red_target"][2, 1] = 7
    mismatch = replay_of(file, recorded).first_mismatch()
    assert mismatch is not None and (mismatch.episode, mismatch.step, mismatch.what) == (2, 1, "red_target")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("era2022__bline__mixed", {"era": "head"}),
        ("era2022__meander__mixed", {"era": "head"}),
        ("cardiffwrapper__bline__mixed", {"wrapper": "challenge"}),
        ("bline__random", {"era": "2022"}),
    ],
)
def test_under_other_rules_the_episodes_differ(name: str, options: dict[str, str]):
    file = RECORDED / f"{name}.npz"
    assert replay_of(file, load(file), **options).first_mismatch() is not None


def test_the_command_says_how_many_steps_agree_and_where_the_first_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    right = RECORDED / "sleep__mixed.npz"
    assert main([str(right)]) == 0
    assert capsys.readouterr().out == f"{right}: 3,000 steps agree\n"
    recorded = load(right)
    recorded["rew10"][1, 2] -= 7
    wrong = tmp_path / "sleep__wrong.npz"
    np.savez(wrong, allow_pickle=False, **recorded)
    assert main([str(wrong), str(right)]) == 1
    assert "sleep__wrong.npz: episode 1, step 2: rew10 was recorded as" in capsys.readouterr().out


def test_options_go_before_the_name_of_the_file(capsys: pytest.CaptureFixture[str]):
    assert main([str(RECORDED / "era2022__bline__mixed.npz"), "--era", "head"]) == 1
    assert main([str(RECORDED / "bline__mixed__green.npz"), "--no-green"]) == 1
    assert "obs was recorded as" in capsys.readouterr().out
