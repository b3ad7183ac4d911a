"""Progressive pictures whose last scans are missing, though they end as whole ones do.

libjpeg makes up what is missing from the blocks around (block smoothing). A region has no such blocks, and every version of the
library does it in another way: the library of the list has to decode them.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipefix.kernels.errors import BadPicture
from pipefix.kernels.header import lacks_scans
from pipefix.kernels.kernel import Kernel
from pipefix.kernels.request import Box
from tests.kernels.conftest import Encode
from tests.kernels.jpegs import first_scans, scans_in

KINDS: list[dict[str, Any]] = [
    {"subsampling": 0},
    {"subsampling": 1},
    {"subsampling": 2},
    {"mode": "L"},
    {"restart_marker_blocks": 3},
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_missing_scans_are_left_to_the_library_of_the_list(kernel: Kernel, encoded: Encode, kind: dict[str, Any]) -> None:
    whole = encoded(progressive=True, **kind)
    scans = scans_in(whole)
    assert scans > 4
    for count in range(1, scans):
        jpeg = first_scans(whole, count)
        for box in (Box(0, 0, 90, 70), Box(31, 17, 20, 33)):
            with pytest.raises(BadPicture, match="its last scans are missing") as caught:
                kernel.jpeg_region(jpeg, box)
            assert caught.value.reason == "unsupported"
    assert first_scans(whole, scans) == whole


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_whole_ones_lack_nothing(kernel: Kernel, encoded: Encode, kind: dict[str, Any]) -> None:
    jpeg = encoded(progressive=True, optimize=True, exif=b"Exif\0\0" + encoded(20, 20, progressive=True), **kind)
    assert not lacks_scans(jpeg)
    pixels = np.asarray(Image.open(io.BytesIO(jpeg)).convert("RGB"))
    assert np.array_equal(kernel.jpeg_region(jpeg, Box(31, 17, 20, 33)), pixels[17:50, 31:51])


def test_work_is_bounded(native_kernel: Kernel) -> None:
    """A few bytes may ask for hundreds of passes over all the pixels that a header can claim."""
    side = 13_000
    blocks = (side // 8) ** 2
    quantised = b"\xff\xdb\x00\x43\x00" + bytes([1]) * 64
    frame = b"\xff\xc2\x00\x0b\x08" + side.to_bytes(2, "big") * 2 + b"\x01\x01\x11\x00"
    # One code of one bit, 0, in each table: "as the block before", and "no coefficients in the next 2 ** 14 blocks or more".
    tables = b"".join(
        b"\xff\xc4\x00\x14" + kind + b"\x01" + bytes(15) + symbol for kind, symbol in ((b"\x00", b"\x00"), (b"\x10", b"\xe0"))
    )
    scan = b"\xff\xda\x00\x08\x01\x01\x00"
    first = scan + b"\x00\x00\x00" + bytes(blocks // 8 + 1)
    others = [scan + bytes((place, place, 0)) + bytes(blocks * 15 // 8 // 2**14 + 2) for place in range(1, 64)]
    bomb = b"\xff\xd8" + quantised + frame + tables + first + b"".join(others) + b"\xff\xd9"
    assert len(bomb) < 400_000
    with pytest.raises(BadPicture) as caught:
        native_kernel.jpeg_region(bomb, Box(0, 0, 8, 8))
    assert caught.value.reason == "too-large"
