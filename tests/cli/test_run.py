from __future__ import annotations

import errno
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipefix.api import observe
from pipefix.api.run import clear
from pipefix.cli import destination
from pipefix.cli.main import main
from pipefix.report import runfile
from pipefix.report.program_figures import ProgramFigures
from pipefix.report.runfile import Run, StageFigures
from pipefix.report.shown import shown
from pipefix.vocabulary.errors import UnreadableFile

STEPS = {"steps": 3, "samples": 12, "optimizer_steps": 3, "without_gradients": 0, "wait_s": 0.3, "step_s": 0.1}
EVENTS = (
    {"event": "process", "at": 1.0, "pid": 1, "argv": ["train.py", "--lr", "1"], "rank": None},
    {"event": "loop", "loop": 0, "loader": "train.py:7", "main_thread": True, "workers": 2},
    {"event": "steps", "loop": 0, **STEPS, "backward_s": 0.05, "optimizer_s": 0.01, "inner_s": 0.0, "first_s": [0.2]},
)
NOTED = "".join(json.dumps(event) + "\n" for event in EVENTS)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "train.py"
    file.write_text("import sys\nsys.exit(len(sys.argv))\n")
    return file


def test_the_exit_code_is_the_programs(program: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "train.py", "--out", "not ours"]) == 3
    told = capfd.readouterr()
    assert told.out == ""
    assert "run file: pipefix-run/run.json" in told.err
    assert "was seen: the program failed before that, did not train, trained" in " ".join(told.err.split())
    assert main(["show", "pipefix-run"]) == 0
    assert "ended with exit code 3" in capfd.readouterr().out
    assert main(["run", "--out", "other", "-q", "--", "train.py"]) == 1
    assert capfd.readouterr().err == ""
    assert json.loads((program.parent / "other" / "run.json").read_text())["program"]["command"] == ["train.py"]


@pytest.mark.parametrize("place", ["pipefix.api.run.merged_notes", "pipefix.report.shown.ShownRun.html"])
def test_a_fault_of_ours_at_the_end_does_not_change_the_exit_code(
    place: str, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It ended with 70, and a batch system took the training for failed."""

    def fails(*_: Any, **how: Any) -> Any:
        raise ValueError("of ours")

    monkeypatch.setenv("PIPEFIX_TRACEBACK", str(tmp_path / "traceback"))
    monkeypatch.setattr(place, fails)
    assert main(["run", "train.py", "--lr", "1"]) == 3
    told = capfd.readouterr().err
    assert "this is a bug in pipefix" in told
    assert ("The program ran for" in told) is place.endswith("html"), "a page that fails costs the page only"
    assert "of ours" in (tmp_path / "traceback").read_text()


@pytest.mark.parametrize("place", ["pipefix.api.run.merged_notes", "pipefix.report.shown.ShownRun.html"])
def test_a_second_ctrl_c_does_not_change_the_exit_code(
    place: str, program: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The first one ended the program; while it was told, the second one ended with 130 and *run the same command again*."""

    def pressed(*_: Any, **how: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(place, pressed)
        assert main(["run", "train.py"]) == 1
    assert "pipefix: interrupted. What was seen of the program is told by: pipefix show pipefix-run" in capfd.readouterr().err
    (program.parent / "pipefix-run" / "events-a.jsonl").write_text(NOTED)
    assert main(["show", "pipefix-run"]) == 0


def test_a_program_that_was_ended_as_asked_is_no_failure(program: Path, capfd: pytest.CaptureFixture[str]) -> None:
    enough = "os.path.join('pipefix-run', '.pipefix-enough')"
    program.write_text(f"import os, signal\nopen({enough}, 'w').close()\nsignal.pause()\n")
    assert main(["run", "--steps", "3", "train.py"]) == 0
    assert "was ended then, as --seconds or --steps asked (signal 2)" in " ".join(capfd.readouterr().err.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "--step", "3", "train.py"], "Did you mean --steps?"),
        (["run", "--probe", "20s", "train.py", "--lr", "1"], "pipefix run --probe=20s train.py --lr 1"),
        (["run", "--steps", "0", "train.py"], "'0' is not a whole number above 0"),
        (["run", "--out", "train.py", "train.py"], "--out train.py: the folder cannot be made: File exists"),
        (["run", "--plan", "nothing.toml", "train.py"], "nothing.toml"),
        (["run", "--plan", "train.py", "train.py"], "train.py"),
    ],
)
def test_what_cannot_be_done_is_said(words: list[str], said: str, program: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(words) in (2, 3, 4)
    assert said in capfd.readouterr().err
    assert list(program.parent.iterdir()) == [program]


def test_without_room_for_what_it_notes_nothing_is_begun(
    program: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """After a day of training it said that no loop was seen."""
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(total=100, free=0))
    assert main(["run", "train.py"]) == 4
    assert "--out pipefix-run: there is no room on its disk." in capfd.readouterr().err
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(total=0, free=0))
    assert main(["run", "train.py"]) == 1, "a file system that does not tell"


def test_a_file_system_without_locks_is_one_to_note_on(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lockf(*_: Any) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.lockf", lockf)
    assert main(["run", "train.py"]) == 1


@pytest.mark.parametrize("place", ["pipefix.report.runfile.write", "pipefix.report.shown.ShownRun.html"])
def test_a_file_that_cannot_be_written_is_told_however_quiet_it_is_to_be(
    place: str, program: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With --quiet a full disk cost the run file, and nobody was told of it, nor of any figure."""

    def fails(*_: Any, **how: Any) -> Any:
        raise UnreadableFile("It could not be written: No space left on device.")

    monkeypatch.setattr(place, fails)
    assert main(["run", "-q", "train.py"]) == 1
    told = capfd.readouterr().err
    assert "pipefix: It could not be written" in told
    assert ("The program ran for" in told) is place.endswith("write")


def test_nothing_of_the_users_is_replaced(program: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = program.parent / "pipefix-run"
    out.mkdir()
    (out / "run.json").write_text('{"mine": 1}')
    assert main(["run", "train.py"]) == 2
    told = capfd.readouterr().err
    assert "is not one that --out writes" in told
    assert "Choose another folder: pipefix run --out FOLDER" in told, "of a file in it: Choose another name"
    (out / "run.json").unlink()
    (out / "report.html").write_text("mine")
    assert main(["run", "train.py"]) == 2
    assert "report.html: the file exists and is not one that --out writes" in capfd.readouterr().err, "--html is no option of run"
    (out / "report.html").unlink()
    (out / "events-mine.jsonl").write_text('{"event": "click"}\n')
    (out / "events-earlier.jsonl").write_text(NOTED)
    assert main(["run", "train.py"]) == 1
    assert sorted(path.name for path in out.iterdir()) == ["events-mine.jsonl", "report.html", "run.json"]


def test_the_page_of_an_earlier_program_goes_with_its_figures(tmp_path: Path) -> None:
    """One that imports pipefix.auto writes none, and another one's lay beside its notes."""
    page = tmp_path / "report.html"
    page.write_text("the user's own")
    clear(tmp_path)
    assert page.exists()
    runfile.write(Run(), tmp_path / "run.json")
    clear(tmp_path)
    assert not [*tmp_path.iterdir()]


def test_what_a_killed_one_left_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "events-a.jsonl").write_text(NOTED)
    assert main(["show", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "train.py:7" in told
    assert "How the program ended was not seen" in told
    assert main(["show", str(tmp_path / "gone")]) != 0
    (tmp_path / "events-a.jsonl").unlink()
    assert main(["show", str(tmp_path)]) != 0
    assert "is no folder of pipefix run" in capsys.readouterr().err
    (tmp_path / "pipefix.log.jsonl").touch()
    assert main(["show", str(tmp_path)]) != 0
    assert f"It is one of pipefix fix: pipefix log {tmp_path}" in capsys.readouterr().err


def noted_by(host: str, rank: int, *more: dict[str, object]) -> str:
    process = {**EVENTS[0], "host": host, "rank": str(rank)}
    return "".join(json.dumps(event) + "\n" for event in (process, *EVENTS[1:], *more))


def test_nodes_share_a_folder(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What another one still writes is left to it, what it wrote for an earlier job is not; `show` brings all together."""
    out = Path("pipefix-run")
    out.mkdir()
    here, there, earlier = out / "events-here-1.jsonl", out / "events-there-1.jsonl", out / "events-there-2.jsonl"
    there.write_text(noted_by("there", 1))
    earlier.write_text(noted_by("there", 1, {"event": "ended", "overhead_s": 0.0, "cuda": False}))
    assert main(["run", "train.py"]) == 1
    assert (there.exists(), earlier.exists()) == (True, False)
    here.write_text(noted_by("here", 0))
    capsys.readouterr()
    assert main(["show", str(out), "--json"]) == 0
    program_seen = json.loads(capsys.readouterr().out)["program"]
    assert (program_seen["ranks"], program_seen["exit_code"]) == (2, 1)
    assert {loop["rank"] for loop in program_seen["loops"]} == {0, 1}


def test_each_job_of_slurm_has_a_folder(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of one directory that ran on different nodes at a time, as of an array, were told as one program."""
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    assert main(["run", "-q", "train.py"]) == 1
    assert observe._own_folder() == program.parent / "pipefix-run-4711"
    assert not (program.parent / "pipefix-run").exists()


def test_a_rank_that_starts_at_the_same_time_removes_the_same(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one ended before its program began, and the first one's ranks waited for it."""
    assert main(["run", "train.py"]) == 1
    file, read = Path("pipefix-run", "run.json"), runfile.read

    def removed_meanwhile(path: Path) -> Run:
        path.unlink()
        return read(path)

    monkeypatch.setattr(runfile, "read", removed_meanwhile)
    monkeypatch.setattr("pipefix.api.run.notes_in", lambda folder: [folder / "events-gone-1.jsonl"])
    clear(file.parent)
    destination._check_existing(file, "--out", destination._MARKS["out"])
    assert not file.exists()


def test_the_command_that_shows_every_figure_is_printed_as_it_is_typed(
    program: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It was told of a FOLDER."""
    probed = Run(
        target="train.py:7",
        program=ProgramFigures(command=["train.py"], exit_code=0, seconds=9.0),
        stages=[StageFigures(stage="decode")],
    )
    monkeypatch.setattr("pipefix.api.run.run_program", lambda *_, **__: shown(probed))
    assert main(["run", "--probe", "--out", "a job", "train.py"]) == 0
    assert "every figure: pipefix show --full 'a job'" in capfd.readouterr().err
