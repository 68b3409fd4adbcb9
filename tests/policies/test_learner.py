"""The Learner: parallel equals sequential, resume equals uninterrupted, evaluation does not depend on the
workers.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envs.backends.base import BackendConfig, StartMethod
from envs.base import EnvConfig
from envs.meta import FAMILIES
from envs.meta.make_env import make_family
from envs.meta.toy.point_robot import PointRobot, PointRobotConfig
from envs.parallel_env_manager import ParallelEnvManager
from policies.agents.actions import ActionKind
from policies.agents.base import Arch, Decodes, HeadsRead, TaskInferenceConfig
from policies.algorithms import ALGORITHMS
from policies.learner import Learner
from policies.memory import MEMORIES
from policies.run.config import RECORD
from tests.runs import best_agent, digest, metrics_of, state_of, stop_at, stored_rows, tiny_config
from utils.checkpoint import CheckpointError
from utils.run_lock import RunLock, RunLockError

ROOT = Path(__file__).parents[2]
FALLING_ANT = {"family": "AntDir", "env": {"max_episode_steps": 40, "num_eval_tasks": 2}}
# Pictures in a Dict with the new-episode flag, and discrete actions.
PICTURES = {
    "family": "PassiveVisualMatch",
    "env": {"max_rollouts_per_task": 2, "max_episode_steps": 9, "num_eval_tasks": 2, "apple_steps": 3},
}
# Whose state is in the statistics of its normalisation too.
ON_POLICY = {
    "algorithm": "PPO",
    "family": "AntDir",
    "agent": {"normalise_obs": True, "normalise_reward": True},
}
# A belief over the task, for whose loss rows and steps are drawn.
INFERRING = {
    "task_inference": TaskInferenceConfig(
        weight=1.0, rows=2, steps=3, decode=Decodes.reward_and_transition, heads_read=HeadsRead.belief
    )
}


def collected(arch: Arch, workers: int, **options: object) -> dict[str, np.ndarray]:
    """The rows of a random pool and two waves, the second with a number of trials that no number of slots
    divides.
    """
    with Learner(tiny_config(arch=arch, workers=workers, **FALLING_ANT, **options)) as learner:  # pyright: ignore[reportArgumentType]
        learner.collect_rollouts_parallel(3, random_actions=True, parallel_env=learner.train_env_parallel)
        learner.collect_rollouts_parallel(4, parallel_env=learner.train_env_parallel)
        learner.collect_rollouts_parallel(5, parallel_env=learner.train_env_parallel)
        return stored_rows(learner)


@pytest.mark.parametrize("arch", list(Arch))
def test_parallel_equals_sequential_with_falling_ants(arch: Arch) -> None:
    sequential = collected(arch, 1)
    assert len(set(sequential["lengths"].tolist())) > 1, "ends should be staggered"
    for workers in (2, 3):
        assert digest(collected(arch, workers)) == digest(sequential)


@pytest.mark.parametrize("arch", list(Arch))
@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_parallel_equals_sequential_for_every_start_method(arch: Arch, method: str) -> None:
    sequential = digest(collected(arch, 1, num_slots=6))
    for workers in (1, 2, 3, 6):
        backend = BackendConfig(name="process", start_method=StartMethod[method])
        assert digest(collected(arch, workers, num_slots=6, backend=backend)) == sequential


@pytest.mark.parametrize("arch", list(Arch))
def test_pictures_and_choices_are_collected_in_parallel_and_resumed_bit_for_bit(
    arch: Arch, tmp_path: Path
) -> None:
    final = []
    for folder, workers in (("whole", 1), ("cut", 2)):
        with Learner(tiny_config(arch=arch, workers=workers, **PICTURES), tmp_path / folder) as learner:
            if folder == "cut":
                stop_at(learner, "update")
            learner.train()
            final.append(state_of(learner))
            rows = stored_rows(learner)
    assert (rows["obs.image"].dtype, rows["action"].dtype, rows["obs.new_episode"].dtype) == (
        np.uint8,
        np.int64,
        np.float32,
    )
    assert len(np.unique(rows["action"])) > 2 and len(np.unique(rows["obs.image"])) > 2
    assert final[0] != final[1]
    with Learner(tiny_config(arch=arch, workers=2, **PICTURES), tmp_path / "cut") as resumed:
        resumed.load()
        resumed.train()
        assert state_of(resumed) == final[0]
    assert metrics_of(tmp_path / "cut") == metrics_of(tmp_path / "whole")


@pytest.mark.parametrize(
    ("algorithm", "agent"), [*((name, {}) for name in ALGORITHMS), ("SAC", INFERRING), ("PPO", INFERRING)]
)
def test_every_algorithm_is_resumed_bit_for_bit(
    algorithm: str, agent: dict[str, Any], tmp_path: Path
) -> None:
    family = "Wind" if ActionKind.continuous in ALGORITHMS[algorithm].serves else "GridNavi"
    final = []
    for folder in ("whole", "cut"):
        with Learner(tiny_config(family, algorithm=algorithm, agent=agent), tmp_path / folder) as learner:
            if folder == "cut":
                stop_at(learner, "update")
            learner.train()
            final.append(state_of(learner))
    assert final[0] != final[1]
    with Learner(tiny_config(family, algorithm=algorithm, agent=agent), tmp_path / "cut") as resumed:
        resumed.load()
        resumed.train()
        assert state_of(resumed) == final[0]
    assert metrics_of(tmp_path / "cut") == metrics_of(tmp_path / "whole")


def test_another_seed_collects_other_rows() -> None:
    assert digest(collected(Arch.Memory, 1)) != digest(collected(Arch.Memory, 1, seed=1))


@pytest.mark.parametrize("arch", list(Arch))
@pytest.mark.parametrize("workers", [1, 2])
def test_no_transition_of_a_trial_is_lost(arch: Arch, workers: int) -> None:
    """The ancestor lost the first transition of every parallel Memory_Markov trial."""
    with Learner(tiny_config(arch=arch, workers=workers)) as learner:
        steps = learner.collect_rollouts_parallel(4, parallel_env=learner.train_env_parallel)
        assert steps == learner.buffer.num_transitions == 4 * 2 * 6
        assert stored_rows(learner)["lengths"].tolist() == [2 * (6 + 1)] * 4


def test_without_a_parallel_env_the_sequential_one_is_used_with_the_same_slots() -> None:
    with Learner(tiny_config(workers=2)) as learner:
        assert learner.train_env_parallel is not None
        assert learner.collect_rollouts_parallel(2) == 24
        assert learner.train_env.num_envs == learner.train_env_parallel.num_envs == 3
        assert learner.train_env.pids == [] and len(learner.train_env_parallel.pids) == 2


def test_one_worker_means_no_parallel_env() -> None:
    with Learner(tiny_config(workers=1)) as learner:
        assert learner.train_env_parallel is None


def test_slots_do_not_share_their_draws() -> None:
    """The ancestor's forked workers inherited one generator: every start was the same in all of them."""
    with Learner(tiny_config(workers=3)) as learner:
        assert learner.train_env_parallel is not None
        rows = learner.train_env_parallel.reset(tasks=np.tile(learner.eval_tasks[:1], (3, 1)))
        assert isinstance(rows.obs, np.ndarray) and len(np.unique(rows.obs[:, :2], axis=0)) == 3


def test_training_writes_metrics_tasks_checkpoints_and_a_picture(tmp_path: Path) -> None:
    with Learner(tiny_config(), tmp_path) as learner:
        final = learner.train()
    lines = metrics_of(tmp_path)
    assert lines[0]["pool/return_episode_1"] is not None and "train/return_episode_1" not in lines[0]
    assert lines[-1]["env_steps"] >= 240 and lines[-1]["loss/critic_loss"] > 0
    assert final == lines[-1]["eval/held_out/return_episode_2"]
    assert {"metrics.jsonl", "tasks.json", "checkpoints", "adaptation.png"} <= {
        path.name for path in tmp_path.iterdir()
    }


def test_shared_splits_are_never_called_held_out(tmp_path: Path) -> None:
    with Learner(tiny_config(**FALLING_ANT), tmp_path) as learner:
        assert set(learner.evaluate()) == {
            f"eval/{name}/{number}"
            for name in ("train", "in_distribution")
            for number in ("return_episode_1", "return_episode_2", "returns")
        }


def test_evaluation_does_not_depend_on_the_workers_or_disturb_training() -> None:
    found = []
    for workers in (1, 3):
        with Learner(tiny_config(workers=workers, evaluation={"stochastic": True})) as learner:
            learner.collect_rollouts_parallel(3, parallel_env=learner.train_env_parallel)
            before = state_of(learner)
            found.append(learner.evaluate())
            assert state_of(learner) == before
    assert found[0] == found[1]
    assert found[0]["eval/held_out/return_episode_1"] != found[0]["eval/held_out_stochastic/return_episode_1"]


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_finished_run_may_be_evaluated_with_more_episodes_than_it_was_trained_for(
    memory: str, tmp_path: Path
) -> None:
    config = tiny_config()
    config.memory = MEMORIES[memory].Config(name=memory, hidden_size=16)
    with Learner(config, tmp_path) as learner:
        learner.save()
    config.evaluation.episodes_per_trial = 4
    with Learner(config, tmp_path) as learner:
        learner.load()
        assert "eval/held_out/return_episode_4" in learner.evaluate()


def test_a_report_is_kept_in_the_run_folder(tmp_path: Path) -> None:
    with Learner(tiny_config(), tmp_path) as learner:
        table = learner.report()
        metrics = learner.evaluate()
    saved = json.loads((tmp_path / "evaluation.json").read_text())
    about = {name: saved.pop(name) for name in ("checkpoint", "differs_from_training", "measured")}
    assert saved == {"env_steps": 0, "updates": 0, **metrics}
    assert (about["checkpoint"], about["differs_from_training"]) == ("last", {})
    assert set(about["measured"]["held_out"]) == {"oracle", "random"}
    assert "held_out" in table


@pytest.mark.parametrize("arch", list(Arch))
@pytest.mark.parametrize("options", [{}, ON_POLICY], ids=["off-policy", "on-policy"])
def test_resume_after_sigkill_equals_uninterrupted(
    arch: Arch, options: dict[str, Any], tmp_path: Path
) -> None:
    """A process is killed in the middle of an update; another goes on from its last checkpoint."""
    with Learner(tiny_config(arch=arch, **options), tmp_path / "whole") as whole:
        whole.train()
        expected = state_of(whole)
    script = f"""
import os, signal
from pathlib import Path
from policies.agents.base import Arch
from policies.run.config import RECORD
from policies.learner import Learner
from policies.memory import MEMORIES
from tests.runs import tiny_config
learner = Learner(tiny_config(arch=Arch.{arch.name}, **{options}), Path({str(tmp_path / "cut")!r}))
update = learner.algorithm.update
def killing(batch):
    if learner.counters.env_steps >= 150:
        os.kill(os.getpid(), signal.SIGKILL)
    return update(batch)
learner.algorithm.update = killing
learner.train()
"""
    killed = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=False,
        capture_output=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    with Learner(tiny_config(arch=arch, **options), tmp_path / "cut") as resumed:
        resumed.load()
        assert 0 < resumed.counters.env_steps < 240
        resumed.train()
        assert state_of(resumed) == expected
    assert metrics_of(tmp_path / "cut") == metrics_of(tmp_path / "whole")
    assert best_agent(tmp_path / "cut") == best_agent(tmp_path / "whole")


@pytest.mark.parametrize("moment", ["wave", "update", "evaluation"])
@pytest.mark.parametrize("options", [{}, ON_POLICY], ids=["off-policy", "on-policy"])
def test_resume_after_a_stop_signal_equals_uninterrupted(
    moment: str, options: dict[str, Any], tmp_path: Path
) -> None:
    with Learner(tiny_config(**options), tmp_path / "whole") as whole:
        whole.train()
        expected = state_of(whole)
    with Learner(tiny_config(**options), tmp_path / "cut") as cut:
        stop_at(cut, moment)
        cut.train()
        assert cut.stop_signal == signal.SIGTERM
        assert cut.counters.env_steps < 240
    with Learner(tiny_config(**options), tmp_path / "cut") as resumed:
        resumed.load()
        resumed.train()
        assert state_of(resumed) == expected
    assert metrics_of(tmp_path / "cut") == metrics_of(tmp_path / "whole")


def test_loading_where_nothing_was_saved_is_one_sentence(tmp_path: Path) -> None:
    with Learner(tiny_config(), tmp_path) as learner, pytest.raises(CheckpointError, match="no checkpoint"):
        learner.load()


def test_groups_are_part_of_the_experiment_and_workers_are_not() -> None:
    def rows(**options: object) -> str:
        return digest(collected(Arch.Memory, **options))  # pyright: ignore[reportArgumentType]

    two = rows(workers=1, num_slots=4, num_groups=2)
    assert rows(workers=2, num_slots=4, num_groups=2) == two
    assert rows(workers=2, num_slots=4, num_groups=2, backend=BackendConfig(name="thread")) == two


def test_an_agent_that_cannot_be_built_leaves_no_worker_behind() -> None:
    config = tiny_config(workers=2)
    config.agent.action_embedding = config.agent.reward_embedding = config.agent.obs_embedding = 0
    with pytest.raises(ValueError, match="nothing to read"):
        Learner(config)  # and the leak check looks for its workers


def test_two_learners_do_not_train_into_one_folder(tmp_path: Path) -> None:
    with RunLock(tmp_path), Learner(tiny_config(), tmp_path) as learner, pytest.raises(RunLockError):
        learner.train()
    assert not (tmp_path / RECORD).exists(), "what the refused run would have gone by is nowhere"


def test_the_family_of_a_run_is_built_once_and_only_its_completed_options_are_reached(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    built: list[EnvConfig] = []

    class Counted(PointRobot):
        """Takes 0 as its time limit and completes it, as families of registered environments do."""

        def __init__(self, config: PointRobotConfig) -> None:
            built.append(config)
            super().__init__(replace(config, max_episode_steps=config.max_episode_steps or 6))

    config = tiny_config()
    config.env.max_episode_steps = 0
    monkeypatch.setitem(FAMILIES, "PointRobot", Counted)
    with Learner(config, tmp_path / "by itself") as learner:
        learner.train()
        assert learner.config.env is learner.family.config and learner.config.env.max_episode_steps == 6
    assert len(built) == 1
    family = make_family(config.env)
    with Learner(config, tmp_path / "given", family=family) as learner:
        learner.train()
        assert learner.family is family
        workers = learner.environments.num_workers
        learner.init_env("meta", "PointRobot", 2, None, 3, num_parallel_workers=workers)
        assert len(built) == 2, "what a script asks for is what there is"
        learner.init_env("meta", "PointRobot", 2, None, 4, num_parallel_workers=workers)
        assert len(built) == 3 and len(learner.eval_tasks) == 4
        assert learner.config.env == replace(config.env, max_episode_steps=6, num_eval_tasks=4)
    assert metrics_of(tmp_path / "given") == metrics_of(tmp_path / "by itself")


def test_no_rollouts_are_no_steps_and_longer_trials_than_the_replays_are_refused() -> None:
    with Learner(tiny_config()) as learner:
        assert learner.collect_rollouts_parallel(0) == 0 == learner.counters.trials
        with (
            ParallelEnvManager(learner.family, 3, episodes_per_trial=3) as longer,
            pytest.raises(ValueError, match=r"21 rows.*14"),
        ):
            learner.collect_rollouts_parallel(1, parallel_env=longer)
