"""Overlap: while a wave is collected, the updates that the wave before it has earned are made, by a schedule
that no clock decides.

    wave 1      collected by the agent after the updates of the random pool
    wave i + 1  collected by the agent as it was when wave i was complete, while the updates of wave i are made

The wave is played by a copy of the agent, one wave's updates older than without overlap: the staleness is
one, never more and never less. Its rows are kept apart until both sides are done, so that updates draw from
the waves up to i, of which none is evicted yet, however fast either side is. Data and updates are thus a
function of the seed. The last wave's updates are made after it; should the run be prolonged, its next wave is
played by the agent as it was before them.

The environments stay in the thread that made them, and the updates get one of their own: torch works without
the interpreter's lock, though small operations mostly wait for it. It pays where the environments wait, or
work in other processes or without the lock, and there is a core to spare. A run that is stopped forgets the
wave and keeps the updates; its checkpoint has the copy of the agent, so a resume plays the same wave again.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from threading import Event, Thread
from typing import TYPE_CHECKING, Self

import torch

from buffers.rollout import RolloutBuffer
from policies.collection.collector import play, take_in
from policies.collection.wave import WaveInterrupted, WaveResult
from policies.run.setup import wave_of, wave_shape
from utils.stopwatch import Stopwatch

if TYPE_CHECKING:
    from policies.learner import Learner

REFUSAL = (
    "learner.overlap=bounded has waves played by an older policy, and algorithm={} learns from what its present one has played: "
    "use learner.overlap=none or an off-policy algorithm."
)
WAIT = 0.05
"""Seconds between two looks at whether to stop, while the updates take longer than the wave."""


class SideBySide:
    """Collects for a learner while `update(watch)` is called, `counters.updates_due` times in all, in another
    thread.
    """

    def __init__(self, learner: Learner, update: Callable[[Stopwatch], None]) -> None:
        if learner.needs.on_policy:
            raise ValueError(REFUSAL.format(learner.config.algorithm.name))
        self._learner = learner
        self._update = update
        self._agent = deepcopy(learner.agent).requires_grad_(False)
        self._wave = RolloutBuffer(**wave_shape(learner.config, learner.family))

    def keep_agent(self) -> None:
        """The agent as it is will play the next wave, whatever is made of it until then."""
        self._learner.acting = deepcopy(self._learner.agent.state_dict())

    def collect(self) -> WaveResult:
        """A wave, and all updates due; `WaveInterrupted` where it was asked to stop, with some of the updates
        made.
        """
        learner, wave, agent = self._learner, self._wave, self._agent
        agent.load_state_dict(learner.acting or learner.agent.state_dict())
        learner.acting = agent.state_dict()
        wave.num_added = first = learner.buffer.num_added  # trials are numbered as in the replay
        most, budget = wave_of(learner.config, learner.family.config)
        with _Updates(learner, self._update) as updates:
            result = play(learner, most, agent, learner.env, wave, budget=budget, tick=updates.tick)
            while updates.running(WAIT):
                if updates.tick(result):
                    raise WaveInterrupted
            learner.watch.lap("update")  # what the updates took beyond the wave
        learner.acting = {}
        learner.buffer.restore([wave.export(first, wave.num_added)], first)
        take_in(learner, result, first=first, warmup=False)
        learner.watch.lap("buffer")
        return result


class _Updates:
    """All updates due, in a thread of their own: as a context manager it leaves none running, and raises what
    went wrong there.
    """

    def __init__(self, learner: Learner, update: Callable[[Stopwatch], None]) -> None:
        self._learner, self._update = learner, update
        self._over = Event()
        self._raised: BaseException | None = None
        self._thread = Thread(target=self._run, name="updates")

    def _run(self) -> None:
        torch.get_num_threads()  # a new thread takes over the number of intra-op threads when it is first asked for it
        watch = Stopwatch()
        try:
            while self._learner.counters.updates_due and not self._over.is_set():
                self._update(watch)
            self._learner.guard.settle()
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            self._raised = error

    def tick(self, wave: WaveResult) -> bool:
        """Whether the wave is to stop."""
        return self._learner.tick(wave) or self._raised is not None

    def running(self, seconds: float) -> bool:
        """Wait so long at most; whether any update is left."""
        self._thread.join(seconds)
        return self._thread.is_alive()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._raised is not None:
            raise self._raised
