"""All jobs of a sweep are checked, with the folders that they will have, before one of them starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from configs.compose import Composer
from configs.sweep.plan import SweepPlan, _at_once, plan_sweep
from policies.run.config import CHECKPOINTS, save
from utils.checkpoint import CheckpointStore
from utils.options import OptionError


def plan_of(composer: Composer, *words: str) -> SweepPlan:
    return plan_sweep(composer, composer.parse(words))


def hold(composer: Composer, folder: Path, *words: str) -> None:
    """Let a folder hold the run of these words."""
    folder.mkdir(parents=True)
    save(composer.config(composer.parse(words)), folder)
    CheckpointStore(folder / CHECKPOINTS).save(1, tensors={}, facts={}, segments={})


def own_folders(folder: Path, sweep: str, job: str) -> Composer:
    """A composer with an experiment of one's own, which sets the folders."""
    text = f"# @package _global_\nhydra:\n  sweep:\n    dir: '{sweep}'\n    subdir: '{job}'\n"
    (folder / "experiment").mkdir(parents=True)
    (folder / "experiment" / "own.yaml").write_text(text)
    return Composer(str(folder))


def test_jobs_of_several_environments_share_a_folder_so_that_a_report_finds_them(composer: Composer) -> None:
    plan = plan_of(composer, "env=Wind,GridNavi", "seed=0,1")
    assert plan.folder is not None and plan.folder.parent == Path("multirun/several").absolute()
    assert [job.folder for job in plan.jobs] == [plan.folder / str(number) for number in range(4)]
    assert plan.jobs[3].words == "env=GridNavi seed=1"
    alone = plan_of(composer, "env=Wind", "seed=0,1").folder
    assert alone is not None and alone.parent == Path("multirun/Wind").absolute()


def test_a_job_goes_on_with_the_same_run_and_another_run_is_refused(
    composer: Composer, tmp_path: Path
) -> None:
    hold(composer, tmp_path / "1", "env=Wind", "seed=1")
    sweep = f"hydra.sweep.dir={tmp_path}"
    assert len(plan_of(composer, "env=Wind", "seed=0,1,2", sweep, "num_parallel_workers=2").jobs) == 3
    plan_of(composer, "env=Wind", "seed=0,1", sweep, "train.n_env_steps_total=9_000_000")
    for words, sentence in (
        (["seed=1,0"], "with seed=1, and this one has seed=0"),
        (["seed=0,1", "env.max_episode_steps=9"], "env.max_episode_steps=75, and this one"),
        (["seed=0,1", "train.n_env_steps_total=9"], "train.n_env_steps_total=2000000, and this one"),
    ):
        with pytest.raises(OptionError, match=sentence):
            plan_of(composer, "env=Wind", *words, sweep)


@pytest.mark.parametrize("job", ["${hydra.job.num}", "deep/${seed}"])
def test_folders_are_looked_at_wherever_they_are_set(tmp_path: Path, job: str) -> None:
    sweep = tmp_path / "PointRobot"
    second = sweep / job.replace("${hydra.job.num}", "1").replace("${seed}", "1")
    with own_folders(tmp_path / "configs", f"{tmp_path}/${{env.family}}", job) as composer:
        overrides = composer.parse(["experiment=own", "seed=0,1"])
        assert plan_sweep(composer, overrides).jobs[1].folder == second
        second.mkdir(parents=True)
        (second / ".hydra").symlink_to(tmp_path)
        with pytest.raises(OptionError, match=r"\.hydra is a link"):
            plan_sweep(composer, overrides)
        (second / ".hydra").unlink()
        (sweep / "multirun.yaml").symlink_to(tmp_path / "thesis.tex")
        with pytest.raises(OptionError, match=r"multirun\.yaml is a link"):
            plan_sweep(composer, overrides)


def test_folders_that_have_nothing_in_common_are_left_to_hydra(tmp_path: Path) -> None:
    with own_folders(tmp_path / "configs", f"{tmp_path}/${{env.family}}", "0") as composer:
        plan = plan_of(composer, "experiment=own", "env=Wind,GridNavi")
    assert plan.folder is None
    assert [job.folder for job in plan.jobs] == [tmp_path / "Wind/0", tmp_path / "GridNavi/0"]


def test_of_another_sweeper_nobody_knows_the_jobs(
    composer: Composer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it leaves alone is checked."""
    compose = composer._compose
    monkeypatch.setattr(composer, "_compose", lambda groups: compose(groups[1:]))
    plan = plan_of(composer, "hydra/sweeper=bayes", "seed=1,2")
    assert plan.jobs == () and plan.folder is not None
    with pytest.raises(OptionError, match="num_slots=0 is out of range"):
        plan_of(composer, "hydra/sweeper=bayes", "seed=1,2", "num_slots=0")


def test_a_folder_of_a_job_that_cannot_be_made_is_a_sentence(composer: Composer, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    words = f"hydra.sweep.dir={tmp_path}", "hydra.sweep.subdir=file/${seed}"
    with pytest.raises(OptionError, match=r"file/0 cannot be made: .*file is no folder\."):
        plan_of(composer, "env=Wind", "seed=0,1", *words)


@pytest.mark.parametrize("subdir", ["/proc/x", "../x", "a/../../x"])
def test_a_job_outside_of_the_folder_of_its_sweep_is_a_sentence(
    composer: Composer, tmp_path: Path, subdir: str
) -> None:
    """Root may write into /proc as far as anybody can tell, and Hydra's error would be a traceback."""
    words = f"hydra.sweep.dir={tmp_path / 'sweep'}", f"hydra.sweep.subdir={subdir}"
    with pytest.raises(
        OptionError, match=r"hydra\.sweep\.subdir leads to .*x, out of the folder of the sweep"
    ):
        plan_of(composer, "env=Wind", "seed=0,1", *words)


@pytest.mark.parametrize(
    ("launcher", "expected"),
    [
        ({"_target_": "hydra._internal.core_plugins.basic_launcher.BasicLauncher"}, 1),
        ({"_target_": "hydra_plugins.joblib_launcher.JoblibLauncher", "n_jobs": 3}, 3),
        ({"_target_": "hydra_plugins.joblib_launcher.JoblibLauncher", "n_jobs": 9}, 5),
        ({"_target_": "hydra_plugins.joblib_launcher.JoblibLauncher", "n_jobs": -1}, 4),
        ({"_target_": "hydra_plugins.x.submitit_launcher.LocalLauncher"}, 5),
        ({"_target_": "hydra_plugins.x.submitit_launcher.SlurmLauncher"}, 1),
    ],
    ids=str,
)
def test_jobs_at_once_are_those_on_this_machine(
    launcher: dict[str, object], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("configs.sweep.plan.available_cores", lambda: 4)
    assert _at_once(OmegaConf.create(launcher), 5) == expected
