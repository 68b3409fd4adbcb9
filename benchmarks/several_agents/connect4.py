"""Agents of experiment=connect4 beside scripted players: how often they win each game, by opponent.

    python -m benchmarks.several_agents.connect4                  random moves and scripted players
    python -m benchmarks.several_agents.connect4 RUN ...          these runs, each at its last checkpoint
    python -m benchmarks.several_agents.connect4 RUN ... --output FILE.json

All play the same trials of the experiment over a real server: 500 against each of the four hidden
weaknesses, and 500 against minimax, which is met in no training. An agent of env.oracle=true is told the
opponent. An error is that of a mean over trials; gains over game 1, of game 2 and of the last game, are taken
trial by trial. `of the gap` are these gains over what an agent that is told wins more than this one does in
game 1. A game that is not over after `env.max_episode_steps` moves of the agent is not won. What the file
holds of other players stays in it.
The packages are those of requirements-partners.txt.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.parts.machine import facts, write
from benchmarks.several_agents.connect4_scripts import Knows, ScriptedPlayer
from configs.compose import load
from envs.base import Rows, TaskFamily
from envs.meta.make_env import make_family
from envs.parallel_env_manager import ParallelEnvManager
from envs.remote.servers.four_in_a_row import COLUMNS, MINIMAX, OPPONENTS, ROWS
from policies.play import load_agent

# Sessions at the same time.
SLOTS = 100
# Our stones on a full board.
MOST_MOVES = ROWS * COLUMNS // 2
Act = Callable[[Rows], NDArray[np.int64]]
# A policy is made for so many slots, an opponent and the number of the first trial.
Policy = Callable[[int, int, int], Act]


def at_random(slots: int, opponent: int, first: int) -> Act:
    """Each legal column as often."""
    rng = np.random.default_rng([opponent, first])

    def act(rows: Rows) -> NDArray[np.int64]:
        legal: Any = rows.obs["action_mask"]  # pyright: ignore[reportCallIssue, reportArgumentType]
        return (legal * rng.random(legal.shape)).argmax(-1)

    return act


def scripted(knows: Knows) -> Policy:
    """The scripted player that knows so much of its opponent."""

    def policy(slots: int, opponent: int, first: int) -> Act:
        players = [ScriptedPlayer(knows, opponent, first + slot) for slot in range(slots)]

        def act(rows: Rows) -> NDArray[np.int64]:
            seen: Any = rows.obs["observation"]  # pyright: ignore[reportCallIssue, reportArgumentType]
            boards = seen[:, : ROWS * COLUMNS]
            columns = np.zeros(slots, np.int64)
            for slot in np.flatnonzero(rows.valid):
                if rows.ended[slot]:
                    players[slot].end_of_game(boards[slot])
                else:
                    columns[slot] = players[slot].column(boards[slot])
            return columns

        return act

    return policy


def learned_policy(path: Path, games: int) -> Policy:
    """The agent of a run, without noise, which keeps its memory for the trial."""

    def policy(slots: int, opponent: int, first: int) -> Act:
        player = load_agent(path, slots, horizon=MOST_MOVES, episodes=games)

        def act(rows: Rows) -> NDArray[np.int64]:
            actions = player.act(rows.obs, rows.reward, rows.ended, {"task": rows.task})
            return np.where(rows.ended, 0, actions).astype(np.int64)

        return act

    return policy


def is_told(path: Path) -> bool:
    """Whether the agent of a run is shown the opponent."""
    return bool(load_agent(path).env_options["oracle"])


def results_of(family: TaskFamily, policy: Policy, opponent: int, trials: int) -> NDArray[np.float64]:
    """[trials, games] 1 for a game that was won, 0 for a draw and -1 for a loss."""
    games = family.config.max_rollouts_per_task
    returns = np.zeros((trials, games))
    slots = min(SLOTS, trials)
    with ParallelEnvManager(family, slots, episodes_per_trial=games, seed=0) as manager:
        for first in range(0, trials, slots):
            # In the last round some slots may play trials that nobody counts.
            found, game = np.zeros((slots, games)), np.zeros(slots, np.int64)
            act = policy(slots, opponent, first)
            # The same game for every policy: it has a seed by its opponent and its number.
            seeds = [trials * opponent + first + slot for slot in range(slots)]
            rows = manager.reset(np.full((slots, 1), float(opponent)), seeds=seeds)
            while True:
                found[np.arange(slots), np.minimum(game, games - 1)] += rows.reward * rows.valid
                game += rows.ended & rows.valid
                if not manager.running.any():
                    break
                rows = manager.step(act(rows))
            returns[first : first + slots] = found[: trials - first]
    return returns


def summary(by_opponent: NDArray[np.float64]) -> dict[str, Any]:
    """The rates of [opponents, trials, games] results: by opponent, and over the hidden weaknesses."""
    wins = by_opponent == 1
    errors = wins.std(axis=1, ddof=1) / math.sqrt(wins.shape[1])
    hidden = wins[:MINIMAX].astype(np.float64)
    gains = hidden[..., 1:] - hidden[..., :1]
    # Each opponent has as many trials: the error of the mean of their means.
    gain_errors = _error_of_mean(gains.std(axis=1, ddof=1) / math.sqrt(gains.shape[1]))
    return {
        "wins": wins.mean(axis=1).tolist(),
        "errors": errors.tolist(),
        "losses": (by_opponent == -1).mean(axis=1).tolist(),
        "over_weaknesses": hidden.mean(axis=(0, 1)).tolist(),
        "errors_over_weaknesses": _error_of_mean(errors[:MINIMAX]).tolist(),
        "gains": gains.mean(axis=(0, 1)).tolist(),
        "gain_errors": gain_errors.tolist(),
    }


def _error_of_mean(errors: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.sqrt((errors**2).sum(axis=0)) / len(errors)


def with_shares(found: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Beside each learned agent which part of the gap to the one that is told each later game has closed."""
    tops = [np.mean(one["over_weaknesses"]) for one in found.values() if one["told"]]
    shared: dict[str, dict[str, Any]] = {}
    for name, one in found.items():
        shared[name] = {key: value for key, value in one.items() if key not in ("gap", "of_the_gap")}
        gap = float(tops[0] - one["over_weaknesses"][0]) if tops else 0.0
        if "env_steps" in one and not one["told"] and gap > 0:
            shared[name] |= {"gap": gap, "of_the_gap": [gain / gap for gain in one["gains"]]}
    return shared


def win_rates(found: Mapping[str, dict[str, Any]]) -> str:
    """Win rates in percent, of each game in turn, with their errors."""
    heads = [*(f"weakness {number}" for number in range(MINIMAX)), "minimax", "weaknesses"]
    heads += ["gain of game 2", "of the last", "of the gap"]
    lines = [f"{'% won':24}" + "".join(f"{head:>32}" for head in heads)]
    for name, one in found.items():
        cells = [*zip(one["wins"], one["errors"], strict=True)]
        cells.append((one["over_weaknesses"], one["errors_over_weaknesses"]))
        shown = [_rates(rates, errors) for rates, errors in cells]
        gains = [*zip(one["gains"], one["gain_errors"], strict=True)]
        shown += [f"{100 * gain:+.1f} ±{100 * error:.1f}" for gain, error in (gains[0], gains[-1])]
        if "of_the_gap" in one:
            shown.append(f"{one['of_the_gap'][0]:.0%}, {one['of_the_gap'][-1]:.0%}")
        lines.append(f"{name:24}" + "".join(f"{cell:>32}" for cell in shown))
    return "\n".join(lines)


def _rates(rates: list[float], errors: list[float]) -> str:
    return f"{' '.join(f'{100 * rate:.1f}' for rate in rates)} ±{100 * max(errors):.1f}"


def main(arguments: list[str] | None = None) -> None:
    """Play, print, save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="folders of runs, or agents' files")
    parser.add_argument("--trials", type=int, default=500, help="against each opponent")
    parser.add_argument("--moves", type=int, help="of a game; default: those of the experiment")
    parser.add_argument("--output", type=Path, help="save the numbers here, too")
    asked = parser.parse_args(arguments)
    # The test split is there so that minimax is a task, too.
    words = ["experiment=connect4", 'env.test_tasks=["opponent=4"]']
    words += [] if asked.moves is None else [f"env.max_episode_steps={asked.moves}"]
    family = make_family(load(words).env)
    family.prepare(min(SLOTS, asked.trials))
    games = family.config.max_rollouts_per_task
    policies: dict[str, Policy] = {path.name: learned_policy(path, games) for path in asked.runs}
    if not policies:
        policies = {"random moves": at_random}
        policies |= {f"script that {SHOWN[knows]}": scripted(knows) for knows in Knows}
    moves = family.config.max_episode_steps
    found = players_before(asked.output, asked.trials, moves, games)
    for name, policy in policies.items():
        results = [results_of(family, policy, opponent, asked.trials) for opponent in range(OPPONENTS)]
        found[name] = summary(np.stack(results)) | {"told": False}
    for path in asked.runs:
        found[path.name] |= {"told": is_told(path), "env_steps": load_agent(path).record.env_steps}
    found = with_shares(found)
    print(win_rates(found))
    if asked.output is not None:
        write(
            asked.output,
            {
                "machine": facts(),
                "trials": asked.trials,
                "moves": moves,
                "games": games,
                "players": found,
            },
        )


def players_before(file: Path | None, trials: int, moves: int, games: int) -> dict[str, dict[str, Any]]:
    """What a file holds of as many trials of so many such games."""
    if file is None or not file.exists():
        return {}
    before = json.loads(file.read_text(encoding="utf-8"))
    same = (before["trials"], before["moves"], before.get("games")) == (trials, moves, games)
    return before["players"] if same else {}


SHOWN = {Knows.told: "is told", Knows.remembers: "remembers", Knows.forgets: "forgets"}

if __name__ == "__main__":
    main()
