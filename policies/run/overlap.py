"""Overlap: while a wave is collected, the updates that the wave before it has earned are made.

The schedule does not depend on a clock:

    wave 1      is collected by the agent after the updates of the random pool
    wave i + 1  is collected by the agent as it was when wave i was complete; beside it the updates of wave i
                are made

The wave is played by a copy of the agent, one wave's updates older than without overlap: the staleness is
one, never more and never less. Its rows are held apart until both sides are done, so that updates draw from
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
from concurrent.futures import Future, ThreadPoolExecutor, wait
from copy import deepcopy
from threading import Event

import torch

from buffers.rollout import RolloutBuffer
from policies.collection.collector import account_for
from policies.collection.collectors import Collectors
from policies.collection.wave import WaveInterrupted, WaveResult
from policies.run.context import LearningParts, RunContext
from policies.run.progress import RunProgress
from policies.run.updates import Updater
from utils.stopwatch import Stopwatch

REFUSAL = (
    "learner.overlap=bounded has waves played by an older policy, and algorithm={} learns from what its "
    "present one has played: use learner.overlap=none or an off-policy algorithm."
)
# The time between two checks of whether to stop, while the updates take longer than the wave.
WAIT_S = 0.05


class OverlappedCollector:
    """Collects a wave with a copy of the agent, while all updates that are due are made in another thread."""

    def __init__(
        self,
        context: RunContext,
        parts: LearningParts,
        progress: RunProgress,
        *,
        collectors: Collectors,
        updater: Updater,
        watch: Stopwatch,
        tick: Callable[[WaveResult], bool],
    ) -> None:
        if context.needs.on_policy:
            raise ValueError(REFUSAL.format(context.config.algorithm.name))
        self._context, self._parts, self._progress = context, parts, progress
        self._updater, self._watch, self._tick = updater, watch, tick
        self._wave = RolloutBuffer(**context.sizes.wave_shape)
        # The copy needs no gradients: it acts only.
        self._copy = deepcopy(parts.agent).requires_grad_(False)
        self._collector = collectors.make(self._copy, self._wave, self._stops)
        self._updates: Future[None] = Future()

    def save_acting_agent(self) -> None:
        """Make the agent as it is now play the next wave, whatever updates are made until then."""
        self._progress.acting_agent = deepcopy(self._parts.agent.state_dict())

    def collect(self, most: int, budget: int | None) -> WaveResult:
        """A wave, and all updates that are due.

        Where it is asked to stop it raises `WaveInterrupted`, and some of the updates may have been made.
        """
        parts, progress, wave = self._parts, self._progress, self._wave

        # 1. The copy becomes the agent as it is before these updates, or as the checkpoint of an interrupted
        #    wave has it. From now on a checkpoint holds it.
        self._copy.load_state_dict(progress.acting_agent or parts.agent.state_dict())
        progress.acting_agent = self._copy.state_dict()

        # 2. Play the wave into a buffer of its own, with the trials numbered as in the run's buffer.
        wave.num_added = first = parts.buffer.num_added
        result = self._collect_beside_updates(most, budget)
        self._watch.lap("update")  # the time that the updates took beyond the wave
        progress.acting_agent = {}

        # 3. Both sides are done: now the wave goes into the run's buffer, and counts.
        parts.buffer.extend(wave.export(first, wave.num_added))
        account_for(result, self._context, parts, progress, first=first, warmup=False)
        self._watch.lap("buffer")
        return result

    def _collect_beside_updates(self, most: int, budget: int | None) -> WaveResult:
        over = Event()
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="updates") as pool:
            self._updates = pool.submit(self._make_updates, over)
            try:
                result = self._collector.collect(most, budget)
                while wait([self._updates], WAIT_S).not_done:
                    if self._stops(result):
                        raise WaveInterrupted
            finally:
                # Also where the wave has failed: no further update begins, and none is left running. What
                # went wrong in the updates is raised here.
                over.set()
                self._updates.result()
        return result

    def _make_updates(self, over: Event) -> None:
        torch.get_num_threads()  # a new thread takes over torch's number of threads when it first asks for it
        # A stopwatch of their own: the run's counts the laps of the thread that collects.
        self._updater.make_due(Stopwatch(), over.is_set)
        self._updater.check_last()

    def _stops(self, wave: WaveResult) -> bool:
        """Whether the wave is to stop: it was asked to, or the updates have failed."""
        # A failure there must not wait for the end of the wave, which may take minutes.
        failed = self._updates.done() and self._updates.exception() is not None
        return self._tick(wave) or failed
