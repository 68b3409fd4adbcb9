"""Each private part of Hydra and OmegaConf still is what Retrial takes it for; a release may change them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import NoReturn

import pytest
from hydra._internal import config_loader_impl, utils
from hydra._internal.callbacks import Callbacks
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.hydra import Hydra
from omegaconf import MISSING, DictConfig, ListConfig, OmegaConf

from configs.compose import Composer
from configs.hydra_private import (
    accepts_null,
    flag_parser,
    is_missing,
    job_words,
    merged_configs,
    node_of,
    record_overrides,
    run_composed,
)

PRIVATE = [
    (utils, "get_args_parser", []),
    (utils, "create_config_search_path", ["search_path_dir"]),
    (config_loader_impl, "get_overrides_dirname", ["overrides", "exclude_keys", "item_sep", "kv_sep"]),
    (BasicSweeper, "split_arguments", ["overrides", "max_batch_size"]),
    (Hydra, "create_main_hydra2", ["task_name", "config_search_path"]),
    (ConfigLoaderImpl, "compute_defaults_list", ["self", "config_name", "overrides", "run_mode"]),
    (Callbacks, "on_run_start", ["self", "config", "kwargs"]),
    (Callbacks, "on_run_end", ["self", "config", "kwargs"]),
]


@pytest.mark.parametrize(
    ("owner", "name", "parameters"), PRIVATE, ids=lambda value: getattr(value, "__name__", None)
)
def test_a_private_function_of_hydra_takes_what_it_took(
    owner: object, name: str, parameters: list[str]
) -> None:
    function = getattr(owner, name, None)
    assert function is not None, f"this release of Hydra has no {name}: see configs/hydra_private.py"
    assert sorted(inspect.signature(function).parameters) == sorted(parameters), name


@pytest.mark.parametrize("name", ["_get_node", "_is_missing", "_is_optional"])
def test_a_private_method_of_omegaconf_is_there(name: str) -> None:
    assert hasattr(DictConfig, name) and (name == "_get_node" or hasattr(ListConfig, name)), name


def test_nodes_tell_whether_a_value_is_missing_and_whether_null_is_one() -> None:
    config = OmegaConf.create({"a": 1, "b": MISSING, "c": None})
    assert [is_missing(node_of(config, key)) for key in "abc"] == [False, True, False]
    assert accepts_null(node_of(config, "c"))


def test_the_parser_of_flags_hands_its_mistakes_over() -> None:
    def refuse(message: str) -> NoReturn:
        raise KeyError(message)

    assert flag_parser(refuse).parse_args(["-m", "seed=1"]).multirun
    with pytest.raises(KeyError, match="--cfg"):
        flag_parser(refuse).parse_args(["--cfg", "nothing"])


def test_the_jobs_of_a_sweep_are_those_of_hydras_sweeper(composer: Composer) -> None:
    words = list(job_words(composer.parse(["seed=1,2", "env=Wind"])))
    assert words == [["seed=1", "env=Wind"], ["seed=2", "env=Wind"]]


def test_the_files_that_are_merged_come_in_their_order(composer: Composer) -> None:
    merged = [(name, package) for name, package, _ in merged_configs(["env=AntDir"])]
    assert [name for name, _ in merged][-2:] == ["env/AntDir", "recipe/AntDir_PPO"]
    assert ("agent/Memory", "agent") in merged and ("recipe/AntDir_PPO", "") in merged


def test_a_folder_of_ones_own_is_searched_too(tmp_path: Path) -> None:
    (tmp_path / "backend").mkdir()
    own = "defaults:\n  - /schema/backend@_here_: serial\n  - _self_\ncall_timeout_s: 7\n"
    for name in ("patient", "serial"):
        (tmp_path / "backend" / f"{name}.yaml").write_text(own)
    with Composer(str(tmp_path)) as composer:
        assert composer.dict_config(composer.parse(["backend=patient"])).backend.call_timeout_s == 7
        assert composer.dict_config(composer.parse(["backend=serial"])).backend.call_timeout_s != 7


def test_a_composed_config_runs_in_the_folder_that_hydra_makes_and_records_its_overrides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [
        "env=Wind",
        "seed=3",
        "hydra.run.dir=runs/${hydra.job.override_dirname}",
        "hydra/job_logging=none",
    ]
    with Composer() as composer:
        overrides = composer.parse(words)
        composed = composer.dict_config(overrides)
        record_overrides(composed, overrides)
    folders: list[Path] = []
    run_composed(composed, folders.append)
    assert folders == [tmp_path / "runs" / "env=Wind,seed=3"]
    assert OmegaConf.load(folders[0] / ".hydra" / "overrides.yaml") == ["env=Wind", "seed=3"]


def test_what_a_task_raises_comes_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Path) -> None:
        raise ZeroDivisionError

    monkeypatch.chdir(tmp_path)
    with Composer() as composer, pytest.raises(ZeroDivisionError):
        run_composed(composer.dict_config(composer.parse(["hydra/job_logging=none"])), fail)
