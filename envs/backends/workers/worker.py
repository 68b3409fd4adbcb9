"""What runs in a worker process: shard hosts that read requests from one pipe and answer through another.

The messages are those of messages.py; actions and rows travel as the blueprint's transport has it.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import reduction
from typing import Any

import numpy as np

from envs.backends.base import report_of
from envs.backends.shard_host import ShardHost
from envs.backends.workers.isolation import isolate
from envs.backends.workers.messages import (
    REPLY,
    REQUEST,
    Message,
    MessageKind,
    MessageReader,
    Status,
    describe_error,
    pack_picture,
    write_whole,
)
from envs.backends.workers.transport import Blueprint
from envs.home_process import HomeProcess
from utils.processes.imports import ImportGuard, keep_import_guards
from utils.text import harmless


@dataclass(frozen=True)
class WorkerDescriptors:
    """The descriptors that a worker has from the trainer: shared memory (or -1), requests, replies.

    Under forkserver and spawn they are sent to the worker while it is started.
    """

    memory: int
    requests: int
    replies: int

    def __reduce__(self) -> tuple[Any, ...]:
        descriptors = (self.memory, self.requests, self.replies)
        return _received_descriptors, tuple(
            reduction.DupFd(descriptor) if descriptor >= 0 else None for descriptor in descriptors
        )


def _received_descriptors(*handles: Any) -> WorkerDescriptors:
    return WorkerDescriptors(*(-1 if handle is None else handle.detach() for handle in handles))


class WorkerHosts:
    """The environments of a worker: a shard host for each of its segments."""

    def __init__(self, blueprint: Blueprint, memory: int) -> None:
        self._transport = blueprint.transport(blueprint.layout, blueprint.num_slots, memory)
        # Before the first line of an environment runs: no fork of it may write into the trainer's rows.
        os.register_at_fork(after_in_child=self._transport.separate)
        self._task_dim = blueprint.layout.spec.task_dim
        self._hosts = [
            ShardHost(blocks, blueprint.layout, self._transport.rows) for blocks in blueprint.segments
        ]
        # All slots of each segment, as a slice and as numbers, ready for the usual request.
        self._whole_segments = [slice(blocks[0].start, blocks[-1].stop) for blocks in blueprint.segments]
        self._all_slots = [np.arange(whole.start, whole.stop) for whole in self._whole_segments]

    def step(self, segment: int, actions: bytes | bytearray) -> bytes:
        """Step all slots of a segment; return what the reply carries of their rows."""
        whole = self._whole_segments[segment]
        self._hosts[segment].step(self._all_slots[segment], self._transport.actions(whole, actions))
        return self._transport.pack(whole)

    def run(self, segment: int, num_steps: int, num_resets: int, body: bytes | bytearray) -> bytes:
        """Reset some slots of a segment and step others; return what the reply carries of their rows."""
        host, count = self._hosts[segment], num_steps + num_resets
        # The body holds: slots to step, slots to reset, actions, tasks of the resets, seeds of the resets.
        slots = np.frombuffer(body, np.int64, count)
        step_slots, reset_slots = slots[:num_steps], slots[num_steps:]
        actions_start = slots.nbytes
        actions_stop = actions_start + self._transport.action_bytes * num_steps
        if num_resets:
            tasks = np.frombuffer(body, np.float64, num_resets * self._task_dim, actions_stop)
            seeds = np.frombuffer(body, np.uint64, num_resets, actions_stop + tasks.nbytes)
            # Copies, since an environment may hold parts of its task, or write into them.
            host.reset(reset_slots, tasks.reshape(num_resets, self._task_dim).copy(), seeds.copy())
        if num_steps:
            host.step(step_slots, self._transport.actions(step_slots, body[actions_start:actions_stop]))
        return self._transport.pack(slots)

    def picture(self, segment: int, body: bytes | bytearray) -> bytes:
        """Draw a picture of one slot; return it as bytes."""
        return pack_picture(self._hosts[segment].render(int(np.frombuffer(body, np.int64)[0])))

    def close(self) -> None:
        """Close all environments."""
        for host in self._hosts:
            host.close()


def worker_main(
    descriptors: WorkerDescriptors,
    environment: Mapping[str, str],
    dies_with_parent: bool,
    guards: Sequence[ImportGuard] = (),
) -> None:
    """Run the whole life of a worker process, with these variables and guards of its imports."""
    keep_import_guards(guards)
    own = {descriptors.memory, descriptors.requests, descriptors.replies}
    isolate(own, descriptors.replies, environment, dies_with_parent)
    os.register_at_fork(after_in_child=partial(_close_in_fork, descriptors))
    code = 1
    try:
        code = _exit_code_of_serving(descriptors)
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # an environment may have closed the stream
                stream.flush()
    finally:
        # Whatever ends the worker: threads that an environment has started must not keep it alive.
        os._exit(code)


def _close_in_fork(descriptors: WorkerDescriptors) -> None:
    """Take the pipes away from a fork of an environment: only the worker itself reads and answers."""
    for descriptor in (descriptors.requests, descriptors.replies):
        with suppress(OSError):  # an environment may have closed it
            os.close(descriptor)


def _exit_code_of_serving(descriptors: WorkerDescriptors) -> int:
    """Serve until the end; return the exit code."""
    try:
        serve_requests(descriptors)
    except BrokenPipeError:  # the trainer is gone
        return 0
    except SystemExit as end:  # as the interpreter treats it
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        sys.stderr.write(f"{harmless(str(end.code))}\n")
        return 1
    except BaseException as error:  # noqa: BLE001 - the trainer reads the exit code, the user the traceback
        sys.stderr.write(report_of(error))
        return 1
    return 0


def serve_requests(descriptors: WorkerDescriptors) -> None:
    """Build the environments, then answer requests until one says CLOSE or the trainer is gone."""
    hosts: WorkerHosts | None = None
    home = HomeProcess()
    try:
        for (token, kind, segment, num_steps, num_resets, _), body in read_requests(descriptors.requests):
            if kind == MessageKind.CLOSE:
                return
            status, answer = Status.DONE, b""
            try:
                # An environment runs only in here; only this process comes out again, to answer.
                with home:
                    if kind == MessageKind.BUILD:
                        hosts = WorkerHosts(pickle.loads(body), descriptors.memory)
                    else:
                        status, answer = _answer(hosts, kind, segment, num_steps, num_resets, body)
            except SystemExit:
                raise  # ends the worker: the trainer reads its exit code
            except BaseException as error:  # noqa: BLE001 - it is sent to the trainer as text
                status, answer = Status.RAISED, describe_error(error)
            write_whole(descriptors.replies, REPLY.pack(token, status, len(answer)) + answer)
    finally:
        if hosts is not None:
            hosts.close()


def _answer(
    hosts: WorkerHosts | None,
    kind: int,
    segment: int,
    num_steps: int,
    num_resets: int,
    body: bytes | bytearray,
) -> tuple[Status, bytes]:
    """Do what a request asks of built environments; return the status and the body of the reply."""
    assert hosts is not None
    if kind == MessageKind.STEP:
        return Status.DONE, hosts.step(segment, body)
    if kind == MessageKind.RUN:
        return Status.DONE, hosts.run(segment, num_steps, num_resets, body)
    return Status.PICTURE, hosts.picture(segment, body)


def read_requests(descriptor: int) -> Iterator[Message]:
    """Yield each request, until the pipe ends."""
    reader = MessageReader(descriptor, REQUEST)
    while True:
        try:
            messages = reader.receive()
        except EOFError:
            return
        yield from messages
