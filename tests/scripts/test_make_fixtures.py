"""The drawn pictures: the same every time, drawn once, photo-like in size."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "make_fixtures.py"


def draw(folder: Path) -> str:
    done = subprocess.run([sys.executable, str(SCRIPT), "--photos", str(folder)], capture_output=True, text=True, check=True)
    return done.stderr


def pictures(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.jpg"))}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    assert draw(folder).startswith("Drew 96 pictures")
    return folder


def test_they_are_photo_like(drawn: Path) -> None:
    found = pictures(drawn)
    assert len(found) == 96
    assert len({name.split("/")[0] for name in found}) == 4
    assert all(30_000 < len(data) < 120_000 for data in found.values())
    sizes = {Image.open(drawn / name).size for name in found}
    assert len(sizes) > 20
    assert all(min(size) >= 300 and max(size) <= 600 for size in sizes)


def test_they_are_the_same_every_time_and_drawn_once(drawn: Path) -> None:
    before = pictures(drawn)
    assert draw(drawn) == "", "all were there"
    lost = drawn / next(iter(before))
    lost.write_bytes(b"torn")
    assert draw(drawn).startswith("Drew 96 pictures")
    assert pictures(drawn) == before


def test_no_drafts_are_left(drawn: Path) -> None:
    assert {path.name for path in drawn.rglob("*") if path.is_file() and path.suffix != ".jpg"} == {".drawn.json"}


def test_nothing_heavy_is_needed_to_see_that_all_is_there(drawn: Path) -> None:
    """The demo asks on every run."""
    subprocess.run(
        [sys.executable, "-I", "-S", str(SCRIPT), "--photos", str(drawn)], check=True, env={**os.environ, "PYTHONPATH": ""}
    )
