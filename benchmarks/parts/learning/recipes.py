"""Recipes that are measured: the words after `python main.py`, marks, and what a peer plays beside them."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from benchmarks.parts.learning.sb3_runs import Task
from benchmarks.parts.learning.sb3_trials import TrialTask
from utils.options import nearest

EXPERIMENTS = Path(__file__).resolve().parents[3] / "configs" / "experiment"


@dataclass(frozen=True)
class Recipe:
    """The words after `python main.py`, and the returns that it should reach."""

    words: tuple[str, ...]
    marks: tuple[float, ...] = ()
    # What a peer plays beside it; None: there is no peer for it.
    task: Task | TrialTask | None = None
    # The learner that plays in place of Retrial.
    peer: str | None = None


CART_POLE = Task("CartPole-v1", env_steps=50_000, every=5_000)
PENDULUM = Task("Pendulum-v1", env_steps=6_000, every=1_000)
POSITIONS = Task(
    "CartPole-v1", 60_000, 5_000, wrappers=("envs.meta.third_party.positions_only:PositionsOnly",)
)
ANT_DIR = TrialTask(("experiment=ant_dir_ppo",))
CHEETAH_VEL = TrialTask(("experiment=half_cheetah_vel_ppo",))

# Marks are sums over the episodes of a trial; those of the robots are published ones.
RECIPES = {
    "point_robot_sac": Recipe(("experiment=point_robot_sac",), (15.0, 20.0)),
    "point_robot_ppo": Recipe((), (15.0, 20.0)),
    "half_cheetah_vel_ppo": Recipe(CHEETAH_VEL.words, (-62.0, -51.0, -33.0), CHEETAH_VEL),
    "half_cheetah_vel_sac": Recipe(("experiment=half_cheetah_vel_sac",), (-62.0, -51.0, -33.0)),
    "cheetah_dir_ppo": Recipe(("experiment=cheetah_dir_ppo",), (4270.0, 5014.0)),
    "cheetah_dir_sac": Recipe(("experiment=cheetah_dir_sac",), (4270.0, 5014.0)),
    "ant_dir_ppo": Recipe(ANT_DIR.words, (2318.0, 2608.0), ANT_DIR),
    "ant_dir_sac": Recipe(("experiment=ant_dir_sac",), (2318.0, 2608.0)),
    "cart_pole_ppo": Recipe((*CART_POLE.words, "algorithm=PPO", "agent=Markov"), (475.0,), CART_POLE),
    "pendulum_sac": Recipe((*PENDULUM.words, "algorithm=SAC", "agent=Markov"), (-200.0,), PENDULUM),
    "cart_pole_positions_ppo": Recipe(
        ("experiment=cart_pole_positions_ppo", "evaluation.every=5000"), (400.0,), POSITIONS
    ),
}


def recipe_of(name: str) -> Recipe:
    """One that is named here, or an experiment's."""
    experiments = [file.stem for file in EXPERIMENTS.glob("*.yaml")]
    if name in RECIPES:
        return RECIPES[name]
    if name in experiments:
        return Recipe((f"experiment={name}",))
    raise argparse.ArgumentTypeError(
        f"there is no recipe {name}.{nearest(name, sorted({*RECIPES, *experiments}))}"
    )
