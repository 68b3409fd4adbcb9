"""Wrappers and algorithms of other libraries run on single environments of every kind of family."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import FlattenObservation, RecordEpisodeStatistics, RecordVideo

from envs.meta.make_env import make_env

# Numbers and actions of each kind: real numbers, choices, a physics engine, a picture, many choices.
KINDS = ("PointRobot", "GridNavi", "AntDir", "KeyToDoor", "CyberDefence")


def flat(name: str, **options: Any) -> gymnasium.Env[Any, Any]:
    """A short trial; a picture becomes a vector, since SB3's network for pictures needs larger ones."""
    if name != "KeyToDoor":
        options["horizon"] = 6
    env = make_env(name, 2, **options)
    return FlattenObservation(env) if name == "KeyToDoor" else env


def play(env: gymnasium.Env[Any, Any]) -> tuple[int, float, dict[str, Any]]:
    """A trial of random actions: its steps, its return and its last info."""
    env.reset(seed=0)
    env.action_space.seed(0)
    steps, total, over, info = 0, 0.0, False, dict[str, Any]()
    while not over:
        _, reward, terminated, truncated, info = env.step(env.action_space.sample())
        steps, total, over = steps + 1, total + float(reward), terminated or truncated
    return steps, total, info


@pytest.mark.parametrize("name", KINDS)
def test_statistics_are_of_whole_trials(name: str) -> None:
    env = RecordEpisodeStatistics(flat(name))
    steps, total, info = play(env)
    assert info["episode"]["l"] == steps and info["episode"]["r"] == pytest.approx(total)
    assert info["episode_index"] == 1
    env.close()


@pytest.mark.parametrize("name", KINDS)
def test_videos_are_of_whole_trials(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in keeps the frames: MoviePy, which encodes them, needs an older Pillow than the tested set."""
    clips: list[list[Any]] = []

    class Clip:
        def __init__(self, frames: list[Any], fps: int) -> None:
            clips.append(list(frames))

        def write_videofile(self, path: str, logger: None) -> None:
            assert logger is None and path.startswith(str(tmp_path))

    last = "moviepy.video.io.ImageSequenceClip"
    for module in ("moviepy", "moviepy.video", "moviepy.video.io", last):
        monkeypatch.setitem(sys.modules, module, ModuleType(module))
    monkeypatch.setattr(sys.modules[last], "ImageSequenceClip", Clip, raising=False)
    env = RecordVideo(
        flat(name, render_mode="rgb_array"), str(tmp_path / "films"), episode_trigger=lambda trial: True
    )
    steps, _, _ = play(env)
    env.close()
    [frames] = clips
    assert len(frames) == steps + 1, "a picture of every row"
    assert {frame.shape[2] for frame in frames} == {3} and np.ptp(frames[0]) > 0


@pytest.mark.peers
@pytest.mark.parametrize("name", KINDS)
def test_sb3_trains_on_it(name: str) -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    contrib = pytest.importorskip("sb3_contrib")
    envs = sb3.common.vec_env.DummyVecEnv([partial(flat, name)] * 2)
    for kind, policy in ((sb3.PPO, "MlpPolicy"), (contrib.RecurrentPPO, "MlpLstmPolicy")):
        model = kind(policy, envs, n_steps=16, batch_size=16, n_epochs=1, device="cpu")
        model.learn(32)
        assert model.num_timesteps == 32
    envs.close()


@pytest.mark.peers
def test_sb3_trains_on_it_in_its_processes() -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    contrib = pytest.importorskip("sb3_contrib")
    envs = sb3.common.vec_env.VecMonitor(sb3.common.vec_env.SubprocVecEnv([partial(flat, "PointRobot")] * 2))
    model = contrib.RecurrentPPO("MlpLstmPolicy", envs, n_steps=16, batch_size=16, n_epochs=1, device="cpu")
    model.learn(64)
    assert {episode["l"] for episode in model.ep_info_buffer} == {2 * 7 - 1}, "its episodes are trials"
    envs.close()


@pytest.mark.peers
@pytest.mark.parametrize("name", KINDS)
def test_torchrl_plays_it(name: str) -> None:
    torchrl = pytest.importorskip("torchrl.envs")
    env = torchrl.GymWrapper(flat(name), device="cpu")
    data = env.rollout(8)
    assert data.batch_size[0] == 8 and bool(data["next", "reward"].isfinite().all())
    env.close()
