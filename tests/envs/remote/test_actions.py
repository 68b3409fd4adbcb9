"""Actions as JSON: plain numbers of Python within their bounds, or a refusal."""

from __future__ import annotations

import json

import numpy as np
import pytest

from envs.remote.actions import ActionRefusedError, FieldWriter, RemoteActionKind
from utils.options import OptionError

NUMBERS = FieldWriter.of(RemoteActionKind.numbers, ["force:1:0:10", "aim:2"], [], None)


def test_numbers_are_stretched_clipped_and_plain() -> None:
    sent = NUMBERS.write(np.array([-1.0, 0.25, 9.0], np.float32))
    assert json.loads(json.dumps(sent)) == {"force": 0.0, "aim": [0.25, 1.0]}


def test_what_is_no_action_is_refused() -> None:
    with pytest.raises(ActionRefusedError, match="is not a number"):
        NUMBERS.write(np.array([0.0, np.nan, 0.0]))
    several = FieldWriter.of(RemoteActionKind.several, ["row:2", "column:3"], [], None)
    assert several.num_choices == 5
    for action in ([2, 0], [0, -1], [0.5, 0]):
        with pytest.raises(ActionRefusedError, match="is none of 0 to"):
            several.write(np.array(action))


@pytest.mark.parametrize("field", ["force:1:3", "force:1:3:1", "force:1:a:b", "force:0", "force:1:0:inf"])
def test_bounds_that_make_no_sense_are_refused(field: str) -> None:
    with pytest.raises(OptionError, match="actions"):
        FieldWriter.of(RemoteActionKind.numbers, [field], [], None)
