"""The learning benchmark: when a mark is reached, what seeds say together, how runs are kept, and one real
run.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from rich.console import Console

from benchmarks import learn
from benchmarks.learn import ROOT, Run, load_runs, played, store_runs
from benchmarks.parts.curves import Point, band, crossing, point_of, summary_of, table_of
from benchmarks.parts.learning.recipes import recipe_of
from utils.statistics import Interval

QUIET = Console(quiet=True)


def point(env_steps: int, *returns: float) -> Point:
    return Point(env_steps, env_steps / 100, 0.0, 0, list(returns))


def run(name: str, seed: int, *points: Point, marks: tuple[float, ...] = (3.0,)) -> Run:
    return Run(
        name,
        seed,
        [],
        list(marks),
        None,
        list(points),
        "env steps",
        1.0,
        points[-1].env_steps,
        0,
        100.0,
        1.0,
        {},
        0.0,
        "",
    )


def test_a_mark_is_reached_by_the_first_evaluation_whose_trial_is_as_good() -> None:
    curve = [point(100, 1, 1), point(200, 1, 2), point(300, 0, 0), point(400, 3, 3)]
    assert crossing(curve, 3.0) == curve[1]
    assert crossing(curve, 6.1) is None


def test_a_line_of_metrics_tells_of_held_out_tasks_only() -> None:
    line = {"env_steps": 7, "updates": 2, "time/seconds": 10.0, "time/evaluate": 0.5}
    assert point_of(line) is None
    assert point_of(line | {"eval/train/return_episode_1": 3.0}) is None
    lists = {
        "eval/train/return_episode_1": 3.0,
        "eval/held_out/return_episode_1": 1.0,
        "eval/held_out/return_episode_2": 2.0,
    }
    assert point_of(line | lists) == Point(7, 10.0, 5.0, 2, [1.0, 2.0])
    assert point_of(
        line
        | {
            "eval/in_distribution/return_episode_1": 4.0,
            "eval/in_distribution_stochastic/return_episode_1": 0.0,
        }
    ) == Point(7, 10.0, 5.0, 2, [4.0])


def test_seeds_are_summed_up_by_an_interquartile_mean_and_its_interval() -> None:
    found = summary_of(
        [
            run("a", 0, point(100, 1, 1), point(200, 2, 2)),
            run("a", 1, point(100, 1, 0), point(220, 0, 2)),
            run("b", 0, point(1, 0)),
            *(run("c", seed, point(1, seed)) for seed in range(3)),
        ]
    )
    assert found["a"]["seeds"] == 2 and found["a"]["trial_return"] == Interval(3.0)
    assert found["b"]["by_episode"] == [Interval(0.0)]
    assert found["c"]["trial_return"].mean == 1.0 and found["c"]["trial_return"].low == 0.0
    assert found["a"]["marks"]["3"] == {
        "reached": 1,
        "seconds": [2.0],
        "env_steps": [200],
        "processor_s": [0.0],
    }


def test_a_band_goes_as_far_as_every_seed_does() -> None:
    curves = [[point(100, 0), point(300, 2)], [point(200, 3), point(400, 3)], [point(200, 2), point(300, 4)]]
    place, mean, low, high = band(curves, "env_steps")
    assert (place[0], place[-1]) == (200, 300)
    assert (mean[0], mean[-1]) == (2.0, 3.0) and (low[0], high[0]) == (1.0, 3.0)
    _, mean, low, high = band(curves[:2], "env_steps")
    assert np.array_equal(low, mean) and np.array_equal(high, mean), "two seeds say nothing of others"


def test_runs_are_kept_by_name_and_seed_with_a_picture_of_all(tmp_path: Path) -> None:
    file = tmp_path / "learn.json"
    store_runs(file, [run("arm_ppo", 0, point(1, 0), point(9, 1))])
    merged = store_runs(
        file, [run("arm_ppo", 1, point(1, 0), point(9, 2)), run("arm_ppo", 0, point(1, 0), point(8, 5))]
    )
    assert list(merged) == ["arm_ppo seed 0", "arm_ppo seed 1"] and load_runs(file) == merged
    assert merged["arm_ppo seed 0"].curve[-1].returns == [5]
    assert (tmp_path / "learn.png").stat().st_size > 10_000 and sorted(
        one.name for one in tmp_path.iterdir()
    ) == ["learn.json", "learn.png"]
    assert table_of(merged.values()).row_count == 1


WRITES = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
lines = '{{"env_steps": 5, "time/seconds": 1.5, "updates": 0}}\\n{{"env_st'
pathlib.Path("{folder}/metrics.jsonl").write_text(lines)
{then}
"""


def test_a_run_is_ended_when_its_time_is_over_and_half_a_line_is_not_read(tmp_path: Path) -> None:
    code = WRITES.format(folder=tmp_path, then="time.sleep(100)")
    lines, ended = played([sys.executable, "-c", code], tmp_path, 2.0, QUIET, "a run")
    assert ended == "limit" and [line["env_steps"] for line in lines] == [5]


def test_a_run_that_fails_is_told_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"a run ended with exit code 1; .*\n(.*\n)*.*no such luck"):
        played([sys.executable, "-c", "raise ValueError('no such luck')"], tmp_path, None, QUIET, "a run")


def test_a_recipe_is_a_name_of_the_module_or_an_experiment() -> None:
    assert recipe_of("semi_circle").words == ("experiment=semi_circle",)
    assert recipe_of("ant_dir_ppo").marks
    with pytest.raises(Exception, match="Did you mean 'ant_dir_ppo'"):
        recipe_of("ant_dir_pp")


def test_a_real_run_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = [
        "train.n_env_steps_total=400",
        "train.num_init_rollouts_pool=4",
        "train.num_rollouts_per_iter=4",
        "env.num_eval_tasks=2",
    ]
    file = tmp_path / "learn.json"
    words = [
        "--recipe",
        "point_robot_sac",
        "--seeds",
        "3",
        "--mark",
        "-1",
        "--folder",
        str(tmp_path / "runs"),
        "--results",
        str(file),
    ]
    monkeypatch.setattr(sys, "argv", ["learn", *words, "--set", *small])
    handler = signal.getsignal(signal.SIGTERM)
    learn.main()
    assert signal.getsignal(signal.SIGTERM) is handler
    found = json.loads(file.read_text())["runs"]["point_robot_sac seed 3"]
    assert (
        found["ended"] == "env steps"
        and found["env_steps"] >= 400
        and len(found["curve"][-1]["returns"]) == 2
    )
    assert found["machine"]["versions"]["torch"] and 0 < found["curve"][-1]["seconds"] < found["wall_s"]


def test_a_run_ends_with_the_benchmark_that_plays_it(tmp_path: Path) -> None:
    """The run says who it is, and would go on for ever."""
    run = "import os, signal; os.write(1, str(os.getpid()).encode()); signal.pause()"
    script = f"""
import sys
from pathlib import Path
from rich.console import Console
from benchmarks.learn import played
played([sys.executable, "-c", {run!r}], Path(sys.argv[1]), None, Console(), "a run")
"""
    benchmark = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, stdout=subprocess.DEVNULL
    )
    try:
        output = tmp_path / "output.txt"
        while not (output.exists() and output.read_text()):
            assert benchmark.poll() is None
            time.sleep(0.01)
        child = psutil.Process(int(output.read_text()))
        benchmark.terminate()
        assert benchmark.wait(10.0) == 128 + signal.SIGTERM
        assert not child.is_running()
    finally:
        benchmark.kill()
        benchmark.wait()
