"""`scripts/again.py`: which failures stand at once, and which are looked at again with nothing beside them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CLOCKED = "tests/measurement/test_replay.py::TestEnds::test_it"


def asked(folder: Path, *failed: str) -> subprocess.CompletedProcess[str]:
    noted = folder / "v" / "cache"
    noted.mkdir(parents=True)
    noted.joinpath("lastfailed").write_text(json.dumps(dict.fromkeys(failed, True)))
    command = [sys.executable, str(ROOT / "scripts" / "again.py"), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_what_a_clock_judges_runs_again(tmp_path: Path) -> None:
    ran = asked(tmp_path, CLOCKED, "tests/programs/test_looks.py::test_one[a b]")
    assert (ran.returncode, ran.stdout.splitlines()) == (0, [CLOCKED, "tests/programs/test_looks.py::test_one[a b]"])


@pytest.mark.parametrize(
    "other",
    [
        "tests/loader/test_races.py::test_it",
        "tests/fixes/test_undo.py::test_it",
        "tests/test_api.py::test_it",
        "tests/measurement_of_all.py",
    ],
)
def test_what_keeps_samples_pixels_and_files_fails_at_once(other: str, tmp_path: Path) -> None:
    ran = asked(tmp_path, CLOCKED, other)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert other in ran.stderr
    assert CLOCKED not in ran.stderr


def test_many_failures_are_no_chance(tmp_path: Path) -> None:
    ran = asked(tmp_path, *(f"{CLOCKED}[{number}]" for number in range(4)))
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "4 tests failed" in ran.stderr


def test_where_nothing_failed_nothing_runs_again(tmp_path: Path) -> None:
    assert asked(tmp_path).returncode == 1


def test_every_room_it_names_is_there() -> None:
    import importlib.util

    spec = importlib.util.spec_from_file_location("again", ROOT / "scripts" / "again.py")
    assert spec is not None
    assert spec.loader is not None
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    assert all(os.path.isdir(ROOT / "tests" / room) for room in again.CLOCKED)
