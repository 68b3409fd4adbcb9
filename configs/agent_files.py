"""Agents' files that evaluate= names: each becomes a run folder below outputs/ for its results."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import yaml

from policies.play.record import AgentRecord
from policies.run.checkpointing import save_agent_alone
from policies.run.config import CHECKPOINTS, save_record
from utils.options import OptionError, nearest

# The agents of the zoo, which come with the project: evaluate=zoo/Wind.
ZOO = "zoo"
ZOO_FOLDER = Path(__file__).resolve().parent.parent / "benchmarks" / "results" / "zoo"
UNPACKED = Path("outputs") / "agents"


def agent_file(given: Path) -> Path | None:
    """The agent's file that is meant, by its path or as zoo/NAME; None where something else is."""
    if given.is_file():
        return given
    if given.parent != Path(ZOO) or given.exists():
        return None
    file = ZOO_FOLDER / f"{given.name}.pt"
    if not file.is_file():
        names = sorted(one.stem for one in ZOO_FOLDER.glob("*.pt"))
        raise OptionError(f"The zoo has no agent {given.name}.{nearest(given.name, names)}")
    return file


def unpacked(file: Path) -> Path:
    """Make a run folder of an agent's file: the config of its run, and a checkpoint of what acts."""
    record = AgentRecord.load(file)
    folder = UNPACKED / file.stem / f"{datetime.now():%Y-%m-%d_%H-%M-%S_%f}"
    folder.mkdir(parents=True)
    try:
        save_record(record.config, folder)
    except yaml.YAMLError as error:
        reason = "its config holds more than plain values"
        raise OptionError(f"{file} is not the file of an agent: {reason}.") from error
    save_agent_alone(folder / CHECKPOINTS, record.parameters, record.env_steps)
    return folder
