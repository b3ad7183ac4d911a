"""Where a list is cut: what must stay on the CPU, what moves to the batch as one module, and what crosses the wire then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipefix.augment import ops, support
from pipefix.augment.operation import Op, draw_list
from pipefix.augment.steps import Frame
from pipefix.augment.stream import Stream, keys_of
from pipefix.augment.translate import Read, Translation

_BYTES = {"uint8": 1, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "int16": 2, "int32": 4, "int64": 8}


@dataclass(frozen=True)
class Wire:
    """What one sample is when it crosses to the training process."""

    shape: tuple[int, int, int] | None
    """Channels, height, width; None where pictures differ in size or it is not known."""
    dtype: str

    @property
    def nbytes(self) -> int | None:
        return None if self.shape is None else int(np.prod(self.shape)) * _BYTES.get(self.dtype, 4)

    def __str__(self) -> str:
        return f"{self.dtype} {'x'.join(map(str, self.shape))}" if self.shape else f"{self.dtype}, of any size"


@dataclass(frozen=True)
class Split:
    target: str
    stays: tuple[Read, ...]
    """The user's own transforms, as they are."""
    moves: tuple[Read, ...]
    whys: tuple[tuple[str, str], ...]
    """Why a transform stays: its name, and the reason."""
    before: Wire
    after: Wire

    @property
    def ops(self) -> tuple[Op, ...]:
        """What the module does."""
        return tuple(op for read in self.moves for op in read.ops)

    @property
    def needs_tensor(self) -> bool:
        """Whether the part that stays must still be followed by the step from a picture to a tensor."""
        return not any(isinstance(op, ops.ToTensor) for read in self.stays for op in read.ops)


def split(translation: Translation, target: str, *, size: tuple[int, int, int] | None = None, same_size: bool = False) -> Split:
    """Cut at the earliest place. ``size``: channels, height and width of a picture as it is read; ``same_size``: of all of them."""
    reads = translation.reads
    whys: list[tuple[str, str]] = []
    if target == "dali":
        return _from_bytes(translation, size)
    cut = 0
    for place, read in enumerate(reads):
        why = support.why_not_any(read.ops, target)
        if why:
            whys += [(one.name, f"{read.name} follows, which stays") for one in reads[cut:place]]
            whys.append((read.name, why))
            cut = place + 1
    sized = _first_size(reads, same_size)
    if sized > cut:
        whys += [(one.name, "pictures differ in size until they are cropped or resized to one") for one in reads[cut:sized]]
        cut = sized
    return Split(
        target, reads[:cut], reads[cut:], tuple(whys),
        _wire(_ops(reads), size, same_size), _wire(_ops(reads[:cut]), size, same_size),
    )  # fmt: skip


def _from_bytes(translation: Translation, size: tuple[int, int, int] | None) -> Split:
    """DALI begins with encoded bytes, so it takes the whole list or none of it."""
    refused = [(read.name, why) for read in translation.reads if (why := support.why_not_any(read.ops, "tensor"))]
    reads = translation.reads
    if refused:
        name = refused[0][0]
        whys = refused + [(read.name, f"{name} stays, and DALI begins with the file") for read in reads if read.name != name]
        return Split("dali", reads, (), tuple(whys), _wire(_ops(reads), size, False), _wire(_ops(reads), size, False))
    before = _wire(_ops(reads), size, False)
    return Split("dali", (), reads, (), before, before)


def _first_size(reads: Sequence[Read], same_size: bool) -> int:
    """How many transforms it takes until all pictures have one size."""
    if same_size:
        return 0
    for place, read in enumerate(reads):
        if any(makes_one_size(op) for op in read.ops):
            return place + 1
    return len(reads)


def makes_one_size(op: Op) -> bool:
    return isinstance(op, ops.SIZING) and not (isinstance(op, ops.Resize) and (op.size is None or len(op.size) < 2))


def _ops(reads: Sequence[Read]) -> tuple[Op, ...]:
    return tuple(op for read in reads for op in read.ops)


def _wire(listed: Sequence[Op], size: tuple[int, int, int] | None, same_size: bool) -> Wire:
    dtype, one_size = "uint8", same_size
    known = [op for op in listed if not isinstance(op, ops.Untranslatable)]
    for op in known:
        if isinstance(op, ops.ToDtype):
            dtype = op.dtype
        one_size = one_size or makes_one_size(op)
    if not one_size:
        return Wire(None, dtype)
    frame = Frame.of([size or (3, 512, 512)])
    try:
        draw_list(known, Stream(keys_of(0, 0, np.zeros(1))), frame)
    except ValueError:  # the sample is smaller than a crop
        return Wire(None, dtype)
    return Wire((int(frame.channels[0]), int(frame.height[0]), int(frame.width[0])), dtype)
