"""What runs in a worker process: shard hosts, told what to do through one pipe, answering through another.

The messages are those of `frames.py`; actions and rows travel as the blueprint's carrier says. The trainer
never unpickles what a worker wrote, since unpickling runs whatever the bytes say.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import reduction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.backends.base import Block, ShardHost, shorten
from envs.backends.workers.isolation import isolate
from envs.backends.workers.messages import (
    REPLY,
    REQUEST,
    SHAPE,
    TEXT_LIMIT,
    Frame,
    MessageKind,
    MessageReader,
    Status,
    write_whole,
)
from envs.backends.workers.transport import RowTransport
from envs.base import SlotError
from envs.layout import Layout


@dataclass(frozen=True)
class Link:
    """The worker's descriptors: shared memory (or -1), requests, replies. Under forkserver and spawn they are
    sent along when it is started.
    """

    memory: int
    requests: int
    replies: int

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, tuple(
            reduction.DupFd(one) if one >= 0 else None for one in (self.memory, self.requests, self.replies)
        )


def _received(*handles: Any) -> Link:
    return Link(*(-1 if handle is None else handle.detach() for handle in handles))


@dataclass(frozen=True)
class Blueprint:
    """What a worker builds: the blocks of each of its segments, in rows of all `num_slots`."""

    segments: list[tuple[Block, ...]]
    layout: Layout
    num_slots: int
    carrier: type[RowTransport]


class Hosts:
    """A worker's environments, a host for each of its segments."""

    def __init__(self, blueprint: Blueprint, memory: int) -> None:
        self._carrier = blueprint.carrier(blueprint.layout, blueprint.num_slots, memory)
        self._task_dim = blueprint.layout.spec.task_dim
        self._hosts: list[ShardHost] = []
        self._whole: list[slice] = []
        self._everyone: list[NDArray[np.int64]] = []
        for blocks in blueprint.segments:
            self._hosts.append(ShardHost(blocks, blueprint.layout, self._carrier.rows))
            self._whole.append(slice(blocks[0].start, blocks[-1].stop))
            self._everyone.append(np.arange(blocks[0].start, blocks[-1].stop))

    def step(self, segment: int, actions: bytes | bytearray) -> bytes:
        """Step all slots of a segment; what the reply carries of their rows."""
        whole = self._whole[segment]
        self._hosts[segment].step(self._everyone[segment], self._carrier.actions(whole, actions))
        return self._carrier.pack(whole)

    def run(self, segment: int, num_steps: int, num_resets: int, body: bytes | bytearray) -> bytes:
        """Reset some slots of a segment and step others; what the reply carries of their rows."""
        host, count = self._hosts[segment], num_steps + num_resets
        slots = np.frombuffer(body, np.int64, count)
        steps, resets = slots[:num_steps], slots[num_steps:]
        first = 8 * count
        middle = first + self._carrier.action_bytes * num_steps
        if num_resets:
            tasks = np.frombuffer(body, np.float64, num_resets * self._task_dim, middle).reshape(
                num_resets, self._task_dim
            )
            seeds = np.frombuffer(body, np.uint64, num_resets, middle + tasks.nbytes)
            host.reset(
                resets, tasks.copy(), seeds.copy()
            )  # of which an environment may keep parts, or write into them
        if num_steps:
            host.step(steps, self._carrier.actions(steps, body[first:middle]))
        return self._carrier.pack(slots)

    def picture(self, segment: int, body: bytes | bytearray) -> bytes:
        """A picture of one slot, with its shape before it."""
        pixels = np.ascontiguousarray(
            self._hosts[segment].render(int(np.frombuffer(body, np.int64)[0])), np.uint8
        )
        return SHAPE.pack(*pixels.shape) + pixels.tobytes()

    def close(self) -> None:
        """Close all environments."""
        for host in self._hosts:
            host.close()


def main(link: Link, dies_with_parent: bool) -> None:
    """The life of a worker process."""
    isolate({link.memory, link.requests, link.replies}, link.replies, dies_with_parent)
    code = 1
    try:
        code = _live(link)
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # an environment may have closed it
                stream.flush()
    finally:
        os._exit(code)  # whatever ends it: threads that an environment started keep no worker alive


def _live(link: Link) -> int:
    """Serve until the end; the exit code."""
    try:
        serve(link)
    except BrokenPipeError:  # the trainer is gone
        return 0
    except SystemExit as end:  # as the interpreter does it
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        sys.stderr.write(f"{end.code}\n")
        return 1
    except BaseException:  # noqa: BLE001 - nobody is left who could be told
        traceback.print_exc()
        return 1
    return 0


def serve(link: Link) -> None:
    """Build the environments, then do what is asked until told to stop, or until the trainer is gone."""
    hosts = None
    try:
        for (token, kind, segment, num_steps, num_resets, _), body in requests(link.requests):
            status, answer = Status.DONE, b""
            try:
                if kind == MessageKind.CLOSE:
                    return
                if kind == MessageKind.BUILD:
                    hosts = Hosts(pickle.loads(body), link.memory)
                else:
                    assert hosts is not None
                    if kind == MessageKind.STEP:
                        answer = hosts.step(segment, body)
                    elif kind == MessageKind.RUN:
                        answer = hosts.run(segment, num_steps, num_resets, body)
                    else:
                        status, answer = Status.PICTURE, hosts.picture(segment, body)
            except SystemExit:
                raise  # an end like any other: the trainer is told the exit code
            except BaseException as error:  # noqa: BLE001 - whatever an environment raises is told to the trainer as text
                status, answer = Status.RAISED, describe_error(error)
            write_whole(link.replies, REPLY.pack(token, status, len(answer)) + answer)
    finally:
        if hosts is not None:
            hosts.close()


def requests(descriptor: int) -> Iterator[Frame]:
    """Each request, until the pipe ends."""
    reader = MessageReader(descriptor, REQUEST)
    while True:
        try:
            found = reader.receive()
        except EOFError:
            return
        yield from found


def describe_error(error: BaseException) -> bytes:
    """An error as JSON of at most 64 kB: its type, message and traceback as text, and the slot if it names
    one.
    """
    report = traceback.TracebackException.from_exception(error)
    message, trace = (
        str(report),
        [part if len(part) < 4000 else f"{part[:4000]}...\n" for part in report.format()],
    )
    slot = error.slot if isinstance(error, SlotError) else None
    for room in (24_000, 12_000, 5_000):
        facts = {
            "type": type(error).__name__,
            "message": shorten(message, room // 3),
            "traceback": shorten("".join(trace), room),
            "slot": slot,
        }
        text = json.dumps(facts, ensure_ascii=False).encode(errors="backslashreplace")
        if len(text) <= TEXT_LIMIT:
            return text
    return json.dumps(
        {"type": type(error).__name__[:100], "message": "", "traceback": "", "slot": slot}
    ).encode()
