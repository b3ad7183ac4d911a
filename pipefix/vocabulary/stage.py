"""The stages of a data pipeline, in the order a sample passes them. Every room uses these names."""

from __future__ import annotations

from enum import Enum


class Stage(str, Enum):
    """One thing that can be slow. A member is its own name: ``Stage.DECODE == "decode"``."""

    STORAGE = "storage"
    """Bytes from where they lie: files, sockets, databases."""
    DECODE = "decode"
    """Bytes to values: JPEG to pixels, JSON to dicts, text to token ids."""
    AUGMENT = "augment"
    """Values to other values: the transform list and the user's own code on decoded samples."""
    COLLATE = "collate"
    """Samples to one batch."""
    IPC = "ipc"
    """A batch from a worker process to the training process: shared memory, pickling, the pipe, pinning."""
    TRANSFER = "transfer"
    """A batch from host memory to the device."""
    STEP = "step"
    """What consumes the batch: forward, backward, optimizer."""

    __hash__ = str.__hash__
    """Not Enum's, which is written in Python: stages are looked up at every border the clock crosses."""

    def __str__(self) -> str:
        return self.value


STORAGE, DECODE, AUGMENT = Stage.STORAGE, Stage.DECODE, Stage.AUGMENT
"""For code that every call of a library runs through: to fetch a member of an enum costs more than a clock reading."""
ORDER: tuple[Stage, ...] = tuple(Stage)
IN_SAMPLE: tuple[Stage, ...] = (Stage.STORAGE, Stage.DECODE, Stage.AUGMENT)
"""What happens inside ``dataset[i]``."""
INPUT: tuple[Stage, ...] = (*IN_SAMPLE, Stage.COLLATE, Stage.IPC)
"""What the loader does before the training process holds a batch."""
