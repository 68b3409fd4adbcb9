"""An agent of CyberDefence, or policies without one, beside the leader board of CAGE Challenge 2.

    python -m benchmarks.leader_board              what sleeping, random actions and scripts score, and
                                                   benchmarks/results/leader_board.json
    python -m benchmarks.leader_board RUN ...      these runs, each at its last checkpoint, without noise;
                                                   also agents' files, and agents of the zoo: zoo/CyberDefence
    python -m benchmarks.leader_board RUN --output FILE.json

As in the challenge's evaluation: 1,000 episodes for each of the nine cells, three attackers times 30, 50 and
100 steps, and the sum of the nine means. A run is played three times: by the newest rules, by those of the
leader board (era=2022), and with fix_impact=true. Of the scripts, one sees what an agent sees. The others see
the true state: one is made for B_line and one for Meander, each played against all three; the best of them
knows who attacks, and is that which is made for it.

quirk 1 is a rule of the published code: once blue has restored Op_Server0, red cannot stop its service any
more. `restored` is the part of episodes of 100 steps against B_line and Meander in which blue did so, and
`for nothing` the part in which it did so while red had no session there, as no good defender would without
that rule.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.parts.defence.restore_decoy import RestoreDecoy
from benchmarks.parts.machine import facts, write
from configs.agent_files import agent_file
from envs.base import Rows, TaskFamily
from envs.layout import Layout
from envs.meta.cyber import scenario as sc
from envs.meta.cyber.attackers import Attacker
from envs.meta.cyber.network import PRIVILEGED, REMOVABLE, STUCK
from envs.meta.cyber.scripts import Truth
from envs.meta.make_env import make_family
from policies.play import load_agent
from policies.play.record import AgentRecord
from utils.options import OptionError

RESULTS = Path(__file__).parent / "results" / "leader_board.json"
HORIZONS = (30, 50, 100)
ATTACKERS = tuple(Attacker)
CELLS = tuple((attacker, horizon) for attacker in ATTACKERS for horizon in HORIZONS)
RESTORE_SERVER = sc.action_number(sc.RESTORE, sc.OP_SERVER)

# From the README of the challenge, 1,000 episodes each: B_line, Meander and Sleep after 30, 50 and 100 steps.
PUBLISHED = {
    "1 CardiffUni": (-3.47, -6.41, -13.76, -5.64, -8.69, -16.6, 0.0, 0.0, 0.0),
    "2 Keeping it RL, ensembles": (-3.48, -5.85, -11.39, -6.47, -10.33, -19.38, 0.0, 0.0, 0.0),
    "3 Mindrake": (-3.53, -6.2, -12.78, -6.76, -10.13, -17.65, 0.0, 0.0, 0.0),
    "10 Keeping it RL, plain PPO": (-4.76, -8.13, -17.19, -8.03, -12.91, -22.94, 0.0, 0.0, -0.01),
}
# The rules under which a run is played.
RULES: dict[str, dict[str, Any]] = {
    "newest rules": {},
    "era=2022": {"era": "2022"},
    "fix_impact": {"fix_impact": True},
}

# Actions for the present rows. A policy is made for a family, a number of slots and an attacker.
Act = Callable[[Rows], NDArray[np.int64]]
Policy = Callable[[TaskFamily, int, Attacker], Act]


@dataclass
class Scores:
    """The nine cells of one policy under one set of rules."""

    name: str
    rules: str
    # By cell: the mean return and its standard error.
    means: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    # Of the episodes of 100 steps against B_line and Meander.
    restored: float = 0.0
    for_nothing: float = 0.0

    @property
    def total(self) -> float:
        """The sum of the nine means, by which the board is ordered."""
        return sum(self.means)

    @property
    def error(self) -> float:
        """Its standard error."""
        return math.sqrt(sum(error**2 for error in self.errors))


# -- policies ------------------------------------------------------------------------------------------------


def sleeping(family: TaskFamily, n: int, attacker: Attacker) -> Act:
    """Blue does nothing."""
    return lambda rows: np.zeros(n, np.int64)


def uniform(family: TaskFamily, n: int, attacker: Attacker) -> Act:
    """Blue takes each of the 145 actions as often."""
    rng = np.random.default_rng(0)
    return lambda rows: rng.integers(sc.NUM_ACTIONS, size=n)


def restoring_once(family: TaskFamily, n: int, attacker: Attacker) -> Act:
    """Blue restores Op_Server0 in the first step, and sleeps: what quirk 1 is worth alone."""
    first = iter([RESTORE_SERVER])
    return lambda rows: np.full(n, next(first, sc.SLEEP))


def restoring_and_decoys(family: TaskFamily, n: int, attacker: Attacker) -> Act:
    """Blue restores what looks lost and places decoys, by what an agent sees."""
    policy = RestoreDecoy(n)
    return lambda rows: policy.act(np.asarray(rows.obs))


def script(family: TaskFamily, n: int, attacker: Attacker) -> Act:
    """Blue plays the script that is made for this attacker and sees the true state."""
    tasks = np.full((n, 1), float(attacker))
    return lambda rows: family.oracle_action(rows.obs, tasks, rows.info)


def script_made_for(known: Attacker) -> Policy:
    """Blue plays the script that is made for `known`, whoever attacks."""
    return lambda family, n, _attacker: script(family, n, known)


SCRIPTED: dict[str, Policy] = {
    "sleeping": sleeping,
    "random": uniform,
    "restoring once": restoring_once,
    "restore_decoy": restoring_and_decoys,
    "script for B_line": script_made_for(Attacker.bline),
    "script for Meander": script_made_for(Attacker.meander),
    "script for each": script,
}


def policy_of_run(path: Path) -> Policy:
    """The agent of a run, which carries its memory from row to row."""

    def policy(family: TaskFamily, n: int, attacker: Attacker) -> Act:
        player = load_agent(path, n, episodes=1, horizon=family.config.max_episode_steps)
        return lambda rows: player.act(rows.obs.copy(), rows.reward.copy(), np.zeros(n, np.bool_))

    return policy


def named_runs(given: Sequence[Path]) -> dict[str, Path]:
    """The folders and files of runs by the names of the table; one that cannot play is an `OptionError`."""
    found: dict[str, Path] = {}
    last_parts = [path.absolute().name for path in dict.fromkeys(given)]
    for path in dict.fromkeys(given):
        # Runs of a sweep have folders of the same name below others.
        name = path.absolute().name
        name = name if last_parts.count(name) == 1 else str(path)
        found[name] = agent_file(path.expanduser()) or path
        _check_plays_here(path, AgentRecord.load(found[name].expanduser()))
    return found


def _check_plays_here(path: Path, record: AgentRecord) -> None:
    """Refuse an agent that cannot play the cells."""
    # The original simulator is the same game, so an agent that was trained there may be here as well.
    if record.spec.name not in ("CyberDefence", "CybORG"):
        raise OptionError(
            f"{path} is an agent of {record.spec.name}: the leader board is played by agents of CyberDefence."
        )
    if record.layout.with_task:
        raise OptionError(
            f"{path} is an agent that is shown its task, and nobody on the leader board is told who attacks."
        )


# -- playing -------------------------------------------------------------------------------------------------


def play(
    policy: Policy, attacker: Attacker, horizon: int, episodes: int, **rules: Any
) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
    """[n] returns; in which episodes blue restored Op_Server0; in which it did so for nothing."""
    family = make_family("CyberDefence", red=attacker.name, max_episode_steps=horizon, **rules)
    shard, rows = family.make_shard(episodes), Layout(family.spec).allocate(episodes)
    shard.bind(rows)
    slots, act = np.arange(episodes), policy(family, episodes, attacker)
    # Each cell has episodes of its own, the same ones for every policy.
    seeds = np.random.default_rng([horizon, attacker]).integers(2**63, size=episodes).astype(np.uint64)
    shard.reset(slots, np.full((episodes, 1), float(attacker)), seeds)
    returns = np.zeros(episodes)
    restored, for_nothing = np.zeros(episodes, np.bool_), np.zeros(episodes, np.bool_)
    for _ in range(horizon):
        actions, truth = act(rows), Truth.of(rows.info, horizon)
        held = np.any([truth.has(kind, sc.OP_SERVER) for kind in (PRIVILEGED, REMOVABLE, STUCK)], axis=0)
        restored |= actions == RESTORE_SERVER
        for_nothing |= (actions == RESTORE_SERVER) & ~held
        shard.step(slots, actions)
        returns += rows.reward
    shard.close()
    return returns, restored, for_nothing


def nine_cells(name: str, policy: Policy, rules: str, episodes: int) -> Scores:
    """All nine cells."""
    found, uses = Scores(name, rules), list[tuple[float, float]]()
    for attacker, horizon in CELLS:
        returns, restored, for_nothing = play(policy, attacker, horizon, episodes, **RULES[rules])
        found.means.append(float(returns.mean()))
        found.errors.append(float(returns.std() / math.sqrt(episodes)))
        if horizon == max(HORIZONS) and attacker is not Attacker.sleep:
            uses.append((float(restored.mean()), float(for_nothing.mean())))
    found.restored, found.for_nothing = np.mean(uses, axis=0).tolist()
    return found


# -- the table -----------------------------------------------------------------------------------------------


def board_text(found: Sequence[Scores]) -> str:
    """The published rows and ours, the best sum first."""
    heads = [f"{attacker.name} {horizon}" for attacker, horizon in CELLS]
    lines = [f"{'':45}" + "".join(f"{head:>12}" for head in heads) + f"{'sum':>12}{'± error':>9}"]
    rows = [(sum(cells), f"{name} (published)", cells, "") for name, cells in PUBLISHED.items()]
    rows += [(one.total, f"{one.name}, {one.rules}", one.means, f"{one.error:9.2f}") for one in found]
    for total, name, cells, error in sorted(rows, key=lambda row: -row[0]):
        lines.append(f"{name:45}" + "".join(f"{cell:12.2f}" for cell in cells) + f"{total:12.2f}{error}")
    lines.append(f"\n{'quirk 1':45}{'restored':>12}{'for nothing':>13}")
    lines += [f"{f'{one.name}, {one.rules}':45}{one.restored:12.1%}{one.for_nothing:13.1%}" for one in found]
    return "\n".join(lines)


def page_table(scores: Sequence[dict[str, Any]]) -> list[str]:
    """The lines of docs/cyber.md that tell these scores, as they were saved."""
    heads = [f"{name} 30 | 50 | 100" for name in ("B_line", "Meander", "Sleep")]
    lines = [f"| policy | {' | '.join(heads)} | sum |", "|---" * (len(CELLS) + 2) + "|"]
    for one in scores:
        # Tenths are enough where a score is far from the others.
        cells = [f"{mean:.1f}" if mean < -60 else f"{mean:.2f}" for mean in one["means"]]
        total = f"{one['total']:.1f} ± {one['error']:.1f}"
        lines.append(f"| {one['name']} | {' | '.join(cells)} | {total} |")
    return lines


def main(arguments: list[str] | None = None) -> None:
    """Play, print, save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "runs", nargs="*", type=Path, metavar="RUN", help="folders of runs, agents' files, or zoo/NAME"
    )
    parser.add_argument("--episodes", type=int, default=1000, help="of every cell")
    parser.add_argument(
        "--output",
        type=Path,
        help=f"save the numbers here; default: {RESULTS.name} in benchmarks/results for a whole measurement "
        "without a run, else nowhere",
    )
    asked = parser.parse_args(arguments)
    if asked.episodes < 1:
        parser.error(f"--episodes {asked.episodes}: a cell needs at least one episode.")
    try:
        policies = {name: policy_of_run(path) for name, path in named_runs(asked.runs).items()} or SCRIPTED
    except OptionError as error:
        parser.error(str(error))
    played = RULES if asked.runs else dict.fromkeys(["newest rules"])
    found = [
        nine_cells(name, policy, rules, asked.episodes)
        for name, policy in policies.items()
        for rules in played
    ]
    print(board_text(found))
    output = asked.output
    if output is None and not asked.runs and asked.episodes == parser.get_default("episodes"):
        output = RESULTS
    if output is not None:
        scores = [vars(one) | {"total": one.total, "error": one.error} for one in found]
        write(output, {"machine": facts(), "episodes": asked.episodes, "scores": scores})


if __name__ == "__main__":
    main()
