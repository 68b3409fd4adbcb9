"""What is asked of a service before a run: whether it is there, as declared, and repeats itself."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.base import Obs, arrays_of, uniform_actions
from envs.interop.spaces import MASK_KEY
from envs.loop_thread import LoopThread
from envs.remote.observations import FieldError
from envs.remote.pages import get_json
from envs.remote.protocol import CapacityError, RemoteError, SessionLostError, shown_url
from envs.remote.remote_shard import session_of
from envs.remote.service_setup import ServiceSetup
from envs.remote.session import Session
from utils.options import OptionError, nearest

_log = logging.getLogger(__name__)

# So many steps are played to see whether a service repeats itself.
STEPS = 12
# Seats that a server should have besides: a session that was given up holds its own until its step is over.
SPARE_SEATS = 4
# What differs between two tasks may not show in every episode: so many are played, or for so many seconds.
EPISODES, TASKS_S = 10, 5.0
# How long the seats are asked for; a refusal comes at once.
SEATS_S = 5.0


@dataclass(frozen=True)
class Findings:
    """What a probe has found out."""

    deterministic: bool
    heeds_seed: bool
    heeds_task: bool


def probe(setup: ServiceSetup, tasks: NDArray[np.float64], num_slots: int) -> Findings:
    """Ask the servers everything that can be asked before a run; a refusal is an `OptionError`.

    `tasks` are two, different ones where there are any. `num_slots` sessions are opened at the same time.
    """
    for url in setup.urls:
        _check_schema(setup, url)
    found: list[Findings] = []

    async def work() -> None:
        found.append(await _findings(setup, tasks))
        await _check_seats(setup, tasks[0], num_slots)

    loop = LoopThread("event loop of a probe")
    try:
        loop.run(work())
    except (RemoteError, FieldError) as error:
        server = ", ".join(map(shown_url, setup.urls))
        said = str(error).removesuffix(".")
        raise OptionError(f"OpenEnv cannot be played on {server}: {said}.") from error
    finally:
        loop.end()
        loop.thread.join()
    return found[0]


def _check_schema(setup: ServiceSetup, url: str) -> None:
    """The names of fields are those of the server, as far as it has a schema."""
    try:
        schema = get_json(url, "schema", setup.headers)
    except RemoteError as error:
        raise OptionError(str(error)) from error
    for part, option, names in (
        ("observation", "observation", setup.reader.names),
        ("action", "actions", setup.writer.names),
    ):
        described = schema.get(part) if isinstance(schema, Mapping) else None
        known = described.get("properties") if isinstance(described, Mapping) else None
        if not isinstance(known, Mapping) or not known:
            continue
        for name in names:
            if name not in known:
                raise OptionError(
                    f"{shown_url(url)} has no field {name!r} in its {part} ({option}=).{nearest(name, known)}"
                )


async def _findings(setup: ServiceSetup, tasks: NDArray[np.float64]) -> Findings:
    """Play the same episode twice, then one with another seed and one of another task."""
    session = session_of(setup, setup.urls[0])
    try:
        first = await _played(setup, session, tasks[0], seed=1)
        again = await _played(setup, session, tasks[0], seed=1)
        await session.close()
        fresh = await _played(setup, session, tasks[0], seed=1)
        other_seed = await _played(setup, session, tasks[0], seed=2)
        has_tasks = bool((tasks[0] != tasks[1]).any())
        heeds_task = not has_tasks or await _differ(setup, session, tasks)
    finally:
        await session.close()
    return Findings(first == again == fresh, first != other_seed or setup.tasks.by_seed, heeds_task)


async def _differ(setup: ServiceSetup, session: Session, tasks: NDArray[np.float64]) -> bool:
    """Whether some episode is another one on another task, with the same seed and actions."""
    until = time.monotonic() + TASKS_S
    for number in range(1, EPISODES + 1):
        if number > 1 and time.monotonic() > until:
            break
        first, second = [await _played(setup, session, task, number, actions=number) for task in tasks]
        if first != second:
            return True
    return False


async def _played(
    setup: ServiceSetup, session: Session, task: NDArray[np.float64], seed: int, actions: int = 0
) -> list[tuple[bytes, float | None, bool]]:
    """The rows of one episode, whose actions depend on a number, on what is legal and on nothing else."""
    rng = np.random.default_rng(actions)
    answer = await session.reset(setup.tasks.reset_arguments(task, seed))
    rows: list[tuple[bytes, float | None, bool]] = []
    for _ in range(STEPS):
        with _told("read", setup.reader.function):
            obs = setup.reader.read(answer.observation)
        bits = b"".join(array.tobytes() for array in arrays_of(obs))
        rows.append((bits, answer.reward, answer.done))
        if answer.done:
            break
        answer = await session.step(_written(setup, _legal_action(setup, rng, obs)))
    return rows


def _written(setup: ServiceSetup, action: NDArray[Any]) -> Mapping[str, Any]:
    """The fields of an action, which a function of the user's may have made."""
    with _told("write", setup.writer.function):
        fields: Any = setup.writer.write(action)
    if not isinstance(fields, Mapping):
        shown = repr(fields)[:200]
        raise OptionError(
            f"write={setup.writer.function} returned {shown}, and not a dict of the fields to send."
        )
    return fields


@contextmanager
def _told(option: str, function: str | None) -> Iterator[None]:
    """Whatever a function of the user's raises within becomes one sentence that names it."""
    try:
        yield
    except (FieldError, OptionError):
        raise
    except Exception as error:
        if function is None:
            raise
        why, _, _ = str(error).partition("\n")
        cause = f"{type(error).__name__}: {why}".removesuffix(": ").removesuffix(".")
        raise OptionError(f"{option}={function} raised {cause}.") from error


def _legal_action(setup: ServiceSetup, rng: np.random.Generator, obs: Obs) -> NDArray[Any]:
    """A uniform action, among those that a mask allows: the masks of several choices stand side by side."""
    action = uniform_actions(rng, setup.writer.space, 1).reshape(-1)
    if not isinstance(obs, dict):
        return action
    start = 0
    for number, field in enumerate(setup.writer.fields):
        legal = np.flatnonzero(obs[MASK_KEY][start : start + field.size])
        start += field.size
        if len(legal):
            action[number] = legal[rng.integers(len(legal))]
    return action


async def _check_seats(setup: ServiceSetup, task: NDArray[np.float64], num_slots: int) -> None:
    """Open all the sessions of a run at the same time, and give their seats back."""
    patience = replace(setup.patience, total_s=min(SEATS_S, setup.patience.total_s))
    impatient = replace(setup, patience=patience)
    sessions = [session_of(impatient, setup.url_of(slot)) for slot in range(num_slots)]
    arguments = setup.tasks.reset_arguments(task, 1)
    try:
        answers: list[Any] = await asyncio.gather(
            *(session.reset(arguments) for session in sessions), return_exceptions=True
        )
        # A machine that is busy opens many sessions slowly, which is no refusal: they get all patience.
        if not any(isinstance(answer, CapacityError) for answer in answers):
            late = [number for number, answer in enumerate(answers) if isinstance(answer, SessionLostError)]
            for number in late:
                sessions[number].patience = setup.patience
                answers[number] = await _answer_of(sessions[number], arguments)
    finally:
        await asyncio.gather(*(session.close() for session in sessions))
    for error in answers:
        if isinstance(error, CapacityError):
            needed = -(-num_slots // len(setup.urls))
            seats = "too few seats" if error.seats is None else f"{error.seats} seats"
            raise OptionError(
                f"The server has {seats}, and this run needs {needed} on each, to train and to evaluate: "
                f"start it with max_concurrent_envs={needed + SPARE_SEATS}, or set a smaller num_slots."
            )
        if isinstance(error, BaseException):
            raise error


async def _answer_of(session: Session, arguments: Mapping[str, Any]) -> Any:
    """The answer to a reset, or why there is none."""
    try:
        return await session.reset(arguments)
    except SessionLostError as error:
        return error


def tell(findings: Findings, setup: ServiceSetup) -> None:
    """Warn of what the user may not expect, one sentence each."""
    server = ", ".join(map(shown_url, setup.urls))
    if not findings.deterministic:
        _log.warning(
            "%s is not deterministic: the same task, seed and actions gave other rows, so trials that meet a "
            "fault are given up (on_fault=drop).",
            server,
        )
    if not findings.heeds_seed:
        _log.warning("%s ignores the seed, or needs more than %d steps to show it.", server, STEPS)
    if not findings.heeds_task:
        _log.warning(
            "%s shows no difference between two tasks in up to %d episodes of %d steps: a reset drops "
            "arguments that it does not know (%s) without an error.",
            server,
            EPISODES,
            STEPS,
            ", ".join(setup.tasks.names) or "split, index",
        )
