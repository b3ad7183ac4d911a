"""What a probe believes of reading samples from a cache."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset

from measured.row import Row, at_least
from pipefix.api.try_remedies import sample_record
from pipefix.measurement.consumer import Consumer
from pipefix.subject.load import load
from tests.plan.builders import JPEGS


class Slow(Dataset[Any]):
    """2 ms a sample."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.002)
        return np.full((64,), 3.0), 3


def rows() -> Iterator[Row]:
    for workers in (0, 2):
        subject = load(DataLoader(Slow(), batch_size=4, collate_fn=len, num_workers=workers))
        found = sample_record(subject, Consumer(), JPEGS.diagnosis(), 1.0, 0.1)
        gain = found.gain.value if found is not None and found.gain is not None else 0.0
        yield at_least(f"caches: gain of 2 ms samples from records, {workers} workers", gain, "x", 2)
