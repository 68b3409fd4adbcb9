"""One worker process as the trainer sees it: what it was asked and has not answered yet, and how it ended."""

from __future__ import annotations

import json
import math
import os
import select
import signal
import struct
import time
from collections import deque
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.backends.base import Fault, Segment
from envs.backends.workers.isolation import kill_group
from envs.backends.workers.launch import Child, hang_up
from envs.backends.workers.messages import (
    CHUNK,
    REPLY,
    REQUEST,
    SHAPE,
    TEXT_LIMIT,
    MessageKind,
    MessageReader,
    Status,
    token_of,
)
from envs.backends.workers.transport import RowTransport
from envs.base import Slots

PICTURE_LIMIT = 1 << 28
STACK_WAIT_MS = 100
"""how long a worker that does not answer may take to write the next line of its stack"""
END_WAIT_S = 5.0
"""how long a killed process may take to end"""


class Post(NamedTuple):
    """A request that was not answered yet."""

    token: int
    sequence: int
    kind: MessageKind
    slots: Slots


class WorkerHandle:
    """A worker's place: its slots, and the process that is in it now; the next one there is of the next
    generation.
    """

    def __init__(self, number: int, segments: list[Segment], carrier: RowTransport) -> None:
        self.number, self.segments, self._carrier = number, segments, carrier
        self.slots = tuple(slot for segment in segments for slot in range(segment.start, segment.stop))
        self.generation = -1
        self.answered = -1
        """The sequence number of the last request that was answered."""
        self.fault: Fault | None = None
        """Why its environments are gone, if they are."""
        self.told = False
        """Whether somebody has been told of that fault."""
        self.stale = 0
        """Answers that came too late, or twice."""
        self.picture: NDArray[np.uint8] | Fault | None = None
        """The answer to a request for one."""
        self._posts: deque[Post] = deque()
        self._since = 0.0
        self._last_token = -1
        self._hung_up = False
        self.child: Child | None = None

    def occupy(self, child: Child) -> None:
        """A new process is in its place."""
        self.child = child
        self.generation += 1
        self.fault, self.told, self._hung_up = None, False, False
        self._posts.clear()
        limit = max(PICTURE_LIMIT, len(self.slots) * self._carrier.reply_bytes)
        self._reader = MessageReader(child.replies, REPLY, limit)
        self.poll = select.poll()
        self.poll.register(child.replies, select.POLLIN)
        self.poll.register(child.process.sentinel, select.POLLIN)

    @property
    def pid(self) -> int:
        """Its process."""
        return (self.child.process.pid if self.child else None) or 0

    # -- asking ----------------------------------------------------------------------------------------------

    def ask(
        self,
        sequence: int,
        kind: MessageKind,
        segment: int,
        slots: Slots,
        body: bytes,
        timeout: float,
        *,
        steps: int = 0,
        resets: int = 0,
    ) -> None:
        """Send a request about these slots; one that is lost is asked nothing."""
        if self.fault is not None:
            return
        if not self._posts:
            self._since = time.monotonic()
        token = token_of(self.generation, sequence)
        self._posts.append(Post(token, sequence, kind, slots))
        frame = REQUEST.pack(token, kind, segment, steps, resets, len(body)) + body
        try:
            sent = os.write(self._child.requests, frame)
        except BlockingIOError:
            sent = 0
        except BrokenPipeError:
            self.bury()
            return
        if sent < len(frame):
            self._send_rest(memoryview(frame)[sent:], timeout)

    def _send_rest(self, rest: memoryview, timeout: float) -> None:
        """Write the rest of a long request, reading meanwhile: the worker may be writing a long reply, and
        both pipes may be full.
        """
        poll, deadline = select.poll(), time.monotonic() + timeout
        poll.register(self._child.requests, select.POLLOUT)
        poll.register(self._child.replies, select.POLLIN)
        while rest and self.fault is None:
            events = dict(poll.poll(milliseconds(deadline)))
            if not events:
                self.give_up_waiting(timeout)
            elif self._child.replies in events:
                self.receive()
            else:
                try:
                    rest = rest[os.write(self._child.requests, rest) :]
                except BlockingIOError:
                    continue
                except BrokenPipeError:
                    self.bury()

    @property
    def _child(self) -> Child:
        assert self.child is not None
        return self.child

    # -- listening -------------------------------------------------------------------------------------------

    def listen(self, milliseconds: int) -> bool:
        """Wait so long for an answer, or for the end; whether anything came."""
        events = self.poll.poll(milliseconds)
        if not events:
            return False
        if any(descriptor == self._child.replies for descriptor, _ in events):
            self.receive()
        else:
            self.bury()
        return True

    def receive(self) -> None:
        """Read what answers are there."""
        try:
            for (token, status, _), body in self._reader.receive():
                self._take(token, status, body)
        except EOFError:
            self.lose(self._obituary())
        except (ValueError, TypeError, KeyError, RecursionError, struct.error):
            self.lose("was lost: its worker process wrote something that is no answer")

    def _take(self, token: int, status: int, body: bytes | bytearray) -> None:
        if self.fault is not None:
            return
        if token <= self._last_token:
            self.stale += 1
            return
        if not self._posts or token != self._posts[0].token:
            raise ValueError("nobody asked for this")
        post = self._posts[0]
        if status == Status.DONE:
            self._carrier.unpack(post.slots, body)
        elif status == Status.PICTURE:
            self.picture = (
                np.frombuffer(body, np.uint8, offset=SHAPE.size).reshape(SHAPE.unpack_from(body)).copy()
            )
        else:
            facts = json.loads(bytes(body))
            asked = _numbers(post.slots)
            culprits = (facts["slot"],) if facts["slot"] in asked else asked
            sentence, trace = f"raised {facts['type']}: {facts['message']}", str(facts["traceback"])
            if post.kind is not MessageKind.RENDER:
                self.lose(sentence, trace, culprits)
                return
            self.picture = Fault(culprits, sentence, trace)  # nothing else went wrong
        self._posts.popleft()
        self._last_token, self.answered = token, post.sequence
        if self._posts:
            self._since = time.monotonic()

    def bury(self) -> None:
        """It is dead, or closed its pipes: read what it answered before."""
        while self.fault is None:
            before = self.answered, self.stale
            self.receive()
            if (self.answered, self.stale) == before and self.fault is None:
                self.lose(self._obituary())

    def look_after(self) -> None:
        """Notice an end that shows in no descriptor, since a child of the environment holds copies of them."""
        if self.fault is None and not self._child.process.is_alive():
            self.bury()

    # -- the end ---------------------------------------------------------------------------------------------

    def due(self, timeout: float) -> float:
        """When the answer that it owes is late: its time begins when it has answered everything before."""
        return self._since + timeout

    def give_up_waiting(self, timeout: float) -> None:
        """End a worker that is late: were it used again, its late reply would be taken for the next one."""
        stack = self._where_it_hangs()
        waited = timeout or round(
            time.monotonic() - self._since, 1
        )  # without a time-out somebody else has watched the clock
        self.lose(f"gave no answer within {waited:g} s", stack)

    def lose(self, sentence: str, trace: str = "", culprits: tuple[int, ...] = ()) -> None:
        """All its environments are gone; the process is ended, so that it writes into no row any more."""
        asked = tuple(sorted({slot for post in self._posts for slot in _numbers(post.slots)}))
        self.fault = Fault(culprits or asked or self.slots, sentence, trace, self.slots)
        self.told = False
        self._posts.clear()
        self.kill()

    def kill(self) -> None:
        """End the process, and whatever its environments started."""
        if self.child is None:
            return
        reaped = self.child.process.exitcode is not None
        kill_group(self.pid, reaped=reaped)
        if not reaped:
            self.child.process.kill()

    def hang_up(self) -> None:
        """Ask the process to stop, and close the pipes to it."""
        if self.child is None or self._hung_up:
            return
        self._hung_up = True
        with suppress(BlockingIOError, BrokenPipeError):  # it will see the end of the pipe instead
            os.write(self.child.requests, REQUEST.pack(0, MessageKind.CLOSE, 0, 0, 0, 0))
        hang_up(self.child)

    def leave(self, timeout: float) -> bool:
        """Wait until the process has ended and free what belongs to it; whether it has."""
        if self.child is None:
            return True
        process = self.child.process
        pid = self.pid
        if process.exitcode is None:
            process.join(timeout)
        if process.exitcode is None:
            return False
        kill_group(pid, reaped=True)  # what it started may have outlived it
        self.hang_up()
        process.close()
        self.child = None
        return True

    def _where_it_hangs(self) -> str:
        """The stack of a worker that does not answer, as text."""
        try:
            os.kill(self.pid, signal.SIGUSR1)
        except ProcessLookupError:
            return ""
        text, poll = b"", select.poll()
        poll.register(self._child.replies, select.POLLIN)
        while len(text) < TEXT_LIMIT and poll.poll(STACK_WAIT_MS):  # it comes line by line
            more = os.read(self._child.replies, CHUNK)
            if not more:
                break
            text += more
        _, found, stack = text.partition(b"Stack (most recent call first):\n")
        return (
            f"It was stopped here (most recent call first):\n{stack.decode(errors='replace')}"
            if found
            else ""
        )

    def _obituary(self) -> str:
        """How it died."""
        process = self._child.process
        if process.exitcode is None:
            process.join(1.0)
        if process.exitcode is None:
            return "was lost: its worker process closed its pipes"
        if process.exitcode >= 0:
            return f"was lost: its worker process exited with code {process.exitcode}"
        number = -process.exitcode
        name = {one.value: one.name for one in signal.Signals}.get(number, "a real-time signal")
        return f"was lost: its worker process was killed by signal {number} ({name}{'; out of memory?' if name == 'SIGKILL' else ''})"


def _numbers(slots: Slots) -> tuple[int, ...]:
    return (
        tuple(range(slots.start, slots.stop)) if isinstance(slots, slice) else tuple(np.sort(slots).tolist())
    )


def milliseconds(deadline: float) -> int:
    """From now until then, as poll likes it."""
    return min(max(0, math.ceil((deadline - time.monotonic()) * 1000)), 2**31 - 1)
