"""Files that hold no recorded episodes: a sentence each, and no traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envs.meta.cyber.replay import main
from tests.envs.meta.cyber.test_replay import RECORDED, changed, load


def no_arrays(tmp_path: Path) -> dict[str, Path]:
    """Files without whole arrays, by what is said of them."""
    right, recorded = RECORDED / "bline__mixed.npz", load(RECORDED / "bline__mixed.npz")
    whole = right.read_bytes()

    def raw(name: str, content: bytes) -> Path:
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    without = {what: array for what, array in recorded.items() if what not in ("level", "op")}
    np.savez(tmp_path / "bline__without.npz", allow_pickle=False, **without)
    objects: dict[str, Any] = recorded | {"act": np.array([[None]])}
    np.savez(tmp_path / "bline__objects.npz", **objects)
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 255
    return {
        "cannot be read (No such file": tmp_path / "missing.npz",
        "cannot be read (Is a directory": tmp_path,
        "no whole .npz file of recorded episodes (File is not a zip file)": raw("empty.npz", b""),
        "no whole .npz file of recorded episodes (File is not": raw("text.npz", b"act,obs\n1,2\n" * 99),
        "no whole .npz file of recorded episodes (": raw("half.npz", whole[: len(whole) // 2]),
        "no whole .npz file of recorded": raw("flipped.npz", bytes(flipped)),
        "no whole .npz file of recorded episodes (Object arrays": tmp_path / "bline__objects.npz",
        "has no array level, op.": tmp_path / "bline__without.npz",
    }


def wrong_arrays(tmp_path: Path) -> dict[str, Path]:
    """Files whose arrays are none of recorded episodes, by what is said of them."""
    right, recorded = RECORDED / "bline__mixed.npz", load(RECORDED / "bline__mixed.npz")

    def put(what: str, place: tuple[int, ...], number: int, **as_type: Any) -> Path:
        array = recorded[what].astype(**as_type) if as_type else recorded[what].copy()
        array[place] = number
        return changed(tmp_path, f"bline__{what}_{number}", right.stem, **{what: array})

    total = recorded["total"].copy()
    total[0] = np.nan
    return {
        "its array obs has the shape (30, 100, 6)": changed(
            tmp_path, "bline__shape", right.stem, obs=recorded["obs"][..., :6]
        ),
        "its array obs has the shape (30, 100, 7), which must be (30, 99, 7)": changed(
            tmp_path, "bline__short_act", right.stem, act=recorded["act"][:, :99]
        ),
        "its array act has the shape (3000,)": changed(
            tmp_path, "bline__flat", right.stem, act=recorded["act"].ravel()
        ),
        "its array act has the shape (0, 100)": changed(
            tmp_path, "bline__no_episode", right.stem, **{one: it[:0] for one, it in recorded.items()}
        ),
        "its array act has the shape (30, 0)": changed(
            tmp_path, "bline__no_step", right.stem, act=recorded["act"][:, :0]
        ),
        "step 2 of its array act holds 145, which must be 0 to 144": put("act", (1, 2), 145),
        "holds 13, which must be 0 to 12, or 255": put("red_target", (1, 2), 13),
        "holds 255, which does not fit the action": put("red_target", (1, 2), 255),
        "of its array red_target holds 7, which does not fit": put("red_target", (1, 0), 7),
        "of its array act holds -1": put("act", (1, 2), -1, dtype=np.int64),
        "its array act is of the type float64": put("act", (1, 2), 0, dtype=np.float64),
        "its array total holds a number that is not finite": changed(
            tmp_path, "bline__nan", right.stem, total=total
        ),
    }


def test_a_file_that_holds_no_episodes_is_one_sentence_and_the_next_is_still_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    files, right = no_arrays(tmp_path) | wrong_arrays(tmp_path), RECORDED / "sleep__mixed.npz"
    assert main([*(str(file) for file in files.values()), str(right)]) == 1
    *lines, last = capsys.readouterr().out.splitlines()
    assert last == f"{right}: {load(right)['act'].size:,} steps agree"
    assert len(lines) == len(files)
    for (said, file), line in zip(files.items(), lines, strict=True):
        assert line.startswith(f"{file}: ") and said in line and line.endswith("."), line


def test_any_damage_is_a_sentence_or_a_mismatch(tmp_path: Path):
    rng, whole = np.random.default_rng(0), (RECORDED / "sleep__sleep.npz").read_bytes()
    for number in range(150):
        content = bytearray(whole)
        for place in rng.integers(len(content), size=rng.integers(1, 4)):
            content[place] = rng.integers(256)
        file = tmp_path / "sleep__sleep.npz"
        file.write_bytes(content[: rng.integers(len(content))] if number % 5 == 0 else content)
        # No traceback: a byte that zip does not look at may leave the file as good as it was.
        assert main([str(file)]) in (0, 1)
