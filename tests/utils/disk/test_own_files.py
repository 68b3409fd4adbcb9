"""A run opens its own files, and nothing that a link in its folder points to."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from utils.disk.own_files import (
    check_can_be_made,
    check_run_folder,
    is_plain_file,
    is_plain_folder,
    open_own,
    part_from_other_names,
    replace_file,
    replacing,
)
from utils.options import OptionError


def run_folder(folder: Path) -> Path:
    """A folder with the entries that a run has."""
    for name in (".hydra", "checkpoints/segments", "checkpoints/000000-step-1", "wandb/offline-1", "notes"):
        (folder / name).mkdir(parents=True)
    for name in (".lock", "config.yaml", "metrics.jsonl", ".hydra/config.yaml", "checkpoints/segments/a.0"):
        (folder / name).write_text("x")
    return folder


LINKS = (
    *(".lock", "config.yaml", "metrics.jsonl", "tasks.json", "evaluation.json", "main.log", "error.log"),
    *("film_1.gif.part", "exploded.pt", "anything", ".hydra", "checkpoints", ".hydra/config.yaml"),
    *("checkpoints/segments", "checkpoints/segments/b.0", "checkpoints/000000-step-1/tensors.pt"),
    "checkpoints/000000-step-1",
)


@pytest.mark.parametrize("name", LINKS)
@pytest.mark.parametrize("dangling", [False, True])
def test_a_link_among_the_entries_of_a_run_is_refused_in_a_sentence(
    tmp_path: Path, name: str, dangling: bool
) -> None:
    folder, target = run_folder(tmp_path / "run"), tmp_path / "home"
    check_run_folder(folder)
    if not dangling:
        target.mkdir()
    at = folder / name
    if at.exists():
        at.rename(tmp_path / "moved")
    at.symlink_to(target)
    with pytest.raises(OptionError, match=f"{at} is a link") as caught:
        check_run_folder(folder)
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")
    # Only the segments of the replay may be elsewhere, on request.
    if name == "checkpoints/segments":
        assert "allow_links=true" in str(caught.value)
        check_run_folder(folder, allow_links=True)
    else:
        with pytest.raises(OptionError, match="is a link"):
            check_run_folder(folder, allow_links=True)


def test_links_above_and_in_the_folders_of_other_programs_are_fine(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "disk" / "run")
    (folder / "wandb" / "latest-run").symlink_to("offline-1")
    (folder / ".submitit").symlink_to(tmp_path)
    (folder / "notes" / "of_mine").symlink_to(tmp_path)
    (tmp_path / "outputs").symlink_to(tmp_path / "disk")
    check_run_folder(tmp_path / "outputs" / "run")
    check_run_folder(tmp_path / "nowhere")
    check_run_folder(folder / "config.yaml")


def test_what_is_neither_a_file_nor_a_folder_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    """To open a pipe that nobody writes to would never end."""
    folder = run_folder(tmp_path)
    os.mkfifo(folder / "evaluation.json")
    with pytest.raises(OptionError, match="neither a file nor a folder"):
        check_run_folder(folder)


@pytest.mark.parametrize("name", ["metrics.jsonl", "tasks.json", "adaptation.png", ".lock", "main.log"])
def test_a_folder_in_the_place_of_a_file_is_a_sentence(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(OptionError, match="is a folder where a run has a file"):
        check_run_folder(tmp_path)


@pytest.mark.parametrize("name", [".hydra", "checkpoints"])
def test_a_file_in_the_place_of_a_folder_is_a_sentence(name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    with pytest.raises(OptionError, match="is a file where a run has a folder"):
        check_run_folder(tmp_path)


def test_a_folder_that_cannot_be_made_is_a_sentence_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    check_can_be_made(tmp_path)
    check_can_be_made(tmp_path / "deep" / "new")
    for name, why in {
        "file": "file is no folder",
        "file/x": "file is no folder",
        "a" * 300: "too long",
    }.items():
        with pytest.raises(OptionError, match=f"cannot be made: .*{why}"):
            check_can_be_made(tmp_path / name)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(OptionError, match="may not be written into"):
        check_can_be_made(tmp_path / "deep")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_a_link_points_to_stays_as_it_is_whatever_writes(tmp_path: Path) -> None:
    home = tmp_path / "thesis.tex"
    home.write_text("years of work")
    link = tmp_path / "metrics.jsonl"
    link.symlink_to(home)
    for mode in ("w", "a", "wb", "ab"):
        with pytest.raises(OSError):
            open_own(link, mode)
    replace_file(link, b"new")
    assert home.read_text() == "years of work"
    assert link.read_text() == "new" and is_plain_file(link)


def test_a_copy_of_a_run_folder_made_with_hard_links_stays_as_it_is(tmp_path: Path) -> None:
    path, backup = tmp_path / "metrics.jsonl", tmp_path / "backup.jsonl"
    path.write_text("1\n")
    os.link(path, backup)
    with open_own(path, "a", encoding="utf-8") as file:
        file.write("2\n")
    assert (path.read_text(), backup.read_text()) == ("1\n2\n", "1\n")
    part_from_other_names(tmp_path / "none")
    assert sorted(tmp_path.iterdir()) == [backup, path]


def test_a_write_that_fails_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.yaml"
    replace_file(path, b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, b"new")
    assert [(one, one.read_text()) for one in tmp_path.iterdir()] == [(path, "old")]


def test_a_link_is_no_plain_file_nor_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "to_file").symlink_to("file")
    (tmp_path / "to_folder").symlink_to(tmp_path)
    assert is_plain_file(tmp_path / "file") and not is_plain_file(tmp_path / "to_file")
    assert is_plain_folder(tmp_path) and not is_plain_folder(tmp_path / "to_folder")
    assert not is_plain_file(tmp_path / "none") and not is_plain_folder(tmp_path / "none")


def test_a_file_that_is_written_bit_by_bit_is_there_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    path.write_bytes(b"old")
    (tmp_path / f".picture.png.{os.getpid()}").symlink_to(tmp_path / "thesis.tex")
    with replacing(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    with pytest.raises(KeyError), replacing(path) as file:
        file.write(b"half")
        raise KeyError
    assert [(one, one.read_bytes()) for one in tmp_path.iterdir()] == [(path, b"new")]


ROOT = Path(__file__).parents[3]
# What opens files by itself: these two rooms, and checkpoints, whose files are new.
# What writes into temporary folders only stands here, too: the files of actors are never in a run.
OPENERS = (
    *("utils/disk/", "utils/processes/", "utils/checkpoint.py"),
    "policies/collection/remote/processes.py",
)


def writes(source: str, *, removes: bool) -> Iterator[str]:
    """The calls that write into a folder in another way than through the openers, or that remove from it."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        arguments = [ast.unparse(argument) for argument in node.args]
        function = ast.unparse(node.func)
        method = function.rpartition(".")[2]
        unsafe = {
            "write_text": True,
            "write_bytes": True,
            "rmtree": True,
            "unlink": removes,
            "rename": removes,
            "open": arguments[:1] != ["os.devnull"]
            and any(re.fullmatch(r"'[rwaxbt+]*[wax+][rwaxbt+]*'", text) for text in arguments),
            "save": function == "torch.save" and arguments[1:] != ["file"],
            "savefig": arguments != ["file"],
        }
        if unsafe.get(method):
            yield f"line {node.lineno}: {function}"


def test_whatever_writes_into_a_run_folder_goes_through_the_openers() -> None:
    for room in ("configs", "envs", "policies", "buffers", "utils"):
        for file in (ROOT / room).rglob("*.py"):
            name = file.relative_to(ROOT).as_posix()
            if not name.startswith(OPENERS):
                found = list(writes(file.read_text(encoding="utf-8"), removes=room == "policies"))
                assert not found, f"{name} does not write through utils/disk: {found}"


@pytest.mark.parametrize(
    "offence",
    [
        "path.write_text('x')",
        "open(path, 'ab')",
        "path.open('w')",
        "torch.save(evidence, partial)",
        "figure.savefig(aside, format='png')",
        "old.unlink()",
    ],
)
def test_an_opener_of_ones_own_is_seen(offence: str) -> None:
    assert list(writes(offence, removes=True))
