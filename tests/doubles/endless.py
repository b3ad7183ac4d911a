"""A loader as ultralytics and timm make it: one iterator, begun with the loader, for all epochs."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader


class Forever:
    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Any:
        while True:
            yield from self.sampler


class Endless(DataLoader[Any]):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        object.__setattr__(self, "batch_sampler", Forever(self.batch_sampler))
        self.iterator = super().__iter__()

    def __len__(self) -> int:
        forever: Any = self.batch_sampler
        return len(forever.sampler)

    def __iter__(self) -> Any:
        for _ in range(len(self)):
            yield next(self.iterator)
