"""YAML of others: values of their own size come back, and everything else is one short reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from utils.disk.plain_yaml import MOST_BYTES, MOST_DEPTH, MOST_LETTERS, read_plain_yaml

READS_YAML = re.compile(r"yaml\.(safe_load|load|full_load|unsafe_load|parse)\b|SafeLoader|get_single_data")


def nested(depth: int) -> str:
    """So many mappings, each in the one before."""
    return "\n".join(" " * level + "a:" for level in range(depth))


@pytest.mark.parametrize(
    "value",
    [
        {"text": "ü: '${x}'", "many": list(range(1000)), "none": None, "flags": [True, False]},
        ["2020-01-01", "!!int 3", "*alias", "1:1", "null", "-.inf", "", " ", "\n", "a" * MOST_LETTERS],
        [0.1, -1e300, float("inf"), -(10**30)],
        3,
        None,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_yaml_writes_of_plain_values_comes_back(value: object, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(yaml.safe_dump(value, allow_unicode=True), encoding="utf-8")
    assert read_plain_yaml(tmp_path / "file") == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: &a [x]\nb: *a", "it has an alias (*name), which no record has"),
        ("a: &a [*a]", "it has an alias (*name), which no record has"),
        ("!!python/object/apply:os.system [touch executed]", "it has a tag (tag:yaml.org,2002:python"),
        ("a: !!timestamp soon", "it has a tag (tag:yaml.org,2002:timestamp), which no record has"),
        ("a: !own {b: 1}", "it has a tag (!own), which no record has"),
        ("[" * 100_000, "its brackets are too deep"),
        (nested(MOST_DEPTH + 1), "it is nested too deep"),
        ("- " * 100_000, "it is nested too deep"),
        ("a: 1" + ":1" * 400_000, f"it has a value of more than {MOST_LETTERS:,} letters"),
        ("a: 1" + ":1" * 4000 + ".0", "int too large to convert to float"),
        ("a" * (MOST_BYTES + 1), f"it has more than {MOST_BYTES:,} bytes"),
        ("9" * 5000, "Exceeds the limit"),
        ("2020-99-99", "month must be in 1..12"),
        ("? [a]\n: b", "found unhashable key"),
        ("[1, 2", "did not find expected"),
        ("--- 1\n--- 2", "found another document"),
        ("\x00", "control characters are not allowed"),
        (b"\xe9", "UTF-8"),
        (None, "No such file"),
    ],
)
def test_everything_else_is_one_short_reason(text: str | bytes | None, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError) as caught:
        read_plain_yaml(file)
    said = str(caught.value)
    assert reason in said and "\n" not in said and len(said) < 300
    assert [path.name for path in tmp_path.iterdir()] in ([], ["file"])


def test_as_many_brackets_as_are_allowed_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(nested(MOST_DEPTH))
    value, depth = read_plain_yaml(tmp_path / "file"), 0
    while value is not None:
        value, depth = value["a"], depth + 1
    assert depth == MOST_DEPTH


def test_nothing_else_reads_yaml_of_a_run() -> None:
    """One reader, so that what it refuses is refused everywhere."""
    root = Path(__file__).resolve().parents[3]
    rooms = [root / name for name in ("main.py", "configs", "envs", "policies", "buffers", "utils")]
    files = [file for room in rooms for file in ([room] if room.is_file() else sorted(room.rglob("*.py")))]
    readers = {str(file.relative_to(root)) for file in files if READS_YAML.search(file.read_text())}
    assert readers == {"utils/disk/plain_yaml.py"}
