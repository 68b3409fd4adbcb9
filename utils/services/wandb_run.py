"""Weights & Biases at arm's length: offline by default, one run per process, no failure reaches training."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from utils.environment import is_secret, secret_values, without_secrets
from utils.logger import STEP_KEY
from utils.options import option
from utils.services.base import points

log = logging.getLogger(__name__)

START_SECONDS = 15.0
FINISH_SECONDS = 60.0
_GRACE_SECONDS = 2.0  # wandb keeps its own limit; this one is for a start that hangs before or after it


class WandbMode(Enum):
    """Where a run is recorded."""

    offline = "offline"
    online = "online"
    disabled = "disabled"


@dataclass
class WandbConfig:
    """Weights & Biases; offline runs can be uploaded later with `wandb sync`."""

    mode: WandbMode = option(WandbMode.offline, "offline, online or disabled")
    project: str = option("retrial", "project")
    entity: str | None = option(None, "user or team; null takes the account's default")
    group: str | None = option(None, "group; null groups the seeds of one experiment")
    tags: list[str] = option([], "further tags")
    name: str | None = option(None, "name of the run; null: the group with the seed")
    notes: str | None = option(None, "what to remember of the run")
    job_type: str = option("train", "kind of run, by which W&B can group")
    artifact: bool = option(False, "store the agent, with the record in the run folder, as an artifact")


def redact(value: Any, secrets: Sequence[str] | None = None) -> Any:
    """Settings with stars for what may log in: secret names, users of URLs, values of secret variables.

    The secret variables are those of this process, unless their values are given.
    """
    if secrets is None:
        secrets = secret_values(os.environ)
    if isinstance(value, Mapping):
        hidden = {name for name, part in value.items() if part and is_secret(str(name))}
        return {str(name): redact(part, secrets) for name, part in value.items()} | {
            str(name): "***" for name in hidden
        }
    if isinstance(value, (list, tuple)):
        return [redact(part, secrets) for part in value]
    if isinstance(value, str):
        return without_secrets(value, secrets)
    return value


class WandbRun:
    """One run, or an inert stand-in: `run_id` and `place` are None then, and every method does nothing."""

    def __init__(self, run: Any = None) -> None:
        self._run = run
        self._pid = os.getpid()
        self._evaluated: set[str] = set()
        self.run_id: str | None = None
        # The folder of an offline run, the address of an online one.
        self.place: str | None = None
        if run is not None:
            self.run_id = run.id
            self.place = str(Path(run.dir).parent) if run.offline else run.url

    @classmethod
    def start(
        cls,
        config: WandbConfig,
        *,
        folder: Path,
        settings: Mapping[str, Any],
        name: str,
        group: str,
        tags: Sequence[str] = (),
        run_id: str | None = None,
        job_type: str | None = None,
        timeout: float = START_SECONDS,
    ) -> WandbRun:
        """Start recording into `folder/wandb`; online falls back to offline, and that to an inert run.

        Each failure is a warning. Neither attempt takes more than `timeout` seconds and a moment.
        """
        if config.mode is WandbMode.disabled:
            return cls()
        described = {
            "config": redact(settings),
            "name": redact(config.name or name),
            "notes": redact(config.notes),
            "job_type": redact(job_type or config.job_type),
            "group": redact(config.group or group),
            "tags": redact([*tags, *config.tags]),
        }
        modes = [WandbMode.offline]
        if config.mode is WandbMode.online:
            modes.insert(0, WandbMode.online)
        for mode in modes:
            try:
                make = partial(_init, replace(config, mode=mode), folder, described, run_id, timeout)
                return cls(_bounded(make, timeout + _GRACE_SECONDS, late=lambda run: run.finish()))
            except Exception as error:  # noqa: BLE001 - a service may raise anything, and training starts
                instead = "recorded offline, for `wandb sync`"
                if mode is modes[-1]:
                    instead = "recorded in metrics.jsonl only"
                log.warning(
                    "W&B did not start %s (%s): this run is %s.", mode.name, _first_line(error), instead
                )
        return cls()

    def log(self, env_steps: int, values: Mapping[str, Any]) -> None:
        """One point of each metric, and of the spread where there is a table, which W&B would not draw."""
        point = {STEP_KEY: env_steps, **points(values)}
        evaluated = {name for name in point if name.startswith("eval/")} - self._evaluated
        self._evaluated |= evaluated
        self._guarded(lambda run: _log(run, point, evaluated))

    def summary(self, values: Mapping[str, Any]) -> None:
        """The results shown beside the run's name."""
        self._guarded(lambda run: run.summary.update(dict(values)))

    def media(self, env_steps: int, files: Sequence[Path]) -> None:
        """Pictures and films, which W&B shows under the names of their files."""
        if files:
            self._guarded(lambda run: run.log({STEP_KEY: env_steps, **_media(files)}))

    def artifact(self, files: Mapping[str, Path]) -> None:
        """Store files under these names as one artifact of the run, of the type "model"."""
        self._guarded(lambda run: run.log_artifact(_artifact(f"agent-{run.id}", files)))

    def close(self, exit_code: int = 0) -> None:
        """Close the run; a second call does nothing."""
        self._guarded(lambda run: _bounded(lambda: run.finish(exit_code=exit_code), FINISH_SECONDS))
        self._run = None

    def _guarded(self, call: Callable[[Any], Any]) -> None:
        """Call something of W&B's; a failure is a warning, and the last call."""
        # A forked worker holds a copy of the run and of its socket, which only their own process may use.
        if self._run is None or os.getpid() != self._pid:
            return
        try:
            call(self._run)
        except Exception as error:  # noqa: BLE001 - whatever a third-party service raises, training goes on
            self._run = None
            log.warning(
                "W&B failed (%s): from here on this run is recorded in metrics.jsonl only.",
                _first_line(error),
            )


def _init(
    config: WandbConfig, folder: Path, described: dict[str, Any], run_id: str | None, timeout: float
) -> Any:
    """Start a run of W&B's, with everything switched off that would tell of the machine or its user."""
    import wandb  # here, so that a run without it neither needs it nor pays for its import

    # Without this folder wandb would quietly write to a temporary one.
    (folder / "wandb").mkdir(parents=True, exist_ok=True)
    settings = wandb.Settings(
        console="off",
        silent=True,
        save_code=False,
        disable_git=True,
        disable_code=True,
        x_disable_meta=True,  # otherwise the command line, the host and the user are recorded
        x_disable_machine_info=True,
        host="",
        x_disable_stats=True,
        x_save_requirements=False,
        init_timeout=timeout,
        x_service_wait=timeout,
    )
    # Silent from here on: otherwise online without a key asks for one, in the middle of the console.
    wandb.setup(settings)
    run = wandb.init(
        project=config.project,
        entity=config.entity,
        dir=str(folder),
        id=run_id,
        resume="allow" if run_id and config.mode is WandbMode.online else None,
        mode=config.mode.value,
        reinit="finish_previous",
        settings=settings,
        **described,
    )
    run.define_metric(STEP_KEY)
    run.define_metric("*", step_metric=STEP_KEY)
    return run


def _log(run: Any, point: Mapping[str, Any], evaluated: Collection[str]) -> None:
    """One point; of the numbers of an evaluation that are new, the best is to stand in the summary, too."""
    # By name, since W&B takes any of the rules with a star that fit a name.
    for name in evaluated:
        run.define_metric(name, step_metric=STEP_KEY, summary="max,last")
    run.log(point)


def _media(files: Sequence[Path]) -> dict[str, Any]:
    import wandb

    kinds = {".gif": wandb.Video, ".png": wandb.Image}
    return {path.stem: kinds[path.suffix](str(path)) for path in files}


def _artifact(name: str, files: Mapping[str, Path]) -> Any:
    import wandb

    artifact = wandb.Artifact(name, type="model")
    for place, path in files.items():
        artifact.add_file(str(path), name=place)
    return artifact


def _bounded(
    call: Callable[[], Any], seconds: float, late: Callable[[Any], Any] = lambda result: None
) -> Any:
    """The result of a call, or TimeoutError after so many seconds; a later result goes to `late`."""
    # A thread of a pool would be waited for when the interpreter ends; this one may hang, and so is a daemon.
    outcome: list[Any] = []
    failure: list[Exception] = []
    done, given_up = threading.Event(), threading.Event()

    def work() -> None:
        try:
            outcome.append(call())
            if given_up.is_set():
                late(outcome[0])
        except Exception as error:  # noqa: BLE001 - carried to the caller's thread
            failure.append(error)
        finally:
            done.set()

    threading.Thread(target=work, name="wandb", daemon=True).start()
    if not done.wait(seconds):
        given_up.set()
        raise TimeoutError(f"no answer in {seconds:g} s")
    if failure:
        raise failure[0]
    return outcome[0]


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]
