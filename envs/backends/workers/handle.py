"""One worker process as the trainer sees it: its unanswered requests, its answers, and its end.

How a killed worker is noticed, in the order of this file:
  * `send` meets a broken pipe, or `wait_for_reply` sees the pipe or the process end: `read_to_end`;
  * a copy of the pipe in a child of the environment hides the end: `check_alive` asks for the process;
  * `read_to_end` first takes what the worker answered before it died, and then calls `mark_lost`;
  * `mark_lost` writes the one `Fault` of this worker and kills what is left of the process.
The handle repairs nothing: the backend's `wait` reports the fault (process.py), the manager decides, and
`restore` puts a new process into the same handle.
"""

from __future__ import annotations

import math
import os
import select
import signal
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.process import BaseProcess
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.backends.base import Fault, Segment
from envs.backends.workers.isolation import kill_group
from envs.backends.workers.launch import Child, close_pipes
from envs.backends.workers.messages import (
    CHUNK,
    REPLY,
    REQUEST,
    TEXT_LIMIT,
    MalformedMessage,
    MessageKind,
    MessageReader,
    Status,
    read_error,
    read_picture,
    token_of,
)
from envs.backends.workers.server import wait_for_end
from envs.backends.workers.transport import RowTransport
from envs.base import Slots

# The most bytes of a reply, but for one whose rows need more.
PICTURE_LIMIT = 1 << 28
# How long a worker that does not answer may take to write the next line of its stack.
STACK_WAIT_MS = 100
# How long a worker whose pipe has ended may take to end, before its exit code is read.
EXIT_WAIT_S = 1.0
# How long a killed process may take to end.
END_WAIT_S = 5.0


class Request(NamedTuple):
    """A request that is not answered yet."""

    token: int
    sequence: int
    kind: MessageKind
    slots: Slots


class WorkerHandle:
    """A worker's slots, and the process that steps them now; a new process is the next generation."""

    def __init__(self, number: int, segments: list[Segment], transport: RowTransport) -> None:
        self.number, self.segments, self._transport = number, segments, transport
        self.slots = tuple(slot for segment in segments for slot in range(segment.start, segment.stop))
        self.generation = -1
        # The sequence number of the last request that was answered.
        self.answered = -1
        # Why the environments are gone, if they are.
        self.fault: Fault | None = None
        # Whether that fault has been returned to the manager.
        self.fault_reported = False
        # The number of answers that came too late, or twice.
        self.stale = 0
        # The answer to the last request for a picture.
        self.picture: NDArray[np.uint8] | Fault | None = None
        self._unanswered: deque[Request] = deque()
        self._waiting_since = 0.0
        self._last_token = -1
        self._pipes_closed = False
        self.child: Child | None = None

    def attach(self, child: Child) -> None:
        """Take a new process, with its pipes, for these slots."""
        self.child = child
        self.generation += 1
        self.fault, self.fault_reported, self._pipes_closed = None, False, False
        self._unanswered.clear()
        # Without a limit, a worker that writes nonsense could have the trainer allocate any amount of memory.
        limit = max(PICTURE_LIMIT, len(self.slots) * self._transport.reply_bytes)
        self._reader = MessageReader(child.replies, REPLY, limit)
        # The sentinel is ready when the process ends, even if a copy of the pipe stays open elsewhere.
        self.poll = select.poll()
        self.poll.register(child.replies, select.POLLIN)
        self.poll.register(child.process.sentinel, select.POLLIN)

    @property
    def pid(self) -> int:
        """The number of the process; 0 if there is none."""
        return (self.child.process.pid if self.child else None) or 0

    @property
    def _child(self) -> Child:
        assert self.child is not None
        return self.child

    # -- requests --------------------------------------------------------------------------------------------

    def send(
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
        """Send a request about these slots; a worker that is lost gets none."""
        if self.fault is not None:
            return
        # The clock of an answer starts when the worker has nothing else to do.
        if not self._unanswered:
            self._waiting_since = time.monotonic()
        token = token_of(self.generation, sequence)
        self._unanswered.append(Request(token, sequence, kind, slots))
        message = REQUEST.pack(token, kind, segment, steps, resets, len(body)) + body
        try:
            num_sent = os.write(self._child.requests, message)
        except BlockingIOError:  # the pipe is full
            num_sent = 0
        except BrokenPipeError:  # the worker is gone
            self.read_to_end()
            return
        if num_sent < len(message):
            self._send_rest(memoryview(message)[num_sent:], timeout)

    def _send_rest(self, rest: memoryview, timeout: float) -> None:
        """Write the rest of a long request, and read meanwhile.

        The worker may be writing a long reply: with both pipes full, each side would wait for the other.
        """
        poll, deadline = select.poll(), time.monotonic() + timeout
        poll.register(self._child.requests, select.POLLOUT)
        poll.register(self._child.replies, select.POLLIN)
        while rest and self.fault is None:
            events = dict(poll.poll(milliseconds_until(deadline)))
            if not events:
                self.time_out(timeout)
            elif self._child.replies in events:
                self.read_replies()
            else:
                try:
                    rest = rest[os.write(self._child.requests, rest) :]
                except BlockingIOError:
                    continue
                except BrokenPipeError:
                    self.read_to_end()

    # -- answers ---------------------------------------------------------------------------------------------

    def wait_for_reply(self, milliseconds: int) -> bool:
        """Wait so long for an answer or for the worker's end; return whether one of them came."""
        events = self.poll.poll(milliseconds)
        if not events:
            return False
        # An answer is read before the end is noted: a dying worker may have answered.
        if any(descriptor == self._child.replies for descriptor, _ in events):
            self.read_replies()
        else:
            self.read_to_end()
        return True

    def read_replies(self) -> None:
        """Read the answers that are there now, without waiting."""
        try:
            for (token, status, _), body in self._reader.receive():
                if self.fault is None:
                    self._accept(token, status, body)
        except EOFError:
            self.mark_lost(_describe_end(self._child.process))
        except MalformedMessage:
            # Raised by the checks of messages.py, answers.py and transport.py only, so that an error of our
            # own code while it stores an answer is never blamed on the worker.
            self.mark_lost("was lost: its worker process wrote something that is no answer")

    def _accept(self, token: int, status: int, body: bytes | bytearray) -> None:
        """Check an answer and store what it carries."""
        # Tokens grow: a smaller one belongs to a request, or a process, that has been given up.
        if token <= self._last_token:
            self.stale += 1
            return
        if not self._unanswered or token != self._unanswered[0].token:
            raise MalformedMessage("an answer to no request, or out of order")
        request = self._unanswered[0]
        if status == Status.DONE:
            self._transport.unpack(request.slots, body)
        elif status == Status.PICTURE and request.kind is MessageKind.RENDER:
            self.picture = read_picture(body)
        elif status == Status.RAISED:
            self._accept_error(request, body)
            if self.fault is not None:
                return
        else:
            raise MalformedMessage(f"an answer of status {status}")
        self._unanswered.popleft()
        self._last_token, self.answered = token, request.sequence
        if self._unanswered:
            self._waiting_since = time.monotonic()

    def _accept_error(self, request: Request, body: bytes | bytearray) -> None:
        """Take an error: all environments are lost with it, unless one failed to draw a picture only."""
        error = read_error(body)
        asked = slot_numbers(request.slots)
        culprits = (error.slot,) if error.slot in asked else asked
        sentence = f"raised {error.type_name}: {error.message}"
        if request.kind is MessageKind.RENDER:
            self.picture = Fault(culprits, sentence, error.traceback)
        else:
            self.mark_lost(sentence, error.traceback, culprits)

    def read_to_end(self) -> None:
        """Take what a worker answered before it died or closed its pipes; then mark it as lost."""
        # Read until a read brings no further answer.
        while self.fault is None:
            before = self.answered, self.stale
            self.read_replies()
            if (self.answered, self.stale) == before and self.fault is None:
                self.mark_lost(_describe_end(self._child.process))

    def check_alive(self) -> None:
        """Notice a death that no descriptor shows, since a child of the environment holds copies of them."""
        if self.fault is None and not self._child.process.is_alive():
            self.read_to_end()

    # -- the worker's end ------------------------------------------------------------------------------------

    def deadline(self, timeout: float) -> float:
        """Return when the next answer is late: its time begins when everything before it is answered."""
        return self._waiting_since + timeout

    def time_out(self, timeout: float) -> None:
        """End a worker that is late: were it used again, its late reply would be taken for the next one.

        A time-out of 0 says that the caller has watched the clock.
        """
        stack = _stack_of(self.pid, self._child.replies)
        waited = timeout or round(time.monotonic() - self._waiting_since, 1)
        self.mark_lost(f"gave no answer within {waited:g} s", stack)

    def mark_lost(self, sentence: str, trace: str = "", culprits: tuple[int, ...] = ()) -> None:
        """Note that all environments of this worker are gone, and end it, so that it writes into no row."""
        # Without a culprit, every slot with an unanswered request is named.
        asked = tuple(sorted({slot for post in self._unanswered for slot in slot_numbers(post.slots)}))
        self.fault = Fault(culprits or asked or self.slots, sentence, trace, self.slots)
        self.fault_reported = False
        self._unanswered.clear()
        self.kill()

    def kill(self) -> None:
        """End the process, and whatever its environments started."""
        if self.child is None:
            return
        # The group first: while the process is not reaped, its number can belong to no other group.
        reaped = self.child.process.exitcode is not None
        kill_group(self.pid, reaped=reaped)
        if not reaped:
            self.child.process.kill()

    def ask_to_stop(self) -> None:
        """Ask the process to stop, and close the pipes to it."""
        if self.child is None or self._pipes_closed:
            return
        self._pipes_closed = True
        # A worker that does not read this message sees the end of the pipe.
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(self.child.requests, REQUEST.pack(0, MessageKind.CLOSE, 0, 0, 0, 0))
        close_pipes(self.child)

    def release(self, timeout: float) -> bool:
        """Wait until the process has ended and free what belongs to it; return whether it has ended."""
        if self.child is None:
            return True
        process = self.child.process
        pid = self.pid
        if not wait_for_end(process, timeout):
            return False
        kill_group(pid, reaped=True)  # what the worker started may have outlived it
        self.ask_to_stop()
        process.close()
        self.child = None
        return True


def _stack_of(pid: int, replies: int) -> str:
    """Return the stack of a worker that does not answer, as text (isolation.py has it write that)."""
    try:
        os.kill(pid, signal.SIGUSR1)
    except ProcessLookupError:
        return ""
    text, poll = b"", select.poll()
    poll.register(replies, select.POLLIN)
    while len(text) < TEXT_LIMIT and poll.poll(STACK_WAIT_MS):  # the stack comes line by line
        more = os.read(replies, CHUNK)
        if not more:
            break
        text += more
    _, found, stack = text.partition(b"Stack (most recent call first):\n")
    where = f"It was stopped here (most recent call first):\n{stack.decode(errors='replace')}"
    return where if found else ""


def _describe_end(process: BaseProcess) -> str:
    """Return how a process ended: its exit code, its signal, or that it only closed its pipes."""
    if not wait_for_end(process, EXIT_WAIT_S) or process.exitcode is None:
        return "was lost: its worker process closed its pipes"
    if process.exitcode >= 0:
        return f"was lost: its worker process exited with code {process.exitcode}"
    number = -process.exitcode
    name = {known.value: known.name for known in signal.Signals}.get(number, "a real-time signal")
    if name == "SIGKILL":
        name += "; out of memory?"
    return f"was lost: its worker process was killed by signal {number} ({name})"


def marks_of(workers: Iterable[WorkerHandle]) -> set[int]:
    """Return the marks of whatever the environments of these workers have started."""
    children = [worker.child for worker in workers if worker.child is not None]
    return {child.mark for child in children if child.mark is not None}


def slot_numbers(slots: Slots) -> tuple[int, ...]:
    """Return the slots as sorted numbers."""
    if isinstance(slots, slice):
        return tuple(range(slots.start, slots.stop))
    return tuple(np.sort(slots).tolist())


def milliseconds_until(deadline: float) -> int:
    """Return the time from now until the deadline, in the range that poll takes."""
    return min(max(0, math.ceil((deadline - time.monotonic()) * 1000)), 2**31 - 1)
