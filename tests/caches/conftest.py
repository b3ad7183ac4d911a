from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipefix.caches.convert import Converted, convert, recipe_of
from tests.caches.sources import Files, draw


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    return [draw(tmp_path / "pictures" / f"{index:02d}.jpg", index) for index in range(12)]


@pytest.fixture
def files(pictures: list[Path]) -> Files:
    return Files(pictures)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of four samples: three of the pictures above."""
    monkeypatch.setattr("pipefix.caches.survey._part_samples", lambda samples, record_bytes: 4)


@pytest.fixture
def make(tmp_path: Path) -> Any:
    """Convert a dataset into a directory of the test's own."""

    def run(
        dataset: Any, store: str, to: str = "lmdb", *, name: str = "cache", workers: int = 0, update: bool = False, **recipe: Any
    ) -> Converted:
        return convert(dataset, recipe_of(to, store, **recipe), tmp_path / name, target="a target", workers=workers, update=update)

    return run
