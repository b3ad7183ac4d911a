"""`scripts/again.py`: what failed by chance is named, what fails twice has failed, and many failures are not run again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.scripts import script


@pytest.fixture
def again(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, with a made-up answer to whether a test passes the second time."""
    module = script("again.py")
    monkeypatch.setattr(module, "passes", lambda test: "by_chance" in test)
    return module


def cache_of(folder: Path, *failed: str) -> str:
    record = folder / "v" / "cache" / "lastfailed"
    record.parent.mkdir(parents=True)
    record.write_text(json.dumps(dict.fromkeys(failed, True)))
    return str(folder)


def test_what_passes_the_second_time_is_named(again: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert again.main(cache_of(tmp_path, "tests/a.py::test_by_chance", "tests/b.py::test_by_chance[a b]")) == 0
    assert capsys.readouterr().out.splitlines() == ["FLAKY tests/a.py::test_by_chance", "FLAKY tests/b.py::test_by_chance[a b]"]


def test_what_fails_twice_has_failed(again: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert again.main(cache_of(tmp_path, "tests/a.py::test_by_chance", "tests/b.py::test_broken")) == 1
    assert "FAILED twice: tests/b.py::test_broken" in capsys.readouterr().out


def test_many_failures_are_no_chance(again: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert again.main(cache_of(tmp_path, *(f"tests/a.py::test_by_chance[{number}]" for number in range(4)))) == 1
    assert capsys.readouterr().out == "4 tests failed: more than 3 are not run again.\n"


def test_without_a_failed_test_nothing_is_run(again: Any, tmp_path: Path) -> None:
    assert again.main(str(tmp_path)) == 1


def test_a_test_is_run_in_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = script("again.py")
    test = tmp_path / "test_two.py"
    test.write_text("def test_right(): pass\ndef test_wrong(): assert False\n")
    monkeypatch.chdir(tmp_path)
    assert module.passes(f"{test}::test_right")
    assert not module.passes(f"{test}::test_wrong")
