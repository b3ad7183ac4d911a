"""The size of a picture before anything is decoded: what Pillow says of it, and what kernels decode."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pipefix.kernels.errors import BadPicture
from pipefix.kernels.header import Header, read_header
from pipefix.kernels.kernel import Kernel
from pipefix.kernels.request import Box
from tests.kernels.conftest import Encode, patient
from tests.kernels.jpegs import segments, with_filling

MODES, TURNS = ("RGB", "L", "CMYK"), (None, *range(1, 9))
PAIRS = [(MODES[place % 3], place % 2 == 0, turned) for place, turned in enumerate(TURNS)]
"""Every turn, with modes and kinds of file in turn: these say nothing of each other."""


@pytest.mark.parametrize(("mode", "progressive", "turned"), PAIRS)
def test_what_it_says(encoded: Encode, mode: str, progressive: bool, turned: int | None) -> None:
    exif = Image.Exif()
    if turned:
        exif[0x112] = turned
        exif[0x10E] = "a description, so that the directory has another entry"
    jpeg = encoded(37, 53, mode, progressive=progressive, exif=exif, comment=b"noted")
    components = {"RGB": 3, "L": 1, "CMYK": 4}[mode]
    assert read_header(jpeg) == Header(37, 53, components, 8, progressive, turned or 1)
    assert read_header(jpeg).plain is (mode != "CMYK")
    assert Image.open(io.BytesIO(jpeg)).getexif().get(0x112, 1) == (turned or 1)


@patient
@given(data=st.data())
def test_of_anything_it_says_something_or_what_is_wrong(encoded: Encode, data: st.DataObject) -> None:
    exif = Image.Exif()
    exif[0x112] = 5
    jpeg = bytearray(encoded(exif=exif))
    for _ in range(data.draw(st.integers(0, 5))):
        jpeg[data.draw(st.integers(0, 400))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(BadPicture):
        header = read_header(jpeg[: data.draw(st.integers(0, len(jpeg)))])
        assert min(header.width, header.height) > 0 and 1 <= header.orientation <= 8


STRAY = st.sampled_from(
    [b"\xff", b"\xff\xff\xff", b"\x00", b"\xff\x00", b"\xff\x01", b"\xff\xd3", b"\xff\xd8", b"\xff\xf7", b"\x00\x13"]
)
FALSE_FRAME = bytes.fromhex("FFC00011082710271003012200021101031101")
COMMENTS = st.builds(
    lambda length, body: b"\xff\xfe" + length.to_bytes(2, "big") + body,
    st.integers(0, 60),
    st.binary(max_size=30) | st.just(FALSE_FRAME),
)


def with_more_in_its_header(jpeg: bytes, data: st.DataObject) -> bytes:
    """The file with all sorts of things between the segments before its frame, some of which look like frames."""
    parts: list[bytes] = []
    before = True
    for marker, part in segments(jpeg):
        before = before and marker not in (0xC0, 0xC2)
        if before and parts:
            parts += data.draw(st.lists(STRAY | COMMENTS, max_size=2))
        parts.append(part)
    return b"".join(parts)


@patient
@given(data=st.data(), progressive=st.booleans())
def test_the_size_is_the_one_that_is_decoded(kernel: Kernel, encoded: Encode, data: st.DataObject, progressive: bool) -> None:
    """What the header says is what libjpeg goes by, or the file is refused: memory is set aside by it."""
    jpeg = with_more_in_its_header(encoded(37, 53, progressive=progressive), data)
    with contextlib.suppress(BadPicture):
        header = read_header(jpeg)
        pixels = kernel.jpeg_region(jpeg, Box(0, 0, header.width, header.height))
        assert np.array_equal(pixels, np.asarray(Image.open(io.BytesIO(jpeg)).convert("RGB")))


def test_a_fill_byte_hides_no_frame(encoded: Encode) -> None:
    assert read_header(with_filling(encoded(37, 53)))[:2] == (37, 53)


def test_other_kinds_of_frames_are_left_to_others(encoded: Encode) -> None:
    """Arithmetically coded ones among them, which not every library decodes."""
    jpeg = encoded()
    for kind in (0xC3, 0xC5, 0xC8, 0xC9, 0xCA, 0xCF):
        with pytest.raises(BadPicture, match=f"its frame is of kind {kind:X}") as caught:
            read_header(jpeg.replace(b"\xff\xc0", bytes((0xFF, kind)), 1))
        assert caught.value.reason == "unsupported"
