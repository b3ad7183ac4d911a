from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from pipefix.cli.main import main
from pipefix.cli.probe import ENDING
from pipefix.report import runfile
from pipefix.report.runfile import Finding, Run, Verdict
from pipefix.report.shown import shown
from tests.cli.conftest import Library


def changed(run: Run, **fields: object) -> Run:
    return shown(msgspec.structs.replace(run, **fields))


@pytest.fixture
def stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading PyTorch takes no time, which would be taken from the budget."""
    monkeypatch.setattr("pipefix.cli.probe.time", SimpleNamespace(monotonic=lambda: 100.0, perf_counter=lambda: 100.0))


@pytest.mark.usefixtures("stands_still")
def test_defaults_reach_the_library(library: Library) -> None:
    assert main(["probe", "data.py"]) == 0
    ((args, kwargs),) = library.asked
    progress = kwargs.pop("progress")
    assert callable(progress)
    assert args == ("data.py",)
    assert kwargs.pop("budget") == 60 - ENDING, "and loading PyTorch took no time"
    assert kwargs == {
        "step_ms": None,
        "target_rate": None,
        "batch_size": None,
        "workers": None,
        "recording_bytes": 1_000_000_000,
        "trace": None,
        "seed": 0,
    }


@pytest.mark.usefixtures("stands_still")
def test_flags_reach_the_library(library: Library, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    argv = ["probe", "data.py:x", "--quick", "--step-ms", "25", "--recording-budget", "500MB", "--trace", str(trace), "--seed", "7"]
    assert main(argv) == 0
    ((_, kwargs),) = library.asked
    assert kwargs["budget"] == 20 - ENDING
    assert (kwargs["step_ms"], kwargs["recording_bytes"]) == (25.0, 500_000_000)
    assert (kwargs["trace"], kwargs["seed"]) == (trace, 7)
    assert main(["probe", "data.py", "--target-rate", "1200", "--batch-size", "8", "--workers", "0"]) == 0
    kwargs = library.asked[-1][1]
    assert (kwargs["target_rate"], kwargs["batch_size"], kwargs["workers"]) == (1200.0, 8, 0)


def test_text_goes_to_stdout_and_progress_to_stderr(
    library: Library, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipefix.cli.deliver.monotonic", lambda: 100.0)  # after a second it would tell of the time left
    library.meanwhile = lambda: print("the user's own print")
    assert main(["probe", "data.py"]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("pipefix probe train_data.py:train_loader")
    assert "VERDICT" in told.out
    assert told.err == "  0%  loading PyTorch\n 50%  reading samples\nthe user's own print\n"


def test_json_is_the_run_file_and_nothing_else(library: Library, a_run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    library.meanwhile = lambda: print("the user's own print")
    assert main(["probe", "data.py", "--json", "-q"]) == 0
    told = capsys.readouterr()
    assert runfile.decode(told.out.encode(), origin="stdout") == a_run
    assert told.err == "the user's own print\n"


def test_files_are_written_where_the_command_was_typed(
    library: Library, a_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A target that goes to a folder of its own (Hydra does) took them there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outputs").mkdir()
    library.meanwhile = lambda: os.chdir("outputs")
    assert main(["probe", "data.py", "--out", "run.json", "--html", "run.html", "-q"]) == 0
    assert runfile.read(tmp_path / "run.json") == a_run
    assert "<html" in (tmp_path / "run.html").read_text(encoding="utf-8")[:2000]
    assert capsys.readouterr().err == "run file: run.json\nreport: run.html\n"


def test_a_place_that_cannot_be_written_is_refused_before_the_work(library: Library, tmp_path: Path) -> None:
    assert main(["probe", "data.py", "--out", str(tmp_path / "absent" / "run.json")]) == 2
    assert library.asked == []


def test_a_disk_that_fills_up_meanwhile_costs_the_file_and_not_the_figures(
    library: Library, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "folder" / "run.json"
    out.parent.mkdir()
    library.meanwhile = out.parent.rmdir
    assert main(["probe", "data.py", "--out", str(out), "-q"]) == 4
    told = capsys.readouterr()
    assert "VERDICT" in told.out
    assert f"The run file {out} could not be written" in told.err


def test_interrupted_prints_what_is_known(library: Library, a_run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    library.answer = changed(a_run, partial=True)
    out = tmp_path / "run.json"
    assert main(["probe", "data.py", "--out", str(out), "-q"]) == 130
    told = capsys.readouterr()
    assert "VERDICT" in told.out
    assert "Interrupted: the figures above are what was known by then." in told.err
    assert runfile.read(out).partial


class TestGates:
    def test_a_verdict_that_was_not_wanted(self, library: Library, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["probe", "data.py", "--fail-on", "input-bound", "-q"]) == 1
        told = capsys.readouterr()
        assert "VERDICT" in told.out
        assert told.err.startswith("pipefix probe: --fail-on input-bound: the verdict is input-bound.\n")

    def test_other_verdicts_pass(self, library: Library) -> None:
        assert main(["probe", "data.py", "--fail-on", "step-bound", "--fail-on", "inconclusive", "-q"]) == 0

    def test_no_verdict_counts_as_inconclusive(self, library: Library, a_run: Run) -> None:
        library.answer = changed(a_run, verdict=None)
        assert main(["probe", "data.py", "--fail-on", "inconclusive", "-q"]) == 1

    def test_problems_of_the_audit(self, library: Library, a_run: Run, capsys: pytest.CaptureFixture[str]) -> None:
        healthy = Verdict(kind="balanced", stage=None, sentence="Balanced.", confidence=1.0)
        problem = Finding(id="shm", severity="problem", found="64 MB", advice="more")
        library.answer = changed(a_run, verdict=healthy, audit=[problem])
        assert main(["probe", "data.py", "--fail-on", "problem", "-q"]) == 1
        assert "--fail-on problem: the audit found shm." in capsys.readouterr().err
        library.answer = changed(a_run, verdict=healthy, audit=[])
        assert main(["probe", "data.py", "--fail-on", "problem", "-q"]) == 0
