"""The leader board: what is counted of a defence, an agent with its memory, and the table."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.leader_board import (
    CELLS,
    PUBLISHED,
    RESTORE_SERVER,
    RESULTS,
    RULES,
    SCRIPTED,
    Act,
    Scores,
    board_text,
    main,
    named_runs,
    page_table,
    play,
    policy_of_run,
    restoring_once,
    script,
    script_made_for,
    sleeping,
)
from configs.agent_files import ZOO_FOLDER
from envs.base import Rows, TaskFamily
from envs.meta.cyber.attackers import Attacker
from envs.meta.make_env import make_family
from policies.learner import Learner
from policies.play import load_agent
from tests.envs.meta.played import Played
from tests.runs import tiny_config
from utils.options import OptionError


def obs_of(rows: Rows) -> np.ndarray:
    assert isinstance(rows.obs, np.ndarray)
    return rows.obs


def test_restoring_a_clean_server_is_counted_as_the_use_of_the_quirk():
    returns, restored, for_nothing = play(restoring_once, Attacker.sleep, 5, 4)
    assert (returns == -1.0).all() and restored.all() and for_nothing.all()
    _, restored, for_nothing = play(sleeping, Attacker.bline, 5, 4)
    assert not restored.any() and not for_nothing.any()


def test_restoring_a_server_that_red_holds_is_no_use_of_the_quirk():
    def late(family: TaskFamily, n: int, attacker: Attacker) -> Act:
        steps = iter(range(100))  # nobody resists, and B_line holds the server long before step 40
        return lambda rows: np.full(n, RESTORE_SERVER if next(steps) >= 40 else 0)

    _, restored, for_nothing = play(late, Attacker.bline, 41, 6)
    assert restored.all() and not for_nothing.all()


def test_the_rules_reach_the_family():
    mean = {
        name: play(restoring_once, Attacker.bline, 100, 20, **rules)[0].mean()
        for name, rules in RULES.items()
    }
    assert mean["fix_impact"] < -900 < mean["newest rules"]


def test_the_scripts_lose_little():
    assert play(script, Attacker.bline, 30, 50)[0].mean() == pytest.approx(-3.55, abs=0.4)


@pytest.mark.parametrize(
    ("made_for", "attacker", "expected"),
    [(Attacker.meander, Attacker.bline, -25.10), (Attacker.bline, Attacker.meander, -42.66)],
)
def test_a_script_that_is_made_for_another_attacker_loses_what_the_specification_says(
    made_for: Attacker, attacker: Attacker, expected: float
):
    returns, _, _ = play(script_made_for(made_for), attacker, 100, 1000)
    # The specification gives no error of these; its episodes were as many, so twice the variance.
    assert returns.mean() == pytest.approx(expected, abs=3 * np.sqrt(2 / 1000) * returns.std())


def test_the_committed_scores_are_of_every_policy_and_the_page_tells_them():
    saved = json.loads(RESULTS.read_text())
    assert saved["episodes"] == 1000 and [one["name"] for one in saved["scores"]] == list(SCRIPTED)
    page = (Path(__file__).parents[2] / "docs" / "cyber.md").read_text()
    assert "\n".join(page_table(saved["scores"])) in page


def test_an_agent_is_played_with_its_memory_as_a_player_plays_it(tmp_path: Path):
    config = tiny_config("CyberDefence", algorithm="PPO")
    with Learner(config, tmp_path) as learner:
        with torch.no_grad():
            for parameter in learner.agent.parameters():
                parameter += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
        learner.save()
    returns, _, _ = play(policy_of_run(tmp_path), Attacker.bline, 12, 3)
    seeds = np.random.default_rng([12, Attacker.bline]).integers(2**63, size=3).astype(np.uint64)
    family, player, again = make_family("CyberDefence", red="bline"), load_agent(tmp_path, horizon=12), []
    for seed in seeds:
        player.reset()
        alone, total = Played(family, 1), 0.0
        rows = alone.reset([0], [[0.0]], [seed])
        for _ in range(12):
            action = player.act(obs_of(rows)[0].copy(), float(rows.reward[0]), False)
            rows = alone.step([0], [action])
            total += float(rows.reward[0])
        again.append(total)
    assert returns == pytest.approx(again)


def test_the_table_orders_ours_among_the_published(capsys: pytest.CaptureFixture[str]):
    ours = Scores("ours", "newest rules", [-6.0] * 9, [0.3] * 9)
    assert (ours.total, ours.error) == (-54.0, pytest.approx(0.9))
    lines = board_text([ours]).splitlines()
    assert lines[1].startswith("ours, newest rules") and lines[2].startswith("1 CardiffUni")
    assert sum(PUBLISHED["1 CardiffUni"]) == pytest.approx(-54.57) and len(CELLS) == 9


def test_without_a_run_the_command_plays_what_needs_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    committed = RESULTS.read_bytes()
    main(["--episodes", "2"])
    assert "Written" not in capsys.readouterr().out and RESULTS.read_bytes() == committed
    main(["--episodes", "2", "--output", str(tmp_path / "board.json")])
    printed = capsys.readouterr().out
    assert "script for each, newest rules" in printed and "sleeping, newest rules" in printed
    assert (tmp_path / "board.json").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere/at_all"], "nowhere/at_all does not exist: name the folder of a run"),
        ([str(ZOO_FOLDER / "Wind.pt")], "is an agent of Wind: the leader board is played by agents of"),
        (["zoo/CyberDefense"], "The zoo has no agent CyberDefense. Did you mean 'CyberDefence'?"),
        (["--episodes", "0"], "--episodes 0: a cell needs at least one episode."),
    ],
)
def test_what_cannot_be_played_is_one_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as ended:
        main(words)
    printed = capsys.readouterr().err
    assert ended.value.code == 2 and sentence in printed.splitlines()[-1] and "Traceback" not in printed


def test_an_agent_that_is_told_who_attacks_is_refused(tmp_path: Path):
    with Learner(tiny_config("CyberDefence", algorithm="PPO", env={"oracle": True}), tmp_path) as learner:
        learner.save()
    with pytest.raises(OptionError, match="is shown its task"):
        named_runs([tmp_path])


def test_an_agent_of_the_zoo_is_named_as_evaluate_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("benchmarks.leader_board.CELLS", ((Attacker.meander, 100),))
    main(["zoo/CyberDefence", "--episodes", "2"])
    assert "CyberDefence, newest rules" in capsys.readouterr().out


def test_runs_in_folders_of_the_same_name_stay_apart(tmp_path: Path):
    for name in ("first/0", "second/0", "other"):
        with Learner(tiny_config("CyberDefence", algorithm="PPO"), tmp_path / name) as learner:
            learner.save()
    first, second, other = tmp_path / "first" / "0", tmp_path / "second" / "0", tmp_path / "other"
    found = named_runs([first, second, other, other])
    assert found == {str(first): first, str(second): second, "other": other}
