"""`report=`: which folders, where it writes, what it says, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.utils.report.made_runs import make_run
from utils.options import OptionError
from utils.report.command import asks_for_a_report, run_report, write_report

ROOT = Path(__file__).resolve().parents[3]
TABLES = [[[1.0, 2.0]], [[2.0, 4.0]], [[3.0, 6.0]]]
FILES = [
    "report.md",
    "results.csv",
    "runs.csv",
    "settings.csv",
    "improvement.csv",
    "learning.png",
    "learning.svg",
]


@pytest.fixture(scope="module", autouse=True)
def fonts(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Matplotlib keeps the files of the fonts it has used open; these are not the tests' to account for."""
    write_report([swept(tmp_path_factory.mktemp("fonts"))])


def swept(folder: Path) -> Path:
    for seed in range(2):
        make_run(folder / "sweep" / str(seed), TABLES, seed=seed)
    make_run(folder / "sweep" / "2", TABLES, algorithm__name="SAC")
    return folder / "sweep"


def test_the_real_command_writes_beside_the_sweep_says_so_and_needs_no_torch(tmp_path: Path) -> None:
    folder = swept(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    script = (
        "import sys; import main; code = main.main(); "
        "assert not {'torch', 'hydra', 'omegaconf'} & set(sys.modules), 'slow'; sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, f"report={folder}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "| algorithm=SAC" in done.stdout
    assert "note: PointRobot, algorithm=SAC has no run with seed 1." in done.stdout
    assert f"report  {folder / 'report/report.md'}" in done.stdout
    assert all((folder / "report" / name).stat().st_size for name in FILES)
    # Everything else is as it was, and no half-written file is left.
    assert {path: path.stat().st_mtime_ns for path in before if path != folder} == {
        path: time for path, time in before.items() if path != folder
    }
    assert not list(folder.rglob(".*"))


def test_several_folders_are_given_as_a_list_and_the_report_goes_where_one_says(tmp_path: Path) -> None:
    folder = swept(tmp_path)
    words = [f"report=[{folder / '0'},{folder / '2'}]", f"report.to={tmp_path / 'paper/figures'}"]
    assert str(tmp_path / "paper/figures/report.md") in run_report(words)
    assert "2 runs in" in (tmp_path / "paper/figures/report.md").read_text()
    assert not (folder / "report").exists()


def test_jobs_of_a_sweep_are_named_by_their_numbers_and_their_report_stands_in_it(tmp_path: Path) -> None:
    folder = swept(tmp_path)
    run_report([f"report={folder / '0'},1"])
    assert "2 runs in" in (folder / "report/report.md").read_text()
    # A report is no run: the next one reads the same folders.
    assert "3 runs in" in (run_report([f"report={folder}"]) and (folder / "report/report.md").read_text())


def test_one_run_has_its_table_and_its_curve(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", TABLES)
    text = run_report([f"report={folder}"])
    assert "| all runs" in text and "[" not in text.partition("\n\nreport")[0].replace("[1]", "")
    assert (folder / "report/learning.png").exists() and not (folder / "report/improvement.png").exists()


def test_what_asks_for_a_report() -> None:
    assert (
        asks_for_a_report(["report=x"])
        and asks_for_a_report(["report"])
        and asks_for_a_report(["report.to=x"])
    )
    assert not asks_for_a_report(["env=AntDir", "seed=report"])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["report="], "report= needs folders of runs"),
        (["report"], "report= needs folders of runs"),
        (["report=[a,,b]"], "report= needs folders of runs"),
        (["report.to=x"], "report.to= goes with report=FOLDER"),
        (["report={sweep}", "report.to="], "report.to= needs the folder to write to"),
        (["report={sweep}", "report.to=a", "report.to=b"], "it is given 2 times"),
        (["report={sweep}", "report.too=x"], "There is no option 'report.too'. Did you mean 'report.to'?"),
        (["report={sweep}", "env=AntDir"], "trains nothing: leave out env=AntDir."),
        (["-m", "report={sweep}"], "trains nothing: leave out -m."),
        (["report={sweep}p"], "is not a folder. Did you mean '{sweep}'?"),
        (["report={empty}"], "There is no run in"),
        (["report={begun}"], "was evaluated yet, so there is nothing to compare"),
        (["report={sweep}", "report.to={file}"], "The report cannot be written"),
    ],
)
def test_a_mistake_is_a_sentence(tmp_path: Path, words: list[str], sentence: str) -> None:
    places = {"sweep": swept(tmp_path), "empty": tmp_path / "empty", "file": tmp_path / "file"}
    places["empty"].mkdir()
    places["file"].write_text("")
    places["begun"] = make_run(tmp_path / "begun", [])
    with pytest.raises(OptionError) as error:
        run_report([word.format(**places) for word in words])
    assert sentence.format(**places) in str(error.value) and "\n" not in str(error.value)


def test_a_report_does_not_follow_a_link_out_of_the_sweep(tmp_path: Path) -> None:
    folder = swept(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (folder / "report").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OptionError, match="is a link to somewhere else: say where to write with"):
        run_report([f"report={folder}"])
    assert not list((tmp_path / "elsewhere").iterdir())
