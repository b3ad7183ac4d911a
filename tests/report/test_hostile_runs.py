"""A run file may come from anybody: it is shown, or refused in a sentence."""

from __future__ import annotations

import contextlib
import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipefix.cli.main import main
from pipefix.report import compare, page, probe_report, runfile, terminal
from pipefix.vocabulary import versioned
from pipefix.vocabulary.errors import PipefixError
from pipefix.watching import baseline

RUNS = Path(__file__).resolve().parents[2] / "fixtures" / "runs"
GOOD = json.loads((RUNS / "decode-bound-workers.json").read_bytes())
GOOD["machine"]["while_measured"] = {"nvml_utilisation": 0.5, "nvml_temperature_c": 60.0, "others_cores": 0.2}
FIGURES = [True, -1, 0, 1, 2**63, 10**30, 10**400, 1e300, -1e300, 5e-324, 1e-300]
VALUES = st.sampled_from([*FIGURES, None, "", "x" * 300, "\x1b[2J\u202e", [], {}, [None], {"value": 1}])


def places(value: Any, so_far: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where every value lies, lists by their first two elements."""
    inner = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    return [so_far, *(place for key, item in inner for place in places(item, (*so_far, key)))]


PLACES = [place for place in places(GOOD) if place]


@given(st.lists(st.tuples(st.sampled_from(PLACES), VALUES), min_size=1, max_size=3))
def test_whatever_stands_in_it(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    changed = json.loads(json.dumps(GOOD))
    for place, value in changes:
        inner = changed
        # An earlier change may have taken away what lies here.
        with contextlib.suppress(LookupError, TypeError):
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = copy.deepcopy(value)
    with contextlib.suppress(PipefixError):
        run = runfile.decode(json.dumps(changed).encode(), origin="run.json")
        assert all(line.isprintable() for line in terminal.lines(probe_report.full(run), width=80))
        assert page.page(probe_report.full(run)).startswith("<!DOCTYPE html>")
        assert runfile.decode(runfile.encode(run).encode(), origin="it").target == run.target
        compared = compare.compare(run, runfile.decode(json.dumps(GOOD).encode(), origin="it"), force=True)
        assert page.page(compared.document()).startswith("<!DOCTYPE html>")
        baseline.from_run(run, "run.json")


@pytest.mark.parametrize("path", ["/proc/self/mem", "a\0b"])
def test_files_that_are_none(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", path]) == 4
    assert "could not be read" in capsys.readouterr().err


def test_a_file_without_end(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(versioned, "LARGEST", 1 << 20)
    assert main(["show", "/dev/zero"]) == 4
    assert "is larger than" in capsys.readouterr().err
