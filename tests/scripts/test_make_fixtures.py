"""The drawn pictures: the same every time, drawn once, photo-like in size. A few stand for all."""

from __future__ import annotations

import io
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image

from tests.doubles import scripts


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = scripts.script("make_fixtures.py")
    monkeypatch.setattr(module, "PER_CLASS", 1)
    return module


def test_a_picture_is_photo_like_and_the_same_every_time(script: ModuleType) -> None:
    data = script.photo(seed=1003, long_side=480)
    assert 30_000 < len(data) < 120_000
    assert max(Image.open(io.BytesIO(data)).size) == 480
    assert script.photo(seed=1003, long_side=480) == data
    assert script.photo(seed=1004, long_side=480) != data


def test_they_are_drawn_once_and_again_where_one_is_torn(script: ModuleType, tmp_path: Path) -> None:
    assert not script.drawn(tmp_path)
    assert script.draw_photos(tmp_path)[0] == len(script.CLASSES)
    assert script.drawn(tmp_path)
    left = {path.name for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".jpg"}
    assert left == {".drawn.json"}, "no drafts"
    torn = next(tmp_path.rglob("*.jpg"))
    torn.write_bytes(b"torn")
    assert not script.drawn(tmp_path)
