"""TensorBoard: the curves of a run as event files in its folder, for `tensorboard --logdir`."""

# TensorBoard is no part of the tested set.
# pyright: reportMissingImports=false
from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from utils.options import OptionError
from utils.services.base import points

# The folder of the event files in that of the run.
FOLDER = "tensorboard"
INSTALLED_BY = "pip install -c requirements.txt '.[tensorboard]'"


def check_tensorboard() -> None:
    """Refuse to start where TensorBoard is missing, with the line that installs it."""
    if importlib.util.find_spec("tensorboard") is None:
        raise OptionError(f"loggers=[tensorboard] needs TensorBoard, which is not installed: {INSTALLED_BY}")


class TensorboardRun:
    """Event files of one run; a resumed run goes on in them."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], resumed_at: int | None = None) -> None:
        """`resumed_at` are the env steps from which on earlier points are written again."""
        from torch.utils.tensorboard import SummaryWriter  # here, so that only who asks for it needs it

        self.place: str | None = str(folder / FOLDER)
        purge = None if resumed_at is None else resumed_at + 1
        self._writer: SummaryWriter | None = SummaryWriter(self.place, purge_step=purge)
        self._writer.add_text("config", f"```\n{json.dumps(settings, indent=2)}\n```")

    def log(self, env_steps: int, values: Mapping[str, Any]) -> None:
        """One point of each metric, and of the spread where there is a table."""
        if self._writer is None:
            return
        for name, value in points(values).items():
            if not isinstance(value, str):
                self._writer.add_scalar(name, value, env_steps)

    def summary(self, values: Mapping[str, Any]) -> None:
        """The results as a text."""
        if self._writer is not None:
            lines = [f"- {name}: {value}" for name, value in values.items()]
            self._writer.add_text("summary", "\n".join(lines))

    def media(self, env_steps: int, files: Sequence[Path]) -> None:
        """Pictures; of a film the first one, since films need another package and stand in the run folder."""
        import numpy as np
        from PIL import Image

        for path in files:
            if self._writer is not None:
                with Image.open(path) as picture:
                    rgb = np.asarray(picture.convert("RGB"))
                self._writer.add_image(path.stem, rgb, env_steps, dataformats="HWC")

    def close(self, exit_code: int = 0) -> None:
        """Write what is left, and stop."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
