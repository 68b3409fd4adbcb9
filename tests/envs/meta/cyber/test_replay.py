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
    assert "green_act was recorded as 1 and is replayed as 0" in capsys.readouterr().out


# -- what must not pass --------------------------------------------------------------------------------------


def changed(tmp_path: Path, name: str, source: str = "", **arrays: Any) -> Path:
    """A copy of a recorded file under another name, with some of its arrays replaced."""
    file = tmp_path / f"{name}.npz"
    np.savez(file, allow_pickle=False, **(load(RECORDED / f"{source or name}.npz") | arrays))
    return file


def test_red_that_acts_is_no_sleeper(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main([str(changed(tmp_path, "sleep__mixed", "bline__mixed"))]) == 1
    assert "episode 0, step 0: red_act was recorded as 1 and is replayed as 0" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["bline__mixed", "meander__mixed", "era2022__bline__mixed", "nobody__mixed"])
def test_an_exploit_that_the_known_ports_do_not_offer_is_found(name: str):
    file = RECORDED / f"{name.replace('nobody', 'bline')}.npz"
    recorded = load(file)
    # An exploit that fails without a trace, so that nothing else can tell: SQL where no database is known.
    lost = (recorded["red_act"] == 3) & (recorded["red_success"] == 0) & (recorded["red_target"] == 2)
    lost &= (recorded["obs"][..., 1] & 0b11000000) == 0
    lost &= recorded["red_exploit"] < 8
    if not lost.any():
        lost = (recorded["red_act"] == 3) & (recorded["red_success"] == 0)
    episode, step = np.argwhere(lost)[0]
    recorded["red_exploit"][episode, step] = 5
    replay = RecordedEpisodes(recorded, rules_of(name), attacker_of(name), green=False)
    mismatch = replay.first_mismatch()
    assert mismatch is not None
    assert (mismatch.episode, mismatch.step, mismatch.what) == (episode, step, "red_exploit")


@pytest.mark.parametrize(("verb", "exploit"), [(2, 4), (3, 255)], ids=["none was due", "one was due"])
def test_an_exploit_is_recorded_where_red_exploits_and_nowhere_else(verb: int, exploit: int):
    file = RECORDED / "bline__mixed.npz"
    recorded = load(file)
    episode, step = np.argwhere(recorded["red_act"] == verb)[0]
    recorded["red_exploit"][episode, step] = exploit
    mismatch = replay_of(file, recorded).first_mismatch()
    assert mismatch is not None
    assert (mismatch.episode, mismatch.step, mismatch.what) == (episode, step, "red_exploit")


def test_whether_red_was_seen_is_recorded_where_it_is_drawn():
    file = RECORDED / "bline__mixed.npz"
    recorded = load(file)
    recorded["detected"][4, 0] = 1
    mismatch = replay_of(file, recorded).first_mismatch()
    assert mismatch is not None and (mismatch.episode, mismatch.step, mismatch.what) == (4, 0, "detected")


def test_the_recorded_returns_are_compared():
    file = RECORDED / "meander__mixed.npz"
    recorded = load(file)
    recorded["total"][6] += 0.1
    mismatch = replay_of(file, recorded).first_mismatch()
    assert mismatch is not None and (mismatch.episode, mismatch.step, mismatch.what) == (6, 99, "total")


@pytest.mark.parametrize("name", ["sleep__mixed", "meander__mixed"])
def test_a_place_in_the_plan_of_b_line_belongs_to_b_line(name: str):
    recorded = load(RECORDED / f"{name}.npz")
    recorded["bline_state"][2, 7] = 3
    mismatch = replay_of(RECORDED / f"{name}.npz", recorded).first_mismatch()
    assert mismatch is not None
    assert (mismatch.episode, mismatch.step, mismatch.what) == (2, 7, "bline_state")


def test_green_scans_what_it_can_scan():
    file = RECORDED / "sleep__mixed__green.npz"
    recorded = load(file)
    episode, step = np.argwhere(recorded["green_act"] == 1)[0]
    recorded["green_target"][episode, step] = 7
    mismatch = replay_of(file, recorded).first_mismatch()
    assert mismatch is not None
    assert (mismatch.episode, mismatch.step, mismatch.what) == (episode, step, "green_target")


@pytest.mark.parametrize(
    ("name", "attacker"),
    [
        ("bline", Attacker.bline),
        ("sleep__sleep", Attacker.sleep),
        ("meander__sleep", Attacker.meander),
        ("era2022__sleep__mixed__green", Attacker.sleep),
        ("nobody__sleep", None),
        ("nobody__sleep__green", None),
        ("recorded", None),
    ],
)
def test_the_attacker_is_that_of_the_name_and_not_the_policy(name: str, attacker: Attacker | None):
    assert attacker_of(name) is attacker


def test_a_name_without_an_attacker_says_that_reds_choices_are_not_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    recorded = load(RECORDED / "meander__mixed.npz")
    file = changed(tmp_path, "nobody__mixed", "meander__mixed", red_act=recorded["red_act"])
    assert main([str(file)]) == 0
    assert "steps agree; red's choices were not checked, since nothing says" in capsys.readouterr().out
    assert main([str(file), "--red", "meander"]) == 0
    assert capsys.readouterr().out.endswith("steps agree\n")
    assert main([str(file), "--red", "bline"]) == 1


@pytest.mark.parametrize("name", ["bline__mixed", "meander__mixed", "sleep__mixed"])
def test_a_file_of_one_step_is_replayed(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    recorded = load(RECORDED / f"{name}.npz")
    short: dict[str, Any] = {what: array[:, :1] for what, array in recorded.items() if what != "total"}
    short["total"] = recorded["rew10"][:, 0] / 10
    assert main([str(changed(tmp_path, name, **short))]) == 0
    assert capsys.readouterr().out.endswith(f": {len(recorded['act'])} steps agree\n")


def test_b_line_that_scans_no_user_host_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    target = load(RECORDED / "bline__mixed.npz")["red_target"]
    target[5, 1] = 3
    assert main([str(changed(tmp_path, "bline__mixed", red_target=target))]) == 1
    assert "episode 5, step 1: red_target was recorded as 3" in capsys.readouterr().out
