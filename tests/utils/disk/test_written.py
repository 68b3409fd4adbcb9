"""Only what a run has listed before it wrote it is removed, and nothing behind a link."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.checkpoints import assert_is, files, prepared, save
from utils.checkpoint import CheckpointError, CheckpointStore
from utils.disk.manifest import HashingFile
from utils.disk.written import LIST, SEGMENTS, WrittenFiles, WrittenList


def test_names_are_there_before_and_until_nothing_is_left_of_them(tmp_path: Path) -> None:
    (tmp_path / SEGMENTS).mkdir()
    written, again = WrittenList(tmp_path), WrittenList(tmp_path)
    assert written.names() == set()
    written.add(["000001-step-5", "trials-1", "trials-2"])
    assert again.names() == {"000001-step-5", "trials-1", "trials-2"}
    for name in ("trials-1.0123456789abcdef", "trials-2.0123456789abcdef", ".trials-2.77"):
        (tmp_path / SEGMENTS / name).write_text("x")
    again.remove_segments(needed={"trials-1.0123456789abcdef"}, also=set())
    assert again.names() == {"trials-1", "trials-2"}, "a draft is left of the second"
    again.remove_drafts()
    again.remove_segments(needed={"trials-1.0123456789abcdef"}, also=set())
    assert again.names() == {"trials-1"}
    assert [path.name for path in (tmp_path / SEGMENTS).iterdir()] == ["trials-1.0123456789abcdef"]


@pytest.mark.parametrize("text", ["", "[1, 2", "3", "null", "[" * 100_000, "\xff"])
def test_a_damaged_list_removes_nothing_and_is_written_anew(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = prepared(tmp_path)
    before = set(files(tmp_path))
    (tmp_path / LIST).write_bytes(text.encode("latin-1"))
    assert WrittenList(tmp_path).names() == set() and "is damaged" in caplog.text
    for step in (4, 5, 6):
        save(store, step)
    assert_is(CheckpointStore(tmp_path).latest(), 6)
    assert len(store._names()) == 2 and not before & set(files(tmp_path / "000000-step-2"))


def test_what_others_put_into_the_folders_stays(tmp_path: Path) -> None:
    store = prepared(tmp_path)
    foreign = [
        *("notes.txt", ".bashrc", ".ssh/id", "segments/data.csv", "segments/.zshrc", "segments/.ssh/id"),
        *(
            "segments/trials-0.backup",
            "segments/trials-999.0123456789abcdef",
            ".000000-step-2.mine/thesis.tex",
        ),
        *("000000-step-2/notes.txt",),
    ]
    for name in foreign:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    for step in range(4, 9):
        save(store, step)
    left = {path.relative_to(tmp_path).as_posix() for path in files(tmp_path)}
    assert {*foreign} - left == {"000000-step-2/notes.txt"}
    assert ".000000-step-2/notes.txt" in left, (
        "it has its checkpoint's name of the time when that was removed"
    )


def test_behind_a_link_segments_are_written_and_never_removed(tmp_path: Path) -> None:
    folder, home = tmp_path / "checkpoints", tmp_path / "home"
    prepared(folder)
    (folder / SEGMENTS).rename(home)
    (folder / SEGMENTS).symlink_to(home)
    for name in ("thesis.tex", ".bashrc", "trials-1.0123456789abcdef", ".trials-1.00"):
        (home / name).write_text("mine")
    before = set(files(home))
    store = CheckpointStore(folder)
    assert_is(store.latest(), 3)
    for step in range(4, 9):
        save(store, step)
    assert before < set(files(home))
    assert all(path.read_text() == "mine" for path in before if "trials" not in path.name)
    assert_is(CheckpointStore(folder).latest(), 8)


def test_a_full_disk_gets_no_fuller_with_each_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = prepared(tmp_path)
    before = files(tmp_path)
    real = HashingFile.write

    def full_at_last(self: HashingFile, data: object) -> int:
        if self._file.name.endswith("manifest.json"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(self, data)

    monkeypatch.setattr(HashingFile, "write", full_at_last)
    for step in (4, 5, 6):
        with pytest.raises(CheckpointError, match="those before it are intact"):
            save(store, step)
        assert files(tmp_path) == before and not list(tmp_path.glob(".*"))
    monkeypatch.setattr(HashingFile, "write", real)
    save(store, 7)
    assert_is(CheckpointStore(tmp_path).latest(), 7)


def test_a_first_save_that_fails_does_not_speak_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: HashingFile, data: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(HashingFile, "write", full)
    with pytest.raises(CheckpointError, match="there is none before it") as caught:
        save(CheckpointStore(tmp_path), 1)
    assert "intact" not in str(caught.value)
    assert [path.name for path in files(tmp_path)] == [LIST]


def test_files_of_one_kind_are_replaced_where_they_are_listed(tmp_path: Path) -> None:
    (tmp_path / "a_2").write_text("mine")
    for contents in (["x", "y", "z"], ["new"]):
        written = WrittenFiles(tmp_path, "list.json", r"a_\d")
        names = [
            name
            for name, _ in zip(written.free(f"a_{number}" for number in range(9)), contents, strict=False)
        ]
        for name, content in zip(names, contents, strict=True):
            written.draft(name).write_text(content)
        written.publish(names)
        found = {path.name: path.read_text() for path in tmp_path.glob("a_*")}
        assert found == {"a_2": "mine", **dict(zip(names, contents, strict=True))}
    # What was never published goes, and is forgotten.
    written.draft("a_5").write_text("half")
    written.tidy()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a_0", "a_2", "list.json"]
    assert (tmp_path / "list.json").read_text() == '["a_0"]'


def test_a_list_of_somebody_else_removes_nothing_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    for path in (tmp_path / "thesis.tex", tmp_path / "a_1", folder / "config.yaml"):
        path.write_text("mine")
    (folder / "list.json").write_text('["../thesis.tex", "../a_1", "config.yaml", ".."]')
    written = WrittenFiles(folder, "list.json", r"a_\d")
    written.publish([])
    written.tidy()
    assert {path.name for path in files(tmp_path)} >= {"thesis.tex", "a_1", "config.yaml"}
