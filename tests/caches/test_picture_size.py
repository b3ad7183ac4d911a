"""The size that a record gives a picture is checked against the file before memory is taken for its pixels."""

from __future__ import annotations

import io
from typing import Any

import pytest
from PIL import Image

from pipefix.caches.pictures import picture_as
from pipefix.caches.record import Picture
from pipefix.vocabulary.errors import CacheDamaged
from tests.kernels.jpegs import with_filling


def jpeg(width: int, height: int, **options: Any) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height), (9, 90, 200)).save(file, "JPEG", **options)
    return file.getvalue()


def test_a_fill_byte_does_not_hide_how_large_a_picture_is() -> None:
    """The record says what a false frame says; the decoder would go by the real one, whose tensor could be of gigabytes."""
    data = with_filling(jpeg(640, 480), 20, 10)
    with pytest.raises(CacheDamaged, match="says it is 640x480, and its record says 20x10"):
        picture_as("tensor")(Picture(data, "jpeg", 20, 10, "tensor"))
    assert picture_as("tensor")(Picture(data, "jpeg", 640, 480, "tensor")).shape == (3, 480, 640)


def test_other_frames_are_checked_too() -> None:
    data = jpeg(64, 48).replace(b"\xff\xc0", b"\xff\xc9", 1)
    with pytest.raises(CacheDamaged):
        picture_as("tensor")(Picture(data, "jpeg", 20, 10, "tensor"))
