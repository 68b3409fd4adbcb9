"""What a run folder records is read as it stands: never followed, filled in or run, whoever wrote it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from configs.compose import MODES, Composer
from configs.records import HYDRAS, is_among, recorded
from configs.runs import continued
from envs.meta.mixtures.mixture import MixtureConfig
from envs.meta.third_party.openenv import OpenEnvConfig
from policies.run.config import CHECKPOINTS, FORMAT, RECORD, Config, plain, save
from tests.envs.remote.fake_server import FakeServer
from utils.checkpoint import CheckpointStore
from utils.options import OptionError

STARTED = ["env=AntDir", "agent=Markov", "train.n_env_steps_total=5000"]


@pytest.fixture
def run_dir(composer: Composer, tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    save(composer.config(composer.parse(STARTED)), folder)
    return folder


def refusal(composer: Composer, run_dir: Path, words: str = "", mode: str = "resume") -> str:
    """The one sentence that refuses a run folder."""
    with pytest.raises(OptionError) as caught:
        again(composer, run_dir, words, mode)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def again(composer: Composer, run_dir: Path, words: str = "", mode: str = "resume") -> Config:
    return continued(composer, mode, composer.parse([f"{mode}={run_dir}", *words.split()])).config


@pytest.mark.parametrize("text", ["", "[1, 2", "env: {family: Gone}", "env: 3", "- 1", "\x00"])
def test_a_damaged_record_is_one_sentence(composer: Composer, run_dir: Path, text: str) -> None:
    (run_dir / RECORD).write_text(text)
    with pytest.raises(OptionError) as caught:
        recorded(run_dir, "resume")
    assert "cannot be read as the config of a run" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_run_of_another_format_is_refused_with_the_commit_that_reads_it(
    composer: Composer, run_dir: Path
) -> None:
    text = (run_dir / RECORD).read_text()
    for line, sentence in (
        ("", "the last commit that reads it is b8605dc."),
        (
            f"format: {FORMAT + 1}\n",
            f"has format {FORMAT + 1}, and this version of Retrial reads format {FORMAT}.",
        ),
    ):
        (run_dir / RECORD).write_text(text.replace(f"format: {FORMAT}\n", line))
        with pytest.raises(OptionError, match=sentence):
            recorded(run_dir, "resume")


def test_a_run_of_the_tree_before_the_renaming_is_refused_before_its_old_options_are_read(
    composer: Composer, run_dir: Path
) -> None:
    """Its config has old names inside, such as algorithm.trace, and no number of a format."""
    values = yaml.safe_load((run_dir / RECORD).read_text())
    del values["format"]
    values["algorithm"] |= {"name": "PPO", "trace": 0.9, "init_deviation": 1.0, "value_weight": 0.5}
    (run_dir / RECORD).write_text(yaml.safe_dump(values))
    for mode in MODES:
        with pytest.raises(OptionError, match="the last commit that reads it is b8605dc") as caught:
            again(composer, run_dir, mode=mode)
        assert "\n" not in str(caught.value)


def test_an_option_that_is_no_more_is_named(composer: Composer, run_dir: Path) -> None:
    (run_dir / RECORD).write_text((run_dir / RECORD).read_text() + "bygone: 1\n")
    with pytest.raises(OptionError, match="bygone"):
        recorded(run_dir, "resume")


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "wandb: {project: '${oc.env:HOME}'}",
            "wandb.project is '${oc.env:HOME}': a record",
        ),
        ("seed: ${train.n_env_steps_total}", "a record is not filled in"),
        ("'${oc.env:HOME}': 3", "a record is not filled in"),
        ("env: {wrappers: [a, '${oc.env:HOME}']}", "env.wrappers.1 is '${oc.env:HOME}'"),
        (LAUGHS, "it has an alias"),
        ("x: " + "[" * 20_000, "its brackets are too deep"),
        ("x: " + "a" * 1_000_001, "it has more than 1,000,000 bytes"),
        ("seed: !!python/object/apply:os.system [touch executed]", "it has a tag"),
        ("seed: !!binary aGFsbG8=", "it has a tag"),
        ("seed: 2020-01-01", "seed"),
    ],
)
def test_a_record_is_not_filled_in_nor_blown_up_nor_executed(
    composer: Composer, run_dir: Path, monkeypatch: pytest.MonkeyPatch, text: str, sentence: str
) -> None:
    monkeypatch.chdir(run_dir.parent)
    (run_dir / RECORD).write_text((run_dir / RECORD).read_text() + f"{text}\n")
    for mode in MODES:
        assert sentence in refusal(composer, run_dir, mode=mode)
    assert [path.name for path in run_dir.parent.iterdir()] == [run_dir.name]


def with_checkpoint(composer: Composer, run_dir: Path) -> dict[str, Any]:
    """A checkpoint of the run that the folder records; the values of the record."""
    config = again(composer, run_dir)
    CheckpointStore(run_dir / CHECKPOINTS).save(7, tensors={}, facts={"config": plain(config)})
    return yaml.safe_load((run_dir / RECORD).read_text())


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("seed", 5, "seed=5, and the run was trained with seed=0"),
        ("num_slots", 7, "num_slots=7, and the run was trained with num_slots=32"),
        ("deterministic", True, "deterministic=true"),
        ("agent.hidden", [32], "agent.hidden=[32]"),
        ("env.max_episode_steps", 9, "env.max_episode_steps=9"),
        ("algorithm.discount", 0.5, "algorithm.discount=0.5"),
    ],
)
def test_a_record_that_was_edited_is_refused_by_the_option(
    composer: Composer, run_dir: Path, name: str, value: Any, said: str
) -> None:
    values = with_checkpoint(composer, run_dir)
    for mode in MODES:
        again(composer, run_dir, mode=mode)
    section: Any = values
    *sections, last = name.split(".")
    for part in sections:
        section = section[part]
    assert section[last] != value
    section[last] = value
    (run_dir / RECORD).write_text(yaml.safe_dump(values))
    for mode in MODES:
        assert said in refusal(composer, run_dir, mode=mode)


def test_what_a_resume_may_change_may_be_another_than_in_the_checkpoint(
    composer: Composer, run_dir: Path
) -> None:
    """A resume records its new total before its first checkpoint, and may be killed in between."""
    values = with_checkpoint(composer, run_dir)
    values["train"]["n_env_steps_total"] = 9000
    values["backend"]["call_timeout_s"] = 7.0
    (run_dir / RECORD).write_text(yaml.safe_dump(values))
    for mode in MODES:
        assert again(composer, run_dir, mode=mode).train.n_env_steps_total == 9000


def test_without_its_record_a_run_is_missed_in_a_sentence(composer: Composer, run_dir: Path) -> None:
    with_checkpoint(composer, run_dir)
    (run_dir / HYDRAS).mkdir()
    (run_dir / RECORD).rename(run_dir / HYDRAS / RECORD)
    for mode in MODES:
        assert "it has checkpoints but no config.yaml" in refusal(composer, run_dir, mode=mode)
        sentence = f"it is Hydra's part of one. Did you mean {str(run_dir)!r}?"
        assert sentence in refusal(composer, run_dir / HYDRAS, mode=mode)


def test_permissions_are_given_by_the_command_alone(
    composer: Composer, run_dir: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with_checkpoint(composer, run_dir)
    (run_dir / CHECKPOINTS / "segments").symlink_to(home)
    with (run_dir / RECORD).open("a") as file:
        file.write("allow_links: true\nresume_without_damaged: true\n")
    for mode in MODES:
        assert "allow_links=true lets the segments" in refusal(composer, run_dir, mode=mode)
        assert "is a link" in refusal(composer, run_dir, "allow_links=false", mode=mode)
        config = again(composer, run_dir, "allow_links=true", mode)
        assert config.allow_links and not config.resume_without_damaged
        save(replace(config, allow_links=True), run_dir)
        assert "allow_links" not in (run_dir / RECORD).read_text()
    assert again(composer, run_dir, "allow_links=true resume_without_damaged=true").resume_without_damaged


@pytest.mark.parametrize("name", [RECORD, "metrics.jsonl", "checkpoints", "evaluation.json", ".lock", "x"])
def test_a_link_is_refused_before_anything_is_read(
    composer: Composer, run_dir: Path, tmp_path: Path, name: str
) -> None:
    target = tmp_path / "target"
    if (run_dir / name).exists():
        (run_dir / name).rename(target)
    (run_dir / name).symlink_to(target)
    for mode in MODES:
        assert f"{name} is a link" in refusal(composer, run_dir, mode=mode)


MODULE = """
import pathlib
import gymnasium
pathlib.Path(__file__).with_name("executed").touch()
name = __name__.rpartition(".")[2].replace("_", "-") + "-v0"
if name not in gymnasium.registry:
    gymnasium.register(name, "gymnasium.envs.classic_control:PendulumEnv", max_episode_steps=9)
"""


@pytest.fixture
def evil(composer: Composer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run folder with a module in it, whose record names that module."""
    folder = tmp_path / "outputs" / "evil_run"
    folder.mkdir(parents=True)
    words = ["env=Gymnasium", "env.id=Pendulum-v1", "algorithm=SAC"]
    save(composer.config(composer.parse(words)), folder)
    (folder / "evil_module.py").write_text(MODULE)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return folder


def name_module(folder: Path, module: str) -> None:
    values = yaml.safe_load((folder / RECORD).read_text())
    values["env"]["id"] = f"{module}:{module.rpartition('.')[2].replace('_', '-')}-v0"
    (folder / RECORD).write_text(yaml.safe_dump(values))


@pytest.mark.parametrize("way", ["in the run's folder", "in the current folder", "a package of folders"])
def test_a_record_does_not_choose_where_modules_come_from(
    composer: Composer, evil: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    module, place = "evil_module", evil
    if way == "in the current folder":
        place = tmp_path
        (evil / "evil_module.py").rename(tmp_path / "evil_module.py")
        monkeypatch.chdir(tmp_path)
    if way == "a package of folders":
        module = "outputs.evil_run.evil_module"
    monkeypatch.syspath_prepend(str(tmp_path if way == "a package of folders" else place))
    name_module(evil, module)
    for mode in MODES:
        assert "lies in the " in refusal(composer, evil, mode=mode)
    assert not list(tmp_path.rglob("executed")) and module not in sys.modules
    # From anywhere else it is imported, as in the run's first command.
    monkeypatch.chdir(tmp_path.parent)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "evil_elsewhere.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(elsewhere))
    name_module(evil, "evil_elsewhere")
    assert again(composer, evil) and (elsewhere / "executed").exists()
    del sys.modules["evil_elsewhere"]


def test_sections_hold_their_options() -> None:
    assert is_among("backend.name", ["backend."]) and is_among("seed", ["seed"])
    assert not is_among("seeds", ["seed"]) and not is_among("backend", ["backend."])
    assert is_among("env.parts.far.urls", ["env.parts.*.urls"])
    assert not is_among("env.parts.far.size.urls", ["env.parts.*.urls"])
    assert not is_among("env.parts.far.urls_too", ["env.parts.*.urls"])


def test_a_record_starts_no_server_and_sends_no_secret(composer: Composer, tmp_path: Path) -> None:
    env = OpenEnvConfig(serve="module:app", headers_from_env=["Authorization:HOME"])
    save(replace(composer.config(composer.parse(STARTED)), env=env), tmp_path)
    written = yaml.safe_load((tmp_path / RECORD).read_text())
    assert "serve" not in written["env"] and "headers_from_env" not in written["env"]
    # Nor is what somebody else has put there read.
    written["env"] |= {"serve": "module:app", "headers_from_env": ["Authorization:HOME"]}
    (tmp_path / RECORD).write_text(yaml.safe_dump(written))
    read = recorded(tmp_path, "resume").env
    assert read.serve is None and read.headers_from_env == []


def test_a_record_of_a_mixture_starts_no_server_and_sends_no_secret(
    composer: Composer, tmp_path: Path
) -> None:
    secret = {"serve": "module:app", "headers_from_env": ["Authorization:HOME"]}
    parts = {"far": {"family": "OpenEnv", "patience_s": 7.0} | secret, "grid": "GridNavi"}
    save(replace(composer.config(composer.parse(STARTED)), env=MixtureConfig(parts=parts)), tmp_path)
    written = yaml.safe_load((tmp_path / RECORD).read_text())
    assert written["env"]["parts"] == {"far": {"family": "OpenEnv", "patience_s": 7.0}, "grid": "GridNavi"}
    # Nor is what somebody else has put there read.
    written["env"]["parts"]["far"] |= secret
    (tmp_path / RECORD).write_text(yaml.safe_dump(written))
    read = recorded(tmp_path, "resume").env.parts
    assert set(read.far) == {"family", "patience_s"} and read.grid == "GridNavi"


def test_a_resume_may_serve_a_part_again_and_find_it_elsewhere(composer: Composer, tmp_path: Path) -> None:
    part = {"family": "OpenEnv", "observation": ["numbers:4"], "actions": ["column:4"]}
    config = composer.config(composer.parse(["env=Mixture", "algorithm=PPO"]))
    with FakeServer() as gone, FakeServer() as server:
        parts = {"far": part | {"urls": [gone.url]}, "near": part | {"urls": [gone.url]}}
        save(replace(config, env=replace(config.env, parts=parts)), tmp_path)  # pyright: ignore[reportCallIssue]
        config = again(composer, tmp_path, f"env.parts.far.urls=[{server.url}]")
        assert config.env.parts["far"]["urls"] == [server.url]  # pyright: ignore[reportAttributeAccessIssue]
        said = refusal(composer, tmp_path, "env.parts.far.serve=module:app")
        assert "urls= are servers that run already, and serve= starts some" in said
        said = refusal(composer, tmp_path, "env.parts.far.patience_s=3")
        assert "env.parts.far.patience_s=3 cannot change with resume=" in said
