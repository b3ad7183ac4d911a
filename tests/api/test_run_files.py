"""Run files in Python: loaded, printed, saved, shown in a notebook, and compared; without PyTorch."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pipefix
from pipefix.report import runfile

FILE = Path(__file__).resolve().parents[2] / "fixtures" / "runs" / "decode-bound-workers.json"


def test_a_run_prints_its_card_and_names_itself_in_a_line() -> None:
    run = pipefix.load(str(FILE))
    assert "VERDICT" in str(run)
    assert "NEXT" in str(run)
    assert re.fullmatch(r"<pipefix run of \S+: input-bound \(decode\), [\d,.]+ samples/s>", repr(run))


def test_it_is_saved_and_loaded_again_with_every_figure(tmp_path: Path) -> None:
    run = pipefix.load(FILE)
    assert run.save(str(tmp_path / "run.json")) == tmp_path / "run.json"
    assert pipefix.load(tmp_path / "run.json") == run
    assert runfile.encode(runfile.read(tmp_path / "run.json")) == runfile.encode(runfile.read(FILE))


def test_a_notebook_shows_the_page_in_a_frame_of_its_own() -> None:
    run = pipefix.load(FILE)
    shown = run._repr_html_()
    held = re.fullmatch(r'<iframe title="pipefix report" srcdoc="([^"]*)" sandbox="allow-scripts" style="[^"]*"></iframe>', shown)
    assert held is not None
    assert html.unescape(held[1]) == run.html()


def test_runs_and_files_are_compared_alike(tmp_path: Path) -> None:
    run = pipefix.load(FILE)
    comparison = pipefix.compare(run, str(FILE))
    assert isinstance(comparison, pipefix.Comparison)
    assert "No change that these runs can tell from noise: delivered 1.00x" in str(comparison)
    assert isinstance(run, pipefix.Run)
