"""A new run looks at its folder and locks it before anybody writes there."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import DictConfig

from configs.compose import Composer
from configs.launch import launch, refuse_folder, run_folder_of
from policies.run.config import CHECKPOINTS
from utils.checkpoint import CheckpointStore
from utils.options import OptionError
from utils.run_lock import RunLock, RunLockError


def composed_for(composer: Composer, folder: Path) -> DictConfig:
    # Hydra leaves its log file open until the process ends.
    words = [f"hydra.run.dir='{folder}'", "env=Wind", "hydra/job_logging=none"]
    return composer.dict_config(composer.parse(words))


def test_the_folder_is_known_before_hydra_makes_it(composer: Composer, tmp_path: Path) -> None:
    assert run_folder_of(composed_for(composer, tmp_path / "ü")) == tmp_path / "ü"
    composed = composer.dict_config(composer.parse(["hydra.run.dir='x/${env.family}'", "env=Wind"]))
    assert run_folder_of(composed) == Path.cwd() / "x" / "Wind"
    default = composer.dict_config(composer.parse(["env=Wind"]))
    assert run_folder_of(default) == run_folder_of(default), "though its name is the time"
    later = composer.dict_config(composer.parse(["hydra.run.dir='${hydra.job.id}'", "env=Wind"]))
    assert run_folder_of(later) is None and not (tmp_path / "ü").exists()


def test_gymnasium_environments_have_folders_of_their_own(composer: Composer) -> None:
    words = ["env=Gymnasium", "env.id=Acrobot-v1"]
    composed = composer.dict_config(composer.parse(words))
    folder = run_folder_of(composed)
    assert folder is not None and folder.parent == Path.cwd() / "outputs" / "Acrobot-v1"
    assert Path(composed.hydra.sweep.dir).parent == Path("multirun/Acrobot-v1")
    composed = composer.dict_config(composer.parse([*words, "hydra.run.dir=x"]))
    assert run_folder_of(composed) == Path.cwd() / "x", "the command line wins"


def test_a_run_is_launched_with_the_lock_of_its_folder(composer: Composer, tmp_path: Path) -> None:
    def task(folder: Path, lock: RunLock | None) -> None:
        assert folder == tmp_path / "run" and lock is not None and (folder / ".hydra").is_dir()
        with pytest.raises(RunLockError, match="is in use"):
            RunLock(folder)

    launch(composed_for(composer, tmp_path / "run"), task)
    RunLock(tmp_path / "run").release()


def test_the_second_of_two_runs_leaves_the_records_of_the_first_alone(
    composer: Composer, tmp_path: Path
) -> None:
    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra" / "config.yaml").write_text("of the first")
    with RunLock(tmp_path), pytest.raises(SystemExit, match="is in use by process"):
        launch(composed_for(composer, tmp_path), lambda folder, lock: pytest.fail("it has begun"))
    assert (tmp_path / ".hydra" / "config.yaml").read_text() == "of the first"
    assert not (tmp_path / "main.log").exists()


def test_what_stands_in_the_way_on_the_disk_is_a_sentence(composer: Composer, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "run" / ".hydra" / "config.yaml").mkdir(parents=True)
    for folder, said in (("file/x", "cannot be made or written"), ("run", "cannot be written")):
        with pytest.raises(SystemExit, match=said) as caught:
            launch(
                composed_for(composer, tmp_path / folder), lambda folder, lock: pytest.fail("it has begun")
            )
        assert "\n" not in str(caught.value)


def test_an_error_of_the_run_itself_stays_what_it_is(composer: Composer, tmp_path: Path) -> None:
    def task(folder: Path, lock: RunLock | None) -> None:
        raise FileNotFoundError("our own fault")

    with pytest.raises(FileNotFoundError, match="our own fault"):
        launch(composed_for(composer, tmp_path), task)


def test_a_folder_with_links_or_of_a_run_takes_no_other(tmp_path: Path) -> None:
    refuse_folder(tmp_path / "new", allow_links=False)
    (tmp_path / "main.log").symlink_to(tmp_path / "home")
    with pytest.raises(OptionError, match=r"main\.log is a link"):
        refuse_folder(tmp_path, allow_links=False)
    (tmp_path / "main.log").unlink()
    CheckpointStore(tmp_path / CHECKPOINTS).save(1, tensors={}, facts={})
    with pytest.raises(OptionError, match="holds a run"):
        refuse_folder(tmp_path, allow_links=False)
