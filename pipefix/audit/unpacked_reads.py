"""What samples have unpacked and do not use, from what a probe counted: chunks, row groups, frames of a video."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pipefix.audit.facts import AmplifiedReads
from pipefix.audit.store_scan import Operation

DECODED = ("av.decode", "av.Packet.decode")
"""Operations that are a frame each, whether it is used or not."""
USED = "av.VideoFrame."
"""And those that hand one over."""


class UnpackedReads(Protocol):
    """`pipefix.measurement.measurement.Unpacked`."""

    @property
    def name(self) -> str: ...
    @property
    def chunk(self) -> str: ...
    @property
    def asked(self) -> float: ...
    @property
    def unpacked(self) -> float: ...


def amplified(reads: Iterable[UnpackedReads], operations: Iterable[Operation], sample_bytes: float) -> list[AmplifiedReads]:
    """``sample_bytes``: of a finished sample; 0 where that is not known. What no selection tells is held against these."""
    divided = [
        AmplifiedReads(
            name=read.name, pieces="chunks" if read.chunk else "row groups", chunk=read.chunk,
            used=read.asked or sample_bytes, unpacked=read.unpacked,
        )
        for read in reads
    ]  # fmt: skip
    return [*divided, *_frames(list(operations))]


def _frames(operations: list[Operation]) -> list[AmplifiedReads]:
    decoded = [operation for operation in operations if operation.name in DECODED]
    used = sum(operation.calls for operation in operations if operation.name.startswith(USED))
    if not decoded or not used:
        return []
    most = max(decoded, key=lambda operation: operation.calls)
    return [AmplifiedReads(name=most.name, pieces="frames", used=used, unpacked=most.calls)]
