"""torchvision's own functions on tensors: for threads on the CPU, and for devices without Kornia."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pipefix.augment.augment import Singly
from pipefix.augment.draw_colour import ALL_DRAWS
from pipefix.augment.follow import follow
from pipefix.augment.ops import Op
from pipefix.augment.single import SINGLE


def augmentation(listed: Iterable[Op], *, threads: int = 0, **settings: Any) -> Singly:
    return Singly(listed, threads=threads, kernels=SINGLE, draws=ALL_DRAWS, followers=follow, **settings)
