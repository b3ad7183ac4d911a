"""torch.load, which reads through Python's file objects unless it is told to map the file."""

from __future__ import annotations

from pipefix.seams.patches import Patches
from pipefix.seams.seam import cut_stream
from pipefix.seams.tap import Tap

LIBRARY = "torch"
OPAQUE = {"torch.load(mmap=True)": "a mapped checkpoint is read wherever its tensors are used"}


def install(tap: Tap, patches: Patches) -> None:
    import torch

    cut_stream(tap, patches, torch, "load")
