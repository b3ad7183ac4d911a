"""Collate functions with a planted cost, and the payload that makes crossing the worker's border dear."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import torch

from tests.planted.ledger import Watch

GUESS = {"pad": 1 / 45e-9, "merge": 1 / 60e-9}
"""Numbers a second in the padding loop, to start the tuning from."""


class Payload:
    """What each sample carries along: distinct blocks, so that no pickler can send one block twice by reference."""

    def __init__(self, kind: str, batch_size: int) -> None:
        self.kind = kind
        self.count = batch_size
        self.blocks: list[Any] = []
        self.size = 0.0

    def resize(self, size: float) -> None:
        """``size`` bytes a sample."""
        self.size = max(0.0, size)
        whole = int(self.size)
        noise = os.urandom(4096)
        self.blocks = []
        if whole < 64:
            return
        for number in range(self.count):
            block = bytes([number % 256]) + (noise * (whole // 4096 + 1))[1:whole]
            self.blocks.append(block if self.kind == "bytes" else np.frombuffer(block, dtype=np.uint8).copy())

    def of(self, position: int) -> Any:
        return self.blocks[position % self.count] if self.blocks else None


class Collate:
    """Tensors are stacked; ``amount`` numbers a sample are padded into rows, or microseconds are waited."""

    def __init__(self, style: str, payload: str) -> None:
        self.style = style
        self.payload = payload
        self.amount = 0.0
        self._rows: list[list[int]] = []

    def set(self, amount: float) -> None:
        self.amount = amount
        self._rows = [list(range(length)) for length in (int(amount * 0.8), int(amount), int(amount * 0.9), int(amount * 0.7))]

    def __call__(self, samples: list[Any]) -> dict[str, Any]:
        watch = Watch()
        batch = {
            "inputs": torch.stack([sample[0] for sample in samples]),
            "labels": torch.tensor([sample[1] for sample in samples]),
            **self.extra(len(samples)),
        }
        if len(samples[0]) > 2:
            held = [sample[2] for sample in samples]
            batch["payload"] = [torch.from_numpy(block) for block in held] if self.payload == "tensor" else held
        watch.lap("collate", len(samples))
        return batch

    def extra(self, count: int) -> dict[str, Any]:
        if self.amount <= 0:
            return {}
        if self.style == "wait":
            time.sleep(self.amount * count / 1e6)
            return {}
        rows = [self._rows[number % len(self._rows)] for number in range(count)]
        if self.style == "merge":
            seen: dict[int, int] = {}
            for row in rows:
                for value in row:
                    seen[value] = seen.get(value, 0) + 1
            return {"distinct": torch.tensor(len(seen))}
        longest = max(len(row) for row in rows)
        padded = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        return {"lengths": (padded > 0).sum(dim=1)}


class FastCollate(Collate):
    """The same batch without the loop: what is left when a slow collate function has been replaced."""

    def extra(self, count: int) -> dict[str, Any]:
        return {"lengths": torch.full((count,), int(self.amount))} if self.amount > 0 and self.style == "pad" else {}
