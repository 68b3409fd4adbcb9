"""The trials of a run as a dataset: plain arrays in one file, to learn from without an environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from buffers.stored_rows import RowFlags
from buffers.trial_storage import Segment
from policies.collection.actors import AgentActor
from policies.collection.wave import WavePlan, run_wave
from policies.learner import Learner
from policies.run.config import recordable
from utils.disk.own_files import replacing
from utils.options import OptionError
from utils.seeding import Phase, trial_seed
from utils.services.wandb_run import redact

# So many trials are played for a run that stores none.
PLAYED = 100
_FLAGS = {
    "terminated": RowFlags.TERMINATED,
    "truncated": RowFlags.TRUNCATED,
    "episode_start": RowFlags.EPISODE_START,
    "trial_start": RowFlags.TRIAL_START,
    "trial_end": RowFlags.TRIAL_END,
}
Arrays = dict[str, NDArray[Any]]


def export_trials(learner: Learner, file: Path, trials: int | None = None) -> int:
    """Write the trials of a loaded run into a file; returns how many there are.

    Those are the trials in its replay; with `trials`, and on-policy, new ones that the agent plays.
    """
    if trials is None and not learner.context.needs.on_policy:
        arrays = stored_trials(learner)
    else:
        arrays = played_trials(learner, trials or PLAYED)
    with replacing(file) as opened:
        np.savez_compressed(opened, **arrays)  # pyright: ignore[reportArgumentType]
    return len(arrays["number"])


def stored_trials(learner: Learner) -> Arrays:
    """The trials in the replay, which begin with those of random actions as long as they are there."""
    counters, buffer = learner.counters, learner.buffer
    if learner.config.curriculum.name != "uniform" or counters.left_out:
        raise OptionError(
            "The tasks of the stored trials followed from what was learned then, and are not kept: "
            "export.trials=N plays new trials."
        )
    # The buffer counts all trials: first the random pool, then those of the policy by their numbers.
    places = np.arange(buffer.oldest, buffer.num_added)
    random = places < counters.warmup_trials
    phases = [Phase.WARMUP if one else Phase.TRAIN for one in random]
    numbers = np.where(random, places, places - counters.warmup_trials)
    return _dataset(learner, buffer.export(buffer.oldest, buffer.num_added), phases, numbers)


def played_trials(learner: Learner, count: int) -> Arrays:
    """New trials of the agent as it is, on tasks for training, numbered on from those of the run."""
    context, first = learner.context, learner.counters.next_number
    env, actor = learner.environments.training, AgentActor(learner.parts.judged, context.device)
    parts: list[Arrays] = []
    for begin in range(first, first + count, context.sizes.wave_trials):
        most = min(context.sizes.wave_trials, first + count - begin)
        plan = WavePlan(context.config.seed, Phase.TRAIN, begin, most, context.training_tasks.uniform)
        added = learner.buffer.num_added
        run_wave(env, actor, plan, sink=learner.buffer, watch=learner.watch, tick=learner.tick)
        segment = learner.buffer.export(added, learner.buffer.num_added)
        parts.append(_dataset(learner, segment, [Phase.TRAIN] * most, np.arange(begin, begin + most)))
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0] if name != "config"}
    joined["first_row"] = np.cumsum(joined["num_rows"]) - joined["num_rows"]
    return joined | {"config": parts[0]["config"]}


def _dataset(learner: Learner, segment: Segment, phases: list[Phase], numbers: NDArray[np.int64]) -> Arrays:
    """Rows and trials in the names of the contract, without the trials that were given up."""
    whole, seed = segment["lengths"] > 0, learner.config.seed
    keys = [(phase, int(number)) for phase, number, kept in zip(phases, numbers, whole, strict=True) if kept]
    lengths = segment["lengths"][whole]
    tasks = [learner.context.training_tasks.uniform(number, phase) for phase, number in keys]
    rows = {name: values for name, values in segment.items() if name.partition(".")[0] in ("obs", "action")}
    rows |= {"reward": segment["reward"]}
    return (
        rows
        | {name: segment["flags"] & bit > 0 for name, bit in _FLAGS.items()}
        | {
            "first_row": np.cumsum(lengths) - lengths,
            "num_rows": lengths,
            "task": np.array(tasks).reshape(len(keys), -1),
            "phase": np.array([phase.name for phase, _ in keys]),
            "number": np.array([number for _, number in keys]),
            "seed": np.array([trial_seed(seed, phase, number) for phase, number in keys], np.uint64),
            # With stars for what may log in somewhere.
            "config": np.array(json.dumps(redact(recordable(learner.config)))),
        }
    )
