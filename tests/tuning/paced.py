"""A dataset that supplies samples at a planted pace."""

from __future__ import annotations

import time
from typing import Any

from torch.utils.data import Dataset


class Paced(Dataset[Any]):
    """Every sample takes so long, asleep."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> int:
        time.sleep(self.seconds)
        return index


def as_list(samples: list[int]) -> list[int]:
    return samples
