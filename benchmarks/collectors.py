"""Collection by several actors, beside one of them and beside this process: speed, and what the trainer pays.

    python -m benchmarks.collectors              everything, and benchmarks/results/collectors.json
    python -m benchmarks.collectors --case ant --seconds 10
    python -m benchmarks.collectors --trainer    the last table alone, which is CPU and no time of day
    python -m benchmarks.collectors --ray        and on Ray, where requirements-ray.txt is installed

The rows of a case take turns in one run; those on Ray come after them, one by one. The trainer's CPU is that
of its own process for a wave: writing the weights, waiting, reading rows and storing them. The last table has
actors that answer at once with a wave of AntDir that was played before, so what is left is the trainer alone:
where K times the rows of an actor cost it as long as the actors play, more of them gain nothing. Before each
case and at the end it waits for three seconds, to see how many cores other programs take.
"""

from __future__ import annotations

import argparse
import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import perf_counter, process_time, sleep
from typing import Any

from benchmarks.parts.learning.processor import Busy
from benchmarks.parts.machine import facts, write
from benchmarks.parts.targets import Target, targets_text
from envs.backends.base import BackendConfig
from envs.base import EnvConfig
from envs.meta.locomotion.ant_dir import AntDir
from envs.meta.third_party.gymnasium_family import GymnasiumConfig
from policies.agents.base import AgentConfig, Arch
from policies.algorithms.sac import SAC
from policies.collection.remote.actor import CollectingActor, PlayedWave, WaveOrder
from policies.collection.remote.collector import RemoteCollector
from policies.collection.remote.pool import ActorPool
from policies.learner import Learner
from policies.memory.gru import GRU
from policies.run.config import (
    CollectorConfig,
    Config,
    DeviceName,
    EvaluationConfig,
    LearnerConfig,
    TrainConfig,
)
from utils.services.wandb_run import WandbConfig, WandbMode

RESULTS = Path(__file__).parent / "results" / "collectors.json"
# Slots of one actor, and the environment of each case.
SLOTS = 16
CASES: dict[str, EnvConfig] = {
    "cpu": GymnasiumConfig(
        family="Gymnasium", id="benchmarks.parts.families:Burning-v0", max_rollouts_per_task=2
    ),
    "ant": AntDir.Config(family="AntDir", max_episode_steps=50),
}
SIMULATED = (1, 2, 8, 64)


def config_of(case: str, collector: str, actors: int, slots: int) -> Config:
    """The run of a row."""
    return Config(
        env=CASES[case],
        agent=AgentConfig(arch=Arch.Memory),
        memory=GRU.Config(name="GRU"),
        algorithm=SAC.Config(name="SAC"),
        backend=BackendConfig(name="auto" if collector == "local" else "serial"),
        train=TrainConfig(num_rollouts_per_iter=slots, buffer_size=100_000),
        evaluation=EvaluationConfig(),
        learner=LearnerConfig(),
        wandb=WandbConfig(mode=WandbMode.disabled),
        collector=CollectorConfig(collector, actors),
        num_slots=slots,
        device=DeviceName.cpu,
    )


def rows_of_case(ray: bool) -> Iterator[tuple[str, str, int, int]]:
    """(name, collector, actors, slots in all) of every row of a case."""
    yield f"local, auto, {SLOTS} slots", "local", 1, SLOTS
    yield f"local, auto, {2 * SLOTS} slots", "local", 1, 2 * SLOTS
    for kind in ("processes", "ray") if ray else ("processes",):
        for actors in (1, 2):
            yield f"{kind}, {actors} actors of {SLOTS} slots", kind, actors, actors * SLOTS


def measure_case(case: str, ray: bool, seconds: float, repeats: int) -> dict[str, Any]:
    """Every row of a case; those of a group are open at the same time and measured in turns."""
    every = list(rows_of_case(ray))
    # A cluster that is started here has as many places as the run has actors, so each row has its own.
    groups = [[row for row in every if row[1] != "ray"], *([row] for row in every if row[1] == "ray")]
    rows: dict[str, dict[str, Any]] = {}
    for group in groups:
        rows |= _measure_group(case, group, seconds, repeats)
    return rows


def _measure_group(
    case: str, group: Sequence[tuple[str, str, int, int]], seconds: float, repeats: int
) -> dict[str, dict[str, Any]]:
    """The best of the repeats of each row."""
    rows: dict[str, dict[str, Any]] = {}
    learners: dict[str, Learner] = {}
    try:
        for name, collector, actors, slots in group:
            learners[name] = learner = Learner(config_of(case, collector, actors, slots))
            learner.collect_wave(slots)  # starts its processes, and imports what they need
            rows[name] = {"env_steps_per_s": 0.0, "slots": slots}
        for _ in range(repeats):
            for name, learner in learners.items():
                found = _waves(learner, rows[name]["slots"], seconds)
                if found["env_steps_per_s"] > rows[name]["env_steps_per_s"]:
                    rows[name] |= found
    finally:
        for learner in learners.values():
            learner.close()
    return rows


def _waves(learner: Learner, trials: int, seconds: float) -> dict[str, float]:
    """Waves for so many seconds: env steps per second, and the CPU of this process for each wave."""
    steps, waves, start, spent = 0, 0, perf_counter(), process_time()
    while perf_counter() - start < seconds:
        steps += learner.collect_wave(trials).env_steps
        waves += 1
    return {
        "env_steps_per_s": steps / (perf_counter() - start),
        "trainer_cpu_ms_per_wave": 1e3 * (process_time() - spent) / waves,
    }


class _Answered(ActorPool):
    """Actors that have played already: each answers with the same block of bytes."""

    def __init__(self, config: Config, block: bytes, actors: int) -> None:
        super().__init__(config)
        self.actors, self._block = actors, block

    def play(self, orders: Sequence[WaveOrder], stops: Callable[[], bool]) -> list[PlayedWave]:
        pickle.dumps({name: value.numpy() for name, value in orders[0].weights.items()})
        return [PlayedWave.from_bytes(self._block) for _ in orders]

    def close(self) -> None:
        return


def simulated(repeats: int) -> dict[str, Any]:
    """What the trainer pays for a wave of K actors, and what travels."""
    with Learner(config_of("ant", "local", 1, SLOTS)) as learner:
        actor = CollectingActor(learner.config, 1)
        weights = learner.agent.state_dict()
        start = process_time()
        wave = actor.play(WaveOrder(weights, {}, 0, SLOTS, None, False))
        played, block = process_time() - start, wave.to_bytes()
        actor.close()
        rows: dict[str, Any] = {
            "actor_cpu_ms_per_wave": 1e3 * played,
            "env_steps_per_actor_and_wave": wave.result.env_steps,
            "bytes_per_env_step": len(block) / wave.result.env_steps,
            "weights_mib": sum(value.numel() * value.element_size() for value in weights.values()) / 2**20,
        }
        for actors in SIMULATED:
            pool = _Answered(learner.config, block, actors)
            collector = RemoteCollector(
                learner.context, learner.progress, pool, learner.agent, learner.buffer, lambda _: False
            )
            times = []
            for _ in range(repeats):
                start = process_time()
                collector.collect(actors * SLOTS)
                times.append(1e3 * (process_time() - start))
            rows[f"trainer_cpu_ms_per_wave, K = {actors}"] = min(times)
    return rows


def targets_of(cases: dict[str, Any]) -> list[Target]:
    """What is wanted of the rows, and what they reached."""

    def ratio(case: str, one: str, other: str) -> float | None:
        rows = cases.get(case, {})
        if one not in rows or other not in rows:
            return None
        return rows[one]["env_steps_per_s"] / rows[other]["env_steps_per_s"]

    two, single = f"processes, 2 actors of {SLOTS} slots", f"processes, 1 actors of {SLOTS} slots"
    local = f"local, auto, {2 * SLOTS} slots"
    return [
        Target("5 ms of CPU, two actors x one", 1.8, ratio("cpu", two, single)),
        Target("AntDir, two actors x one", 1.3, ratio("ant", two, single)),
        Target("5 ms of CPU, two actors x backend=auto with as many slots", 0.9, ratio("cpu", two, local)),
        Target("AntDir, two actors x backend=auto with as many slots", 0.9, ratio("ant", two, local)),
    ]


def others() -> float:
    """How many cores other programs take while this one waits."""
    busy = Busy()
    sleep(3.0)
    found = busy.others()
    print(f"\nother programs take {found:.2f} cores", flush=True)
    return found


def trainer_table() -> dict[str, float]:
    """Measure and print what actors that answer at once cost the trainer."""
    trainer = simulated(20)
    print("\nThe trainer with actors that answer at once (AntDir, H = 50)")
    for name, value in trainer.items():
        print(f"{name:42}{value:10.2f}")
    return trainer


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--trainer", action="store_true", help="no cases, and the last table alone")
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--seconds", type=float, default=5.0, help="of every row, in each repeat")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=Path, help=f"default: {RESULTS.name} for all cases")
    options = parser.parse_args()
    print(facts()["text"], flush=True)
    cases: dict[str, Any] = {}
    busy: list[float] = []
    for case in [] if options.trainer else options.case:
        busy.append(others())
        cases[case] = measure_case(case, options.ray, options.seconds, options.repeats)
        print(f"\n{case}{'env-steps/s':>42}{'trainer, CPU ms a wave':>26}")
        for name, row in cases[case].items():
            print(
                f"{name:34}{row['env_steps_per_s']:11,.0f}{row['trainer_cpu_ms_per_wave']:26.1f}", flush=True
            )
    busy.append(others())
    trainer = trainer_table()
    targets = targets_of(cases) if cases else []
    if targets:
        print(targets_text(targets))
    output = options.output or (RESULTS if list(cases) == list(CASES) else None)
    if output is not None:
        reached = [target.as_json() for target in targets]
        found = {"targets": reached, "cases": cases, "trainer": trainer, "others": busy}
        write(output, {"machine": facts()} | found)


if __name__ == "__main__":
    main()
