"""The header of a JPEG, read without decoding: a random crop needs the size before anything is decoded.

Segments are found as libjpeg finds them, and what libjpeg or Pillow does not take is refused: the size told is the one decoded.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from pipefix.kernels.errors import BadPicture

if TYPE_CHECKING:
    from pipefix.kernels.request import Data

MOST_PIXELS = 178_956_970
"""More than that Pillow refuses as a decompression bomb: twice its ``MAX_IMAGE_PIXELS``."""

_BASELINE, _EXTENDED, _PROGRESSIVE = 0xC0, 0xC1, 0xC2
_OTHER_FRAMES = frozenset(range(0xC3, 0xD0)) - {0xC4, 0xCC}
"""Lossless, hierarchical and arithmetically coded ones."""
_SKIPPED = frozenset((0xC4, 0xCC, 0xDB, 0xDC, 0xDD, 0xFE, *range(0xE0, 0xF0)))
"""Tables, comments and what programs have put there."""
_SCAN, _END = 0xDA, 0xD9
_FILLING = re.compile(rb"\xff*")
_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd8\xff]")
"""Not a byte of a scan, nor a restart within it."""


class Header(NamedTuple):
    width: int
    height: int
    components: int
    """1 is grey, 3 is colour, 4 is CMYK or the like."""
    precision: int
    """Bits a value."""
    progressive: bool
    orientation: int
    """EXIF's: 1 is upright. Decoders ignore it unless they are asked."""

    @property
    def plain(self) -> bool:
        """Whether kernels decode this kind."""
        return self.components in (1, 3) and self.precision == 8

    def refuse(self) -> None:
        """Raise `BadPicture` where kernels do not decode it: before memory is taken for its pixels."""
        if self.width * self.height > MOST_PIXELS:
            raise BadPicture("too-large", f"it claims {self.width} x {self.height} pixels")
        if not self.plain:
            raise BadPicture("unsupported", f"it has {self.components} components of {self.precision} bits")


def read_header(encoded: Data) -> Header:
    """What a picture says of itself. Raises `BadPicture` where there is no JPEG, or its header is cut off."""
    data = memoryview(encoded).cast("B")  # type: ignore[arg-type]  # numpy's arrays are buffers, too
    if bytes(data[:2]) != b"\xff\xd8":
        raise BadPicture("not-jpeg", "it begins with no JPEG marker" if len(data) else "it is empty")
    at, orientation = 2, 1
    while True:
        at = max(at, _FILLING.match(data, at).end() - 1)  # type: ignore[union-attr]
        if at + 4 > len(data):
            break
        marker, length = data[at + 1], data[at + 2] << 8 | data[at + 3]
        body = data[at + 4 : at + 2 + length]
        if data[at] != 0xFF or marker == 0:
            raise BadPicture("corrupt", "there are stray bytes between its segments")
        if marker in (_BASELINE, _EXTENDED, _PROGRESSIVE):
            if len(body) < 6:
                break
            height, width = body[1] << 8 | body[2], body[3] << 8 | body[4]
            if not width or not height:
                raise BadPicture("corrupt", f"it claims {width} x {height} pixels")
            return Header(width, height, body[5], body[0], marker == _PROGRESSIVE, orientation)
        if marker in (_END, _SCAN):
            raise BadPicture("corrupt", "it has no frame")
        if marker in _OTHER_FRAMES:
            raise BadPicture("unsupported", f"its frame is of kind {marker:X}")
        if marker not in _SKIPPED:
            raise BadPicture("corrupt", f"the marker {marker:X} does not belong before a frame")
        if marker == 0xE1 and bytes(body[:6]) == b"Exif\0\0":
            orientation = _orientation(bytes(body[6:]))
        at += 2 + max(length, 2)
    raise BadPicture("truncated", "it ends within its header")


def lacks_scans(data: bytes | bytearray | memoryview) -> bool:
    """Whether scans of a progressive picture are missing, though it ends as it should. Decoders then make up what is missing from
    neighbouring blocks, and every version of libjpeg in another way."""
    missing: dict[int, set[int]] = {}
    for marker, at, length in _segments(data):
        body = data[at + 2 : at + length]
        if marker == _PROGRESSIVE:
            missing = {part: set(range(64)) for part in body[6::3]}
        elif marker == _SCAN and len(body) and len(body) >= 4 + 2 * body[0]:
            parts, (first, last, bits) = body[1 : 1 + 2 * body[0] : 2], body[1 + 2 * body[0] :][:3]
            for part in parts:
                done = set(range(first, last + 1))
                # The low half: how many bits of these coefficients are still to come.
                missing[part] = missing.get(part, set()) | done if bits & 15 else missing.get(part, set()) - done
    return any(missing.values())


def is_cut_short(data: bytes) -> bool:
    """Whether no end mark comes after the first scan: a thumbnail before it has one of its own."""
    scan = next((at for marker, at, _ in _segments(data) if marker == _SCAN), len(data))
    return data.rfind(b"\xff\xd9", scan) < 0


def _segments(data: bytes | bytearray | memoryview) -> Iterator[tuple[int, int, int]]:
    """Marker, place and length of each segment up to the picture's end, the bytes of scans passed over."""
    at = 2
    while (marker := _MARKER.search(data, at)) is not None and data[marker.end() - 1] != _END:
        at = marker.end()
        length = int.from_bytes(data[at : at + 2], "big")
        yield data[at - 1], at, length
        at += length


def _orientation(exif: bytes) -> int:
    """Tag 0x112 of the first directory; 1 where it is absent or damaged."""
    order = "<" if exif[:2] == b"II" else ">"
    with suppress(struct.error):
        (first,) = struct.unpack_from(f"{order}I", exif, 4)
        (entries,) = struct.unpack_from(f"{order}H", exif, first)
        for at in range(first + 2, first + 2 + 12 * entries, 12):
            tag, _, _, value, _ = struct.unpack_from(f"{order}HHIHH", exif, at)
            if tag == 0x112:
                return int(value) if 1 <= value <= 8 else 1
    return 1
