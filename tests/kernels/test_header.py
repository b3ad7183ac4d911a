"""The size of a picture before anything is decoded: the two readers say the same, and what Pillow says."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from pipefix.kernels.errors import BadPicture
from pipefix.kernels.header import Header, read_header
from pipefix.kernels.kernel import Kernel

Encode = Callable[..., bytes]
patient = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def said(read: Callable[[Any], Header], data: bytes) -> Header | tuple[str, str]:
    try:
        return read(data)
    except BadPicture as error:
        return error.reason, error.detail


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("turned", [None, *range(1, 9)])
def test_what_it_says(kernel: Kernel, encoded: Encode, mode: str, progressive: bool, turned: int | None) -> None:
    exif = Image.Exif()
    if turned:
        exif[0x112] = turned
        exif[0x10E] = "a description, so that the directory has another entry"
    jpeg = encoded(37, 53, mode, progressive=progressive, exif=exif, comment=b"noted")
    components = {"RGB": 3, "L": 1, "CMYK": 4}[mode]
    assert kernel.header(jpeg) == Header(37, 53, components, 8, progressive, turned or 1)
    assert Image.open(io.BytesIO(jpeg)).getexif().get(0x112, 1) == (turned or 1)


def test_only_plain_ones_are_decoded_by_kernels(encoded: Encode) -> None:
    assert read_header(encoded()).plain
    assert read_header(encoded(mode="L")).plain
    assert not read_header(encoded(mode="CMYK")).plain


@patient
@given(data=st.data())
def test_both_readers_say_the_same_of_anything(native_kernel: Kernel, encoded: Encode, data: st.DataObject) -> None:
    exif = Image.Exif()
    exif[0x112] = 5
    jpeg = bytearray(encoded(exif=exif))
    for _ in range(data.draw(st.integers(0, 5))):
        jpeg[data.draw(st.integers(0, 400))] = data.draw(st.integers(0, 255))
    changed = bytes(jpeg[: data.draw(st.integers(0, len(jpeg)))])
    assert said(native_kernel.header, changed) == said(read_header, changed)


@patient
@given(junk=st.binary(max_size=80))
def test_junk(kernel: Kernel, junk: bytes) -> None:
    told = said(kernel.header, b"\xff\xd8" + junk)
    assert told == said(read_header, b"\xff\xd8" + junk)


def test_other_kinds_of_bytes(kernel: Kernel, encoded: Encode) -> None:
    jpeg = encoded()
    expected = kernel.header(jpeg)
    for other in (bytearray(jpeg), memoryview(jpeg), np.frombuffer(jpeg, dtype=np.uint8)):
        assert kernel.header(other) == expected
