"""AntDir: the MuJoCo ant that has to find out in which direction it is to run, on `mujoco.batch`."""

from __future__ import annotations

import logging
import math
import os
import platform
from dataclasses import dataclass
from enum import Enum
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Shard, SlotError, Split, TaskFamily
from envs.meta.kernels import index_of, settled_actions, split_choices, split_uniforms
from utils.options import option

if TYPE_CHECKING:
    import mujoco

FRAME_SKIP = 5
HEALTHY_Z = (0.2, 1.0)
RESET_NOISE = 0.1
CONTROL_COST = 0.5
ALIVE = 1.0
HUGE = 1e10
"""MuJoCo's own limit: it resets a simulation whose state is beyond, but looks only at the start of a frame."""
TORSO = 1
"""The torso's body number, as Gymnasium's Ant has it too."""

_log = logging.getLogger(__name__)


class Variant(Enum):
    """The directions: `legacy` -1 or +1 radian, `forward_backward` 0 or pi, `circle` uniform in [0, 2 pi)."""

    legacy = "legacy"
    forward_backward = "forward_backward"
    circle = "circle"


_DIRECTIONS = {Variant.legacy: (-1.0, 1.0), Variant.forward_backward: (0.0, math.pi)}


@dataclass
class AntDirConfig(EnvConfig):
    """Options of AntDir; the defaults are AntDir-v0 of VariBAD and pomdp-baselines."""

    family: str = "AntDir"
    variant: Variant = option(Variant.legacy, "legacy: -1 or +1 radian; forward_backward: 0 or pi; circle: any direction")


class AntDir(TaskFamily):
    """The MuJoCo ant that has to find out in which direction it is to run.

    Task: the direction t in radians, by `variant`: -1 or +1 (legacy: "-1 and 1" were read as radians, so the two directions are 115 degrees
    apart and both have +x in them), 0 or pi (forward_backward), uniform in [0, 2 pi) (circle). Observation, 27 numbers: qpos[2:] (13), qvel
    (14). Action: eight torques in [-1, 1]. Reward: v . (cos t, sin t) - 0.5 |a|^2 + 1, where v is the torso's displacement in the step over
    its 0.05 s (5 frames of 0.01 s). The + 1 is paid on the last row of a fall too. Terminated: height outside [0.2, 1.0], a number that
    is not finite, or a simulation that diverged (MuJoCo resets it silently; its v is taken as 0). H=200, k=2. Every episode starts at
    MuJoCo's default pose with noise: U(-0.1, 0.1) on qpos, N(0, 0.1) on qvel. Info: velocity (v . (cos t, sin t)), x and y (of the torso).

    Lagged quantities: v, x and y are of `xpos`, which after a step describes the state before its last evaluation and not qpos. The
    published environments and Gymnasium's Ant take it from there too. Observation and height are current.

    Published as AntDir-v0 of VariBAD and pomdp-baselines, and ant-dir of PEARL (forward_backward, circle). No contact cost: with the MuJoCo
    versions of the published results `cfrc_ext` was all zeros. The model is Gymnasium's ant.xml. The two directions of legacy and
    forward_backward are all the tasks there are, so their splits are shared; those of circle are disjoint.
    """

    Config = AntDirConfig
    config: AntDirConfig

    def __init__(self, config: AntDirConfig) -> None:
        super().__init__(config)
        self.spec = EnvSpec(
            name="AntDir",
            obs_space=spaces.Box(-np.inf, np.inf, (27,), np.float32),
            action_space=spaces.Box(-1.0, 1.0, (8,), np.float32),
            task_dim=1,
            info_names=("velocity", "x", "y"),
            split=Split.disjoint if config.variant is Variant.circle else Split.shared,
        )

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        if self.config.variant is Variant.circle:
            return 2.0 * math.pi * split_uniforms(rng, (n, 1), split)
        return split_choices(rng, n, _DIRECTIONS[self.config.variant], split)[:, None]

    def make_shard(self, num_slots: int, threads: int = 1) -> AntDirShard:
        return AntDirShard(num_slots, threads)


class AntDirShard(Shard):
    """Slots of AntDir: one MuJoCo batch, and the reward in numpy over its bound arrays."""

    def __init__(self, num_slots: int, threads: int) -> None:
        # Here and not at the top: MuJoCo takes longer to import than everything else that a worker needs.
        from mujoco.batch import Batch, SimulationError

        mujoco = mujoco_module()
        _log_warnings_of(mujoco)
        self._model = load_model()
        self._batch = Batch(self._model, num_slots, min(threads, num_slots))
        self._failure = SimulationError
        self._no_stage, self._position_stage = int(mujoco.mjtStage.mjSTAGE_NONE), int(mujoco.mjtStage.mjSTAGE_POS)
        self._num_slots = num_slots
        self._qpos, self._qvel, self._ctrl = (self._batch.bind(name) for name in ("qpos", "qvel", "ctrl"))
        self._torso = self._batch.bind("xpos")[:, TORSO, :2]
        bad = [int(getattr(mujoco.mjtWarning, f"mjWARN_BAD{name}")) for name in ("QPOS", "QVEL", "QACC")]
        self._divergences = self._batch.warning[:, min(bad) : max(bad) + 1, 1]
        self._dt = self._model.opt.timestep * FRAME_SKIP
        self._xy = np.zeros((num_slots, 2))
        self._direction = np.zeros((num_slots, 2))
        self._renderer: mujoco.Renderer | None = None

    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        """Put the ants at noisy default poses (which clears their divergence counters)."""
        self._batch.reset(slots, stage=self._no_stage)
        for slot, angle, seed in zip(slots.tolist(), tasks[:, 0].tolist(), seeds.tolist(), strict=True):
            self._direction[slot] = math.cos(angle), math.sin(angle)
            rng = np.random.default_rng(seed)
            self._qpos[slot] += rng.uniform(-RESET_NOISE, RESET_NOISE, self._model.nq)
            self._qvel[slot] += RESET_NOISE * rng.standard_normal(self._model.nv)
        # The first displacement starts from the current position. No later stage is needed: the physics that follows is the same.
        self._batch.forward(slots, stage=self._position_stage)
        self._xy[slots] = self._torso[slots]
        self._write(slots, self._xy[slots], np.zeros(len(slots)))

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        """Five frames of these ants."""
        at = index_of(slots, self._num_slots)
        ctrl = settled_actions(actions, slots)
        self._ctrl[at] = ctrl
        try:
            self._batch.step(None if isinstance(at, slice) else slots, nstep=FRAME_SKIP)
        except self._failure as error:
            raise SlotError(int(error.ids[0]), str(error)) from error
        xy, diverged = self._torso[at], None
        # Not below the limit: NaN too. Divergence is rare, and one look at the states of all slots is cheap.
        if self._divergences.any() or not np.abs(self._batch.state).max() < HUGE:
            xy, diverged = self._settle(at)
        velocity = xy - self._xy[at]
        velocity /= self._dt
        velocity *= self._direction[at]
        velocity = velocity[:, 0] + velocity[:, 1]
        height = self._qpos[at, 2]
        fallen = (height < HEALTHY_Z[0]) | (height > HEALTHY_Z[1])
        if diverged is not None:
            fallen |= diverged
            velocity[diverged] = 0.0
        self._xy[at] = xy
        rows = self.rows
        rows.reward[at] = velocity - CONTROL_COST * _sum_of_squares(ctrl) + ALIVE
        rows.terminated[at] = fallen
        rows.truncated[at] = False
        self._write(at, xy, velocity)

    def _settle(self, at: NDArray[np.int64] | slice) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """The torsos' positions, and which of these slots have diverged; their states, which nobody will step, are made finite."""
        sound = (np.abs(self._qpos[at]) < HUGE).all(axis=1) & (np.abs(self._qvel[at]) < HUGE).all(axis=1)
        diverged = self._divergences[at].any(axis=1) | ~sound
        for field in (self._qpos, self._qvel):
            field[at] = np.clip(np.nan_to_num(field[at]), -HUGE, HUGE)
        return np.where(diverged[:, None], self._qpos[at, :2], self._torso[at]), diverged

    def _write(self, at: NDArray[np.int64] | slice, xy: NDArray[np.float64], velocity: NDArray[np.float64]) -> None:
        rows = self.rows
        obs = rows.obs
        assert isinstance(obs, np.ndarray)
        obs[at, :13] = self._qpos[at, 2:]
        obs[at, 13:] = self._qvel[at]
        rows.info[at, 0] = velocity
        rows.info[at, 1:] = xy

    def render(self, slot: int) -> NDArray[np.uint8]:
        """The ant as the model's tracking camera sees it."""
        renderer = self._renderer = self._renderer or _make_renderer(self._model)
        data = self._batch.get_data(slot)
        mujoco_module().mj_forward(self._model, data)
        renderer.update_scene(data, camera="track")
        return renderer.render()

    def close(self) -> None:
        """Free the renderer; MuJoCo frees the rest with the shard."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


def _sum_of_squares(actions: NDArray[np.float64]) -> NDArray[np.float64]:
    """[n] sum over the eight torques, in an order that is the same for any n (a numpy reduction's is not)."""
    squares = actions * actions
    four = squares[:, :4] + squares[:, 4:]
    two = four[:, :2] + four[:, 2:]
    return two[:, 0] + two[:, 1]


def mujoco_module() -> Any:
    """The module, imported when it is first needed; its names come from C extensions, which a type checker cannot see."""
    import mujoco

    return mujoco


def load_model() -> Any:
    """The ant, as Gymnasium models it."""
    with as_file(files("gymnasium") / "envs/mujoco/assets/ant.xml") as path:
        return mujoco_module().MjModel.from_xml_path(str(path))


def _log_warnings_of(mujoco: Any) -> None:
    """MuJoCo prints each warning and writes MUJOCO_LOG.TXT into the working directory; here a divergence is an end of an episode instead."""
    if mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_log.debug)


def _make_renderer(model: Any) -> mujoco.Renderer:
    from mujoco.rendering.classic import gl_context

    try:
        if platform.system() == "Linux" and not os.environ.get("MUJOCO_GL") and not os.environ.get("DISPLAY"):
            # MuJoCo reads MUJOCO_GL when it is imported, and its default needs a screen. Setting the variable would load OpenGL into every
            # worker, so the choice is made here, where somebody wants a picture.
            from mujoco.egl import GLContext

            gl_context.GLContext = GLContext
        return mujoco_module().Renderer(model)
    except Exception as error:  # the OpenGL bindings raise whatever the driver makes them
        raise RuntimeError(
            f"AntDir draws with OpenGL, which cannot be used here ({type(error).__name__}: {error}). "
            "Install EGL or OSMesa (Debian: libegl1, libosmesa6) and set MUJOCO_GL=egl or MUJOCO_GL=osmesa before the program starts."
        ) from error
