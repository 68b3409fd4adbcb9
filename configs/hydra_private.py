"""Every private part of Hydra and OmegaConf that Retrial uses, behind names of our own.

A release of either library may change these parts without notice. tests/configs/test_hydra_private.py calls
each of them, and a rule in tests/test_architecture.py keeps them out of every other file.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from hydra._internal.callbacks import Callbacks
from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path, get_args_parser
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from hydra.core.utils import run_job
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, Node, open_dict, read_write

# Hydra's name of the program: the log file of a run is `main.log`.
JOB = "main"
# The file that composes a run: configs/config.yaml.
CONFIG = "config"


def flag_parser(refuse: Callable[[str], NoReturn]) -> argparse.ArgumentParser:
    """Hydra's own parser of flags; a mistake goes to `refuse`, where Hydra would print a page and leave."""
    # Hydra builds the parser itself, so its method can only be replaced afterwards.
    parser = get_args_parser()
    setattr(parser, "error", refuse)  # noqa: B010 - a method
    return parser


def search_also(own_folder: str, folder: Path) -> None:
    """Start Hydra anew, so that what our folder does not have is searched in a folder of the user's."""
    folders = create_config_search_path(str(folder))
    location = f"file://{Path(own_folder).resolve()}"
    folders.prepend("command-line", location, SearchPathQuery(provider="schema"))
    # The search path cannot change once Hydra stands.
    GlobalHydra.instance().clear()
    Hydra.create_main_hydra2(JOB, folders)


def job_words(overrides: Sequence[Override]) -> Iterator[list[str]]:
    """The words of every job of a multirun, in the order in which Hydra's own sweeper runs them."""
    for batch in BasicSweeper.split_arguments(list(overrides), None):
        yield from batch


def record_overrides(composed: DictConfig, overrides: Sequence[Override]) -> None:
    """Note in a composed config which overrides were given, as Hydra does where it applies them itself."""
    # Hydra's own options are in its record already: it composed with them.
    task = [override for override in overrides if not override.is_hydra_override()]
    # `${hydra.job.override_dirname}` may stand in hydra.run.dir.
    names = composed.hydra.job.config.override_dirname
    with read_write(composed.hydra), open_dict(composed.hydra):
        composed.hydra.overrides.task = [override.input_line for override in task]
        composed.hydra.job.override_dirname = get_overrides_dirname(
            overrides=task, kv_sep=names.kv_sep, item_sep=names.item_sep, exclude_keys=names.exclude_keys
        )


def run_composed(composed: DictConfig, task: Callable[[Path], Any]) -> None:
    """Run a task in its run folder as `hydra.main` would, but with a config that is composed already.

    Hydra makes the folder, with its `.hydra/` and its log file, and calls the callbacks of the config.
    """
    # What hydra.main notes about the way in which it was started.
    if composed.hydra.mode is None:
        composed.hydra.mode = RunMode.RUN
        composed.hydra.overrides.hydra.append("hydra.mode=RUN")
    callbacks = Callbacks(composed)
    loader = ConfigLoaderImpl(create_config_search_path(None))  # for launchers, of which there is none here
    callbacks.on_run_start(config=composed, config_name=CONFIG)
    done = run_job(
        task_function=lambda _: task(Path(HydraConfig.get().runtime.output_dir)),
        config=composed,
        job_dir_key="hydra.run.dir",
        job_subdir_key=None,
        hydra_context=HydraContext(config_loader=loader, callbacks=callbacks),
    )
    callbacks.on_run_end(config=composed, config_name=CONFIG, job_return=done)
    _ = done.return_value  # raises what the task has raised


def merged_configs(words: Sequence[str]) -> Iterator[tuple[str, str, DictConfig]]:
    """(name, package, content) of each YAML file that Hydra merges, the last of which wins."""
    loader = GlobalHydra.instance().config_loader()
    assert isinstance(loader, ConfigLoaderImpl)
    # The defaults list is flat: each file with the package into which its content goes.
    for default in loader.compute_defaults_list(CONFIG, list(words), RunMode.RUN).defaults:
        assert default.config_path is not None
        # Only files of ours and of the user's: schemas and Hydra's own configs have no path on the disk.
        loaded = loader.repository.load_config(default.config_path)
        if loaded is not None and loaded.path.startswith("file://"):
            assert isinstance(loaded.config, DictConfig)
            yield default.config_path, default.package or "", loaded.config


def node_of(config: DictConfig, key: Any) -> Any:
    """The node of a key, which knows its type even where its value is missing."""
    return config._get_node(key)


def is_missing(node: Node) -> bool:
    """Whether the value of a node is still `???`."""
    return node._is_missing()


def accepts_null(node: Node) -> bool:
    """Whether the type of a node has a null."""
    return node._is_optional()
