"""Killed and run again, a conversion ends with the very same files. `scripts/bench kills` does the same two hundred times."""

from __future__ import annotations

import random

import pytest

from tests.caches import killing
from tests.caches.sources import draw


@pytest.fixture(scope="module")
def nursery():
    with killing.Nursery() as nursery:
        yield nursery


def test_killed_and_run_again(tmp_path, nursery):
    for index in range(60):
        draw(tmp_path / "pictures" / f"{index:02d}.jpg", index, size=(300, 200))
    job = {"pictures": tmp_path / "pictures", "store": "resized", "each": 6}
    seconds = killing.whole(nursery, tmp_path / "whole", **job)
    kills, wrong = killing.killed(nursery, tmp_path / "cache", seconds * 0.7, random.Random(1), **job)
    assert not wrong
    assert killing.contents(tmp_path / "cache") == killing.contents(tmp_path / "whole"), f"after {kills} kills"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "pictures", "whole"]
