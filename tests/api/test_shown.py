"""What the functions for users return prints itself, and writes its figures and its page."""

from __future__ import annotations

import html
import inspect
import json
import pickle
import re
from pathlib import Path

import pytest

import pipefix
from pipefix.caches.estimate import Forecast
from pipefix.report.cache_report import ShownForecast
from pipefix.report.shown import Shown, shown_as
from tests.cli.test_fix import UNDONE

FORECAST = Forecast(samples=9, tried=3, bytes=1e6, source_bytes=2e6, seconds=4.0, gain=2.5, free=10**9)
RUN = Path(__file__).parents[2] / "fixtures" / "runs" / "decode-bound-workers.json"
RESULTS: dict[str, Shown] = {
    "9 samples would take 4.00 s": shown_as(ShownForecast, FORECAST),
    "is taken back": UNDONE,
    "VERDICT": pipefix.load(RUN),
    "No regression: ": pipefix.compare(pipefix.load(RUN), str(RUN), max_regression="5%"),
}


@pytest.mark.parametrize("words", RESULTS)
def test_it_is_printed_drawn_and_kept(words: str, tmp_path: Path) -> None:
    result = RESULTS[words]
    page = result.html(tmp_path / "page.html")
    assert words in page == (tmp_path / "page.html").read_text(encoding="utf-8")
    framed = r'<iframe title="pipefix report" srcdoc="([^"]*)" sandbox="allow-scripts allow-downloads" style="[^"]*"></iframe>'
    held = re.fullmatch(framed, result._repr_html_())
    assert held is not None and html.unescape(held[1]) == page, "a notebook shows it in a frame of its own"
    assert words in " ".join(str(result).split()) or words == "No regression: "
    assert json.loads(result.save(tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert str(pickle.loads(pickle.dumps(result))) == str(result), "a process hands it on"


def test_a_run_names_itself_in_a_line_and_is_loaded_as_it_was_saved(tmp_path: Path) -> None:
    run = pipefix.load(str(RUN))
    assert re.fullmatch(r"<pipefix run of \S+: input-bound \(decode\), [\d,.]+ samples/s>", repr(run))
    assert run.save(str(tmp_path / "run.json")) == tmp_path / "run.json"
    assert pipefix.load(tmp_path / "run.json") == run


@pytest.mark.parametrize("words", ["9 samples would take 4.00 s", "is taken back", "No change that these runs can tell"])
def test_a_prompt_shows_a_line_of_it(words: str) -> None:
    """It showed every field: of a comparison, both run files."""
    (told,) = [repr(result) for result in RESULTS.values() if words in repr(result)]
    assert told.startswith("<pipefix ") and len(told) < 300


def test_every_result_is_shown() -> None:
    names = {"Run", "Comparison", "Converted", "Forecast", "Checked", "Swapped", "Tuned", "FixReport", "Undone"}
    kinds = {
        name for name in pipefix.__all__ if inspect.isclass(getattr(pipefix, name)) and issubclass(getattr(pipefix, name), Shown)
    }
    assert kinds == names
    assert {name for name in names if getattr(pipefix, name).__repr__ is not Shown.__repr__} == {"Run"}
