"""The header of a JPEG, read without decoding: a random crop needs the size before anything is decoded."""

from __future__ import annotations

from typing import NamedTuple

from pipefix.kernels.errors import BadPicture

FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers that begin a frame: the process is their low half."""
PROGRESSIVE = frozenset((0xC2, 0xC6, 0xCA, 0xCE))
ALONE = frozenset((0x00, 0x01, *range(0xD0, 0xD9)))
"""Markers without a length."""


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


def read_header(data: bytes | bytearray | memoryview) -> Header:
    """Raises `BadPicture` where there is no JPEG, or its header is cut off."""
    if bytes(data[:2]) != b"\xff\xd8":
        raise BadPicture("not-jpeg", "it begins with no JPEG marker" if len(data) else "it is empty")
    at, end, orientation = 2, len(data), 1
    while at + 4 <= end:
        marker = data[at + 1]
        if data[at] != 0xFF or marker == 0xFF:
            at += 1  # decoders pass over stray bytes between segments
            continue
        if marker in ALONE:
            at += 2
            continue
        length = data[at + 2] << 8 | data[at + 3]
        if marker in FRAMES:
            frame = bytes(data[at + 4 : at + 10])
            if len(frame) < 6:
                break
            height, width = int.from_bytes(frame[1:3], "big"), int.from_bytes(frame[3:5], "big")
            if not width or not height:
                raise BadPicture("corrupt", f"it claims {width} x {height} pixels")
            return Header(width, height, frame[5], frame[0], marker in PROGRESSIVE, orientation)
        if marker in (0xD9, 0xDA):
            raise BadPicture("corrupt", "it has no frame")
        if marker == 0xE1 and bytes(data[at + 4 : at + 10]) == b"Exif\0\0":
            orientation = _orientation(bytes(data[at + 10 : at + 2 + length]))
        at += 2 + max(length, 2)
    raise BadPicture("truncated", "it ends within its header")


def _orientation(exif: bytes) -> int:
    """Tag 0x112 of the first directory; 1 where it is absent or damaged."""
    order = "little" if exif[:2] == b"II" else "big"

    def number(at: int, size: int) -> int:
        return int.from_bytes(exif[at : at + size], order)  # type: ignore[arg-type]

    first = number(4, 4)
    if len(exif) < 8 or first > len(exif) - 2:
        return 1
    for entry in range(first + 2, min(first + 2 + 12 * number(first, 2), len(exif) - 11), 12):
        if number(entry, 2) == 0x112:
            value = number(entry + 8, 2)
            return value if 1 <= value <= 8 else 1
    return 1
