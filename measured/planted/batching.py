"""Collate functions with a planted cost, and the payload that makes crossing the worker's border dear."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from measured.planted.ledger import Watch

GUESS = {"pad": 1 / 45e-9, "merge": 1 / 60e-9}
"""Numbers a second in the padding loop, to start the tuning from."""


PAYLOADS = {"objects": 4e-6, "arrays": 8e-6, "tensors": 150e-6}
"""Kinds of things that cost much to hand over for what they hold, with the seconds that each takes about: annotations as Python
objects, boxes as small arrays, many small tensors. Not large blocks: what those cost depends on which memory is free."""


class Payload:
    """What each sample carries along: things of one kind, all distinct, so that no pickler sends one twice by reference."""

    def __init__(self, kind: str, batch_size: int) -> None:
        self.kind = kind
        self.count = batch_size
        self.blocks: list[Any] = []

    def resize(self, size: float) -> None:
        """``size`` things a sample."""
        self.blocks = (
            [[self._thing(number, place) for place in range(int(size))] for number in range(self.count)] if size >= 1 else []
        )

    def _thing(self, number: int, place: int) -> Any:
        if self.kind == "objects":
            return {"id": 1000 * number + place, "name": f"object {number}/{place}", "box": (place, number + 0.5, 0.25 * place)}
        return np.full(8, number + place, dtype=np.float32)

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
            batch["payload"] = [[torch.from_numpy(one) for one in things] for things in held] if self.payload == "tensors" else held
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
