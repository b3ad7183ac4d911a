from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from pipefix.cli.main import main
from pipefix.report import runfile
from pipefix.report.runfile import Run

RUNS = Path(__file__).resolve().parents[2] / "fixtures" / "runs"


def test_json_is_the_same_run(a_run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(RUNS / "decode-bound-workers.json"), "--json"]) == 0
    assert runfile.decode(capsys.readouterr().out.encode(), origin="stdout") == a_run


def test_from_a_pipe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    data = (RUNS / "balanced.json").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert main(["show", "-"]) == 0
    assert "VERDICT" in capsys.readouterr().out


@pytest.mark.parametrize("stream", [io.TextIOWrapper(io.BytesIO()), None], ids=["empty", "closed"])
def test_nothing_on_the_pipe(stream: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", stream)
    assert main(["show", "-"]) == 4
    assert "standard input is empty: it is not a pipefix run file" in capsys.readouterr().err
