"""JPEG files taken to pieces: without their tables, without their last scans, with bytes between their segments."""

from __future__ import annotations

import re
from collections.abc import Iterator

DQT, DHT, SOS = 0xDB, 0xC4, 0xDA
_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
"""Not a byte of a scan, nor a restart within it."""


def segments(jpeg: bytes) -> Iterator[tuple[int, bytes]]:
    """Marker and bytes of each part, a scan with its data; the parts joined are the file."""
    at = 0
    while at < len(jpeg):
        marker = jpeg[at + 1]
        end = at + 2 if marker in (0xD8, 0xD9) else at + 2 + int.from_bytes(jpeg[at + 2 : at + 4], "big")
        if marker == SOS:
            following = _MARKER.search(jpeg, end)
            end = following.start() if following else len(jpeg)
        yield marker, jpeg[at:end]
        at = end


def without(jpeg: bytes, *markers: int) -> bytes:
    """The file but for segments of these kinds."""
    return b"".join(part for marker, part in segments(jpeg) if marker not in markers)


def first_scans(jpeg: bytes, count: int) -> bytes:
    """The file with its first so many scans, ended as a whole one is."""
    kept, scans = [], 0
    for marker, part in segments(jpeg):
        scans += marker == SOS
        if scans <= count or marker == 0xD9:
            kept.append(part)
    return b"".join(kept)


def scans_in(jpeg: bytes) -> int:
    return sum(marker == SOS for marker, _ in segments(jpeg))


def with_filling(jpeg: bytes, width: int = 25_000, height: int = 25_000) -> bytes:
    """The file with a fill byte before a long comment, in which a reader that takes the fill byte for a marker finds a frame."""
    frame = (
        b"\xff\xc0\x00\x11\x08" + height.to_bytes(2, "big") + width.to_bytes(2, "big") + b"\x03\x01\x22\x00\x02\x11\x01\x03\x11\x01"
    )
    length = 0xFFF0
    begin = jpeg[:2] + b"\xff" + b"\xff\xfe" + length.to_bytes(2, "big")
    # Its length, read a byte too early, is 0xfeff.
    comment = frame.rjust(4 + 0xFEFF - len(begin) + len(frame), b"\0")
    return begin + comment.ljust(length - 2, b"\0") + jpeg[2:]
