"""What runs in a worker process: one shard host, told what to do through one pipe, answering through another.

Trainer to worker: a `REQUEST` header, the slots as int64, then for resets their tasks and seeds, and at first the factories, by cloudpickle.
Worker to trainer: a `REPLY` header, then text (JSON) or picture bytes. The rows themselves are in shared memory. The trainer never unpickles
what a worker wrote, since unpickling runs whatever the bytes say.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import multiprocessing
import os
import pickle
import signal
import struct
import sys
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from multiprocessing import forkserver, reduction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.backends.arena import Arena
from envs.backends.base import Block, ShardHost
from envs.base import Layout, SlotError

REQUEST = struct.Struct("<QIIII")
"""sequence number, kind, slots to step, slots to reset, bytes of payload after the slots"""
REPLY = struct.Struct("<QII")
"""sequence number of the request, status, bytes that follow"""
SHAPE = struct.Struct("<III")
"""height, width and channels, before the bytes of a picture"""
TEXT_LIMIT = 60_000
"""bytes of an error's text: it fits into a pipe, so that no worker blocks on telling it"""
PR_SET_PDEATHSIG = 1
SINGLE_THREAD: dict[str, str] = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1")
"""Workers are the parallelism: threads inside each of them would only fight for the same cores."""

trainer_ends: set[int] = set()
"""Descriptors of this process that a forked worker must not keep: a copy of a pipe's end would hide the death of the one who holds it."""


Request = tuple[int, int, NDArray[np.int64], NDArray[np.int64], bytes]
"""sequence, kind, slots to step, slots to reset, payload"""


class Kind(IntEnum):
    """What is asked of a worker."""

    BUILD = 0
    RUN = 1
    RENDER = 2
    CLOSE = 3


class Status(IntEnum):
    """How a worker answers."""

    DONE = 0
    RAISED = 1
    PICTURE = 2


@dataclass(frozen=True)
class Link:
    """The worker's descriptors: shared memory, requests, replies. Under forkserver and spawn they are sent along when it is started."""

    memory: int
    requests: int
    replies: int

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (reduction.DupFd(self.memory), reduction.DupFd(self.requests), reduction.DupFd(self.replies))


def _received(*handles: Any) -> Link:
    return Link(*(handle.detach() for handle in handles))


@dataclass(frozen=True)
class Blueprint:
    """What a worker builds: the blocks of its slots, in rows of all `num_slots`."""

    blocks: list[Block]
    layout: Layout
    num_slots: int


class _Place:
    """Knows whether this process is a worker."""

    inside = False


def inside_worker() -> bool:
    """Whether this process is itself a worker, where no further workers may be started."""
    return _Place.inside


def main(link: Link, dies_with_parent: bool) -> None:
    """The life of a worker process."""
    _Place.inside = True
    _isolate(link, dies_with_parent)
    requests = read_requests(link.requests)
    try:
        serve(link, requests)
    except BrokenPipeError:
        return  # the trainer is gone


def serve(link: Link, requests: Iterator[Request]) -> None:
    """Build the shards, then do what is asked until told to stop, or until the trainer is gone."""
    host, actions = None, None
    try:
        for sequence, kind, steps, resets, payload in requests:
            try:
                if kind == Kind.RUN:
                    assert host is not None and actions is not None
                    if len(resets):
                        tasks, seeds = pickle.loads(payload)
                        host.reset(resets, tasks, seeds)
                    if len(steps):
                        host.step(steps, actions[steps])
                    answer = REPLY.pack(sequence, Status.DONE, 0)
                elif kind == Kind.BUILD:
                    host, actions = _build(link, payload)
                    answer = REPLY.pack(sequence, Status.DONE, 0)
                elif kind == Kind.RENDER:
                    assert host is not None
                    answer = _picture(sequence, host.render(int(steps[0])))
                else:
                    return
            except Exception as error:  # noqa: BLE001 - whatever an environment raises is told to the trainer as text
                text = describe_error(error)
                answer = REPLY.pack(sequence, Status.RAISED, len(text)) + text
            _write(link.replies, answer)
    finally:
        if host is not None:
            host.close()


def _build(link: Link, payload: bytes) -> tuple[ShardHost, NDArray[Any]]:
    blueprint: Blueprint = pickle.loads(payload)
    arena = Arena(blueprint.layout, blueprint.num_slots, link.memory)
    return ShardHost(blueprint.blocks, blueprint.layout, arena.rows), arena.actions


def _picture(sequence: int, picture: NDArray[np.uint8]) -> bytes:
    pixels = np.ascontiguousarray(picture, np.uint8)
    return REPLY.pack(sequence, Status.PICTURE, SHAPE.size + pixels.nbytes) + SHAPE.pack(*pixels.shape) + pixels.tobytes()


def read_requests(descriptor: int) -> Iterator[Request]:
    """Each request, until the pipe ends."""
    head, buffer = REQUEST.size, b""
    while True:
        while len(buffer) >= head:
            sequence, kind, num_steps, num_resets, length = REQUEST.unpack_from(buffer)
            middle = head + 8 * (num_steps + num_resets)
            if len(buffer) < middle + length:
                break
            slots = np.frombuffer(buffer, np.int64, num_steps + num_resets, head)
            payload = buffer[middle : middle + length]
            buffer = buffer[middle + length :]
            yield sequence, kind, slots[:num_steps], slots[num_steps:], payload
        chunk = os.read(descriptor, 1 << 20)
        if not chunk:
            return
        buffer = buffer + chunk if buffer else chunk


def _write(descriptor: int, data: bytes) -> None:
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, memoryview(data)[written:])


def describe_error(error: BaseException) -> bytes:
    """An error as JSON of at most 64 kB: its type, message and traceback as text, and the slot if it names one."""
    report = traceback.TracebackException.from_exception(error)
    message, trace = str(report), [part if len(part) < 4000 else f"{part[:4000]}...\n" for part in report.format()]
    slot = error.slot if isinstance(error, SlotError) else None
    for room in (24_000, 12_000, 5_000):
        facts = {"type": type(error).__name__, "message": _shorten(message, room // 3), "traceback": _shorten("".join(trace), room), "slot": slot}
        text = json.dumps(facts, ensure_ascii=False).encode(errors="backslashreplace")
        if len(text) <= TEXT_LIMIT:
            return text
    return json.dumps({"type": type(error).__name__[:100], "message": "", "traceback": "", "slot": slot}).encode()


def _shorten(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room // 2]}\n... {len(text) - room} characters left out ...\n{text[-(room // 2) :]}"


# -- what a worker is not: interactive, threaded, logging, or longer-lived than its trainer ----------------------------------------------------


def _isolate(link: Link, dies_with_parent: bool) -> None:
    # Ctrl-C and a scheduler's SIGTERM reach the whole group; the trainer decides when its workers stop, after its checkpoint.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.environ.update(SINGLE_THREAD, WANDB_MODE="disabled")
    for descriptor in trainer_ends - {link.memory, link.requests, link.replies}:
        os.close(descriptor)
    trainer_ends.clear()
    # After a deadline the trainer asks a hung worker where it is (SIGUSR1); this answer works even while the GIL is held.
    if hasattr(faulthandler, "register"):
        faulthandler.register(signal.SIGUSR1, file=link.replies, all_threads=False)
    if hasattr(os, "SCHED_BATCH"):  # or each worker, woken by its request, would interrupt the trainer that is still writing the others'
        with suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    if dies_with_parent:
        _die_with_parent()


def _die_with_parent() -> None:
    """Let the kernel kill this process when the trainer dies, even while it hangs; otherwise the end of the pipe stops it."""
    # A forkserver's child holds a copy of the pipe by which the forkserver, its parent for the kernel, notices the trainer's death.
    server: Any = getattr(forkserver, "_forkserver", None)
    alive = getattr(server, "_forkserver_alive_fd", None)
    if alive is not None:
        os.close(alive)
        server._forkserver_alive_fd = None
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    trainer = multiprocessing.parent_process()
    if trainer is not None and not trainer.is_alive():  # it died before the kernel knew whom to watch
        os._exit(1)
