"""Robots on `mujoco.batch`: all but a family's observation, reward and ends."""

from __future__ import annotations

import logging
import os
import platform
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from envs.base import Shard, SlotError
from envs.meta.kernels import clipped_actions, index_of
from utils.options import OptionError

if TYPE_CHECKING:
    import mujoco

# MuJoCo's own limit: it resets a simulation whose state lies beyond. It checks at the start of a frame only,
# so a state may be beyond the limit at the end of a step.
HUGE = 1e10

_INSTALL = (
    "Install EGL or OSMesa (Debian: libegl1, libosmesa6) "
    "and set MUJOCO_GL=egl or MUJOCO_GL=osmesa before the program starts"
)

_log = logging.getLogger(__name__)

# How the slots of a step index arrays: all of them as a slice, else their numbers (see `index_of`).
SlotIndex = NDArray[np.int64] | slice


class Speeds(Enum):
    """How the noise on an episode's first velocities is drawn."""

    normal = "normal"
    uniform = "uniform"


@dataclass(frozen=True)
class RobotModel:
    """A robot of Gymnasium's, as its tasks use it."""

    # The file of its model, among Gymnasium's MuJoCo assets.
    file: str
    # The number of physics frames in a step.
    frame_skip: int
    # The scale of the noise on an episode's first qpos (uniform) and qvel (see `speeds`).
    noise: float
    speeds: Speeds
    camera: str = "track"


class MujocoShard(Shard, ABC):
    """Slots of one robot.

    A subclass defines a position that it tracks, the reward of a step, the end of an episode, and the
    observation. `velocity` is the difference of that position over a step, divided by the step's duration. A
    simulation that diverged ends its episode with velocity 0 and finite numbers (MuJoCo would silently put it
    back to its start).

    `fields` are fields of the model of which every slot has values of its own, in `self.fields`; they must
    not change the geometry. With `contacts`, each simulation has its own MjData, and `contact_forces` returns
    what MuJoCo computes only when it is asked to. A subclass binds derived fields in its constructor: a field
    that is bound later reads 0 until the next call.
    """

    # How far MuJoCo computes a start (`mujoco.mjtStage`): as far as a first observation or position needs.
    #
    # The physics after it is the same. Fields beyond this stage may hold another slot's values, because the
    # threads of the batch compute many simulations in the same memory.
    start_stage = "POS"

    def __init__(
        self,
        num_slots: int,
        threads: int,
        robot: RobotModel,
        *,
        dims: int = 1,
        fields: tuple[str, ...] = (),
        contacts: bool = False,
    ) -> None:
        # Here and not at the top: MuJoCo takes longer to import than everything else that a worker needs.
        mujoco = mujoco_module()
        from mujoco.batch import Batch, SimulationError

        # The model, and one simulation per slot; the arrays that are bound follow the simulations.
        hush_mujoco()
        self.robot = robot
        self.num_slots = num_slots
        self.model = load_model(robot.file)
        self.batch = Batch(self.model, num_slots, min(threads, num_slots), persistent=contacts)
        self.qpos, self.qvel, self._ctrl = (self.batch.bind(name) for name in ("qpos", "qvel", "ctrl"))
        self.fields = {name: self.batch.expand(name) for name in fields}
        # The duration of a step in seconds.
        self.dt = float(self.model.opt.timestep) * robot.frame_skip
        self._failure = SimulationError
        start_stage = "ACC" if contacts else self.start_stage  # the forces of a start, too
        self._none, self._start_stage = (
            int(getattr(mujoco.mjtStage, f"mjSTAGE_{stage}")) for stage in ("NONE", start_stage)
        )
        # Counters of the warnings with which MuJoCo reports a divergence: a number is not finite or too
        # large.
        bad = [int(getattr(mujoco.mjtWarning, f"mjWARN_BAD{name}")) for name in ("QPOS", "QVEL", "QACC")]
        self._divergences = self.batch.warning[:, min(bad) : max(bad) + 1, 1]
        # Actions lie in [-1, 1]; models whose torques have other bounds scale them.
        gain = self.model.actuator_ctrlrange[:, 1]
        self._gain = None if (gain == 1.0).all() else gain.copy()
        # The tracked position at the previous row, from which the velocity follows.
        self._before = np.zeros((num_slots, dims))
        # Contact forces are computed in an MjData of their own, one slot after the other.
        self._scratch = mujoco.MjData(self.model) if contacts else None
        self._forces = np.zeros((num_slots, self.model.nbody, 6)) if contacts else None
        self._renderer: mujoco.Renderer | None = None

    @abstractmethod
    def set_tasks(self, slots: NDArray[np.int64], tasks: NDArray[np.float64]) -> None:
        """Store the tasks of these slots, and set what they change in `self.fields`.

        The start of the episode follows.
        """

    @abstractmethod
    def position(self, at: SlotIndex) -> NDArray[np.float64]:
        """[n, dims] the position whose change is the velocity."""

    @abstractmethod
    def score(
        self,
        at: SlotIndex,
        ctrl: NDArray[np.float64],
        position: NDArray[np.float64],
        velocity: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """[n] the reward of a step; writes info.

        `ctrl` are the torques as the model takes them, and `velocity` is [n, dims].
        """

    def fallen(self, at: SlotIndex) -> NDArray[np.bool_] | None:
        """[n] whether the episode ends here; None for robots that cannot fall."""
        return None

    @abstractmethod
    def observe(self, at: SlotIndex, obs: NDArray[Any]) -> None:
        """Write the observation of these slots into `obs[at]`."""

    def write_start_info(self, at: SlotIndex, position: NDArray[np.float64]) -> None:
        """Write the info of a start, where it is not 0."""
        self.rows.info[at] = 0.0

    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        """Start episodes in noisy default poses; this also clears MuJoCo's divergence counters."""
        self.set_tasks(slots, tasks)
        # Put the simulations back to the default pose; nothing is computed yet.
        self.batch.reset(slots, stage=self._none)
        noise, (nq, nv) = self.robot.noise, (self.model.nq, self.model.nv)
        # One generator per slot, so that its noise depends on its seed alone.
        for slot, seed in zip(slots.tolist(), seeds.tolist(), strict=True):
            rng = np.random.default_rng(seed)
            self.qpos[slot] += rng.uniform(-noise, noise, nq)
            if self.robot.speeds is Speeds.normal:
                self.qvel[slot] += noise * rng.standard_normal(nv)
            else:
                self.qvel[slot] += rng.uniform(-noise, noise, nv)
        # Compute the derived fields of the noisy pose, then write the first row.
        self.batch.forward(slots, stage=self._start_stage)
        self._read_forces(slots, None)
        position = self._before[slots] = self.position(slots)
        self.write_start_info(slots, position)
        self.observe(slots, self._obs)

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        """Simulate one step of these slots, which is `frame_skip` frames of physics."""
        at = index_of(slots, self.num_slots)
        ctrl = clipped_actions(actions, slots)
        if self._gain is not None:
            ctrl *= self._gain
        self._ctrl[at] = ctrl
        try:
            self.batch.step(None if isinstance(at, slice) else slots, nstep=self.robot.frame_skip)
        except self._failure as error:
            raise SlotError(int(error.ids[0]), str(error)) from error
        # "not ... < HUGE" is true for NaN too. One check of all slots' states is cheap, and seldom true.
        if self._divergences.any() or not np.abs(self.batch.state).max() < HUGE:
            # What derives from a diverged state may be anything, so numpy's warnings about it tell nothing.
            with np.errstate(over="ignore", invalid="ignore"):
                self._write_rows(at, ctrl, self._repair_diverged(at))
        else:
            self._write_rows(at, ctrl, None)

    def _write_rows(
        self, at: SlotIndex, ctrl: NDArray[np.float64], diverged: NDArray[np.bool_] | None
    ) -> None:
        """Write the rows of a step that has been simulated."""
        # The velocity of the tracked position; a diverged simulation has not moved.
        position, before = self.position(at), self._before[at]
        if diverged is not None:
            position = np.where(diverged[:, None], before, position)
        velocity = position - before
        velocity /= self.dt
        self._before[at] = position
        self._read_forces(at, diverged)
        # Reward first: `score` may compute what `fallen` needs.
        rows = self.rows
        rows.reward[at] = self.score(at, ctrl, position, velocity)
        # The episode ends by a fall or by a divergence; the time limit is the trial clock's.
        ended = self.fallen(at)
        rows.terminated[at] = False if ended is None else ended
        if diverged is not None:
            rows.terminated[at] |= diverged
        rows.truncated[at] = False
        self.observe(at, self._obs)
        if diverged is not None:
            self._obs[at] = np.clip(np.nan_to_num(self._obs[at], posinf=HUGE, neginf=-HUGE), -HUGE, HUGE)

    @property
    def _obs(self) -> NDArray[Any]:
        assert isinstance(self.rows.obs, np.ndarray)
        return self.rows.obs

    def _repair_diverged(self, at: SlotIndex) -> NDArray[np.bool_]:
        """[n] which of these slots have diverged.

        Their states are made finite, so that everything that is computed from them is a number. They are not
        stepped again before a reset.
        """
        finite = (np.abs(self.qpos[at]) < HUGE).all(axis=1) & (np.abs(self.qvel[at]) < HUGE).all(axis=1)
        for field in (self.qpos, self.qvel):
            field[at] = np.clip(np.nan_to_num(field[at]), -HUGE, HUGE)
        return self._divergences[at].any(axis=1) | ~finite

    def contact_forces(self, at: SlotIndex) -> NDArray[np.float64]:
        """[n, bodies, 6] `cfrc_ext` as of MuJoCo's last evaluation, lagged like every derived field.

        The forces of a diverged slot are 0.
        """
        assert self._forces is not None, "built without contacts"
        return self._forces[at]

    def _read_forces(self, at: SlotIndex, diverged: NDArray[np.bool_] | None) -> None:
        """Let MuJoCo compute the contact forces of these slots."""
        forces, data, model = self._forces, self._scratch, self.model
        if forces is None or data is None:
            return
        rne, get_data = mujoco_module().mj_rnePostConstraint, self.batch.get_data
        for slot in range(self.num_slots) if isinstance(at, slice) else at.tolist():
            get_data(slot, data)
            # With the shared model for every slot: these forces sum those of the contacts, which are in the
            # data, and no varied field is read.
            rne(model, data)
            forces[slot] = data.cfrc_ext
        if diverged is not None:
            forces[at] = np.where(diverged[:, None, None], 0.0, forces[at])

    def render(self, slot: int) -> NDArray[np.uint8]:
        """The robot as the model's tracking camera sees it."""
        renderer = self._renderer = self._renderer or _make_renderer(self.model)
        data = self.batch.get_data(slot)
        # With the slot's own model, whose masses and sizes may differ from the shared one's.
        mujoco_module().mj_forward(self.batch.get_model(slot), data)
        renderer.update_scene(data, camera=self.robot.camera)
        return renderer.render()

    def close(self) -> None:
        """Free the renderer; MuJoCo frees the rest with the shard."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


def mujoco_module() -> Any:
    """The module `mujoco`, imported when it is first needed.

    Its names come from C extensions, which a type checker cannot see.
    """
    try:
        import mujoco
    except (AttributeError, ImportError, RuntimeError) as error:
        # MuJoCo loads its OpenGL library when it is imported, whether or not pictures are wanted.
        if not (chosen := os.environ.get("MUJOCO_GL")):
            raise
        raise OptionError(
            f"MuJoCo cannot be imported with MUJOCO_GL={chosen} ({type(error).__name__}: {error}). "
            f"{_INSTALL}, or unset it: only pictures need it."
        ) from error
    return mujoco


def load_model(file: str) -> Any:
    """The MjModel of one of Gymnasium's robots."""
    hush_mujoco()  # some models warn while they are read
    with as_file(files("gymnasium") / "envs/mujoco/assets" / file) as path:
        return mujoco_module().MjModel.from_xml_path(str(path))


def hush_mujoco() -> None:
    """Log MuJoCo's warnings instead of printing them.

    MuJoCo prints each warning and writes MUJOCO_LOG.TXT into the working directory; here a divergence is an
    ordinary end of an episode.
    """
    mujoco = mujoco_module()
    if mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_log.debug)


def _make_renderer(model: Any) -> mujoco.Renderer:
    """A renderer on EGL, where Linux has no screen and the user chose nothing else."""
    from mujoco.rendering.classic import gl_context

    try:
        # MuJoCo reads MUJOCO_GL when it is imported, and its default needs a screen. To set the variable
        # would load OpenGL into every worker, so the choice is made here, where a picture is wanted.
        if platform.system() == "Linux" and not os.environ.get("MUJOCO_GL") and not os.environ.get("DISPLAY"):
            from mujoco.egl import GLContext

            gl_context.GLContext = GLContext
        return mujoco_module().Renderer(model)
    except Exception as error:  # the OpenGL bindings raise whatever the driver makes them raise
        raise RuntimeError(
            "MuJoCo draws with OpenGL, which cannot be used here "
            f"({type(error).__name__}: {error}). {_INSTALL}."
        ) from error
