"""`scripts/measure` on modules that are made up: what is found, how a figure is judged, and what it exits with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from measured import __main__ as command
from measured.row import Row, about, at_least, at_most, holds

HEAD = "from measured.row import Row, at_most\n"


class TestVerdicts:
    @pytest.mark.parametrize(
        ("row", "others", "verdict"),
        [
            (at_most("a", 2, "s", 2), 0.0, "ok"),
            (at_most("a", 2.1, "s", 2), 0.1, "off"),
            (at_most("a", 2.1, "s", 2), 0.11, "busy"),
            (at_most("a", 1, "s", 2), 0.11, "busy"),
            (at_most("a", 1, "", 0, steady=True), 0.9, "off"),
            (at_least("a", 2, "s", 2), 0.0, "ok"),
            (at_least("a", float("nan"), "s", 2), 0.0, "off"),
            (about("a", 3.3, "ms", 3, 0.1), 0.0, "ok"),
            (about("a", 3.4, "ms", 3, 0.1), 0.0, "off"),
            (holds("a", 9, 10), 0.0, "off"),
            (Row("a", 1, "s"), 0.9, "-"),
        ],
    )
    def test_a_figure_is_ok_off_or_says_little(self, row: Row, others: float, verdict: str) -> None:
        assert command.judged(row, others) == verdict


Write = Callable[..., str]


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a package of modules, which the processes that measure can import too."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{command.ROOT}")
    monkeypatch.setattr(command, "machine", lambda: {"cores": 2, "quota_cores": None, "load": 0.5, "commit": "abc"})

    def write(**modules: str) -> str:
        package = tmp_path / "made_up_measures"
        package.mkdir()
        for name, text in {"__init__": "", **modules}.items():
            (package / f"{name}.py").write_text(text)
        return "made_up_measures"

    return write


OK = f'''"""All is well."""
{HEAD}
def rows():
    print("noise of a library")
    yield at_most("fine: one", 1, "s", 2, steady=True)
'''
OFF = f'''"""Too much."""
{HEAD}
def rows():
    yield at_most("much: one", 3, "s", 2, steady=True, note="it took long")
'''
RAISES = f'''"""Breaks."""
{HEAD}
def rows():
    yield at_most("broken: one", 1, "s", 2, steady=True)
    raise ValueError("no such thing")
'''
DIES = '''"""Dies."""
import os
def rows():
    os.kill(os.getpid(), 9)
    yield None
'''


def test_modules_with_rows_are_found_and_none_is_imported(made_up: Write, capsys: pytest.CaptureFixture[str]) -> None:
    package = made_up(fine=OK, much=OFF, library="raise AssertionError\n")
    assert command.main(["--list"], package) == 0
    assert [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()] == [
        ["fine", "All is well."],
        ["much", "Too much."],
    ]


def test_a_figure_that_is_off_is_told_and_only_strictly_an_error(
    made_up: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package, kept = made_up(fine=OK, much=OFF), tmp_path / "rows.json"
    assert command.main(["--json", str(kept)], package) == 0
    out = capsys.readouterr().out
    assert out.startswith("machine  2 cores, no quota, load 0.5, commit abc\n")
    told = [line.split() for line in out.splitlines()[1:]]
    assert told == [
        ["name", "figure", "unit", "wanted", "verdict"],
        ["fine:", "one", "1", "s", "<=", "2", "ok"],
        ["much:", "one", "3", "s", "<=", "2", "off"],
        ["it", "took", "long"],
    ]
    body = json.loads(kept.read_text())
    assert body["machine"]["cores"] == 2
    assert [(row["module"], row["figure"], row["verdict"]) for row in body["rows"]] == [("fine", 1, "ok"), ("much", 3, "off")]
    assert command.main(["fine", "--strict"], package) == 0
    assert command.main(["much", "--strict"], package) == 1


def test_one_that_raises_or_dies_is_told_and_the_next_has_its_turn(made_up: Write, capsys: pytest.CaptureFixture[str]) -> None:
    package = made_up(a_raises=RAISES, b_dies=DIES, c_fine=OK)
    assert command.main([], package) == 1
    told = capsys.readouterr().out.splitlines()[2:]
    assert told[0].startswith("broken: one")
    assert told[1:3] == ["a_raises: raised: ValueError: no such thing", "b_dies: raised: was ended by SIGKILL"]
    assert told[3].startswith("fine: one")
