"""Small pipelines that really make the mistakes the audit looks for, and their sound counterparts; and how they are observed."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from pipefix.audit.facts import AuditFacts
from pipefix.audit.loader_facts import growth, run_facts, worker_facts
from pipefix.vocabulary.settings import LoaderSettings


class Look:
    """Collates as the loader did, and sends back what the worker looks like."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self.collate = collate

    def __call__(self, samples: Any) -> tuple[int, int, dict[str, float]]:
        return os.getpid(), len(samples), worker_facts(self.collate(samples))


class Zipped(Dataset[bytes]):
    """Opens its archive where every process would have to open its own."""

    def __init__(self, path: Path) -> None:
        self.archive = zipfile.ZipFile(path)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> bytes:
        return self.archive.read("0")


class Sharded(IterableDataset[int]):
    """A stream of shards, as WebDataset holds them."""

    def __init__(self, urls: list[str]) -> None:
        self.pipeline = [SimpleNamespace(urls=urls)]

    def __iter__(self) -> Iterator[int]:
        return iter(range(4))


def settings_of(loader: DataLoader[Any]) -> LoaderSettings:
    return LoaderSettings(
        batch_size=loader.batch_size,
        num_workers=loader.num_workers,
        prefetch_factor=loader.prefetch_factor,
        pin_memory=loader.pin_memory,
        persistent_workers=loader.persistent_workers,
        length=len(loader.dataset),  # type: ignore[arg-type]
    )


def observed(loader: DataLoader[Any], **more: Any) -> AuditFacts:
    """Run an epoch and look into its workers."""
    beside = DataLoader(
        loader.dataset,
        batch_size=loader.batch_size,
        sampler=loader.sampler,
        num_workers=loader.num_workers,
        prefetch_factor=loader.prefetch_factor,
        collate_fn=Look(loader.collate_fn),
        multiprocessing_context=loader.multiprocessing_context,
        worker_init_fn=loader.worker_init_fn,
    )
    looks: dict[int, list[tuple[int, dict[str, float]]]] = {}
    for pid, count, numbers in beside:
        seen = looks.setdefault(pid, [])
        seen.append((seen[-1][0] + count if seen else count, numbers))
    longest = max(looks.values(), key=lambda seen: seen[-1][0])
    facts = {**run_facts(loader, longest[-1][1]), "settings": settings_of(loader), "growth": growth(longest)}
    return AuditFacts(**{**facts, **more})


class Arrays(Dataset[torch.Tensor]):
    """Float tensors of one size."""

    def __init__(self, length: int = 32, shape: tuple[int, ...] = (3, 32, 32), dtype: torch.dtype = torch.float32) -> None:
        self.length, self.shape, self.dtype = length, shape, dtype

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full(self.shape, index % 200, dtype=self.dtype)


class Pieces(Arrays):
    """Each sample a dict of many small tensors."""

    def __init__(self, pieces: int, length: int = 16) -> None:
        super().__init__(length)
        self.pieces = pieces

    def __getitem__(self, index: int) -> Any:
        return {str(piece): torch.tensor([index, piece]) for piece in range(self.pieces)}


class Raw(Arrays):
    """Samples as NumPy arrays."""

    def __getitem__(self, index: int) -> Any:
        return np.full(self.shape, index, dtype=np.uint8)


class PathList(Dataset[int]):
    """Reads its entries from a list of (path, label) tuples, as ImageFolder does."""

    def __init__(self, length: int) -> None:
        self.samples = [(f"/data/train/{index % 1000:04d}/image_{index:08d}.jpg", index) for index in range(length)]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> int:
        path, label = self.samples[index]
        return len(path) + label


class PathArray(PathList):
    """The same entries packed into arrays."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.paths = np.array([path for path, _ in self.samples], dtype=np.bytes_)
        self.labels = np.arange(length)
        del self.samples

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> int:
        return len(os.fsdecode(self.paths[index])) + int(self.labels[index])


class Hoard(Arrays):
    """Keeps every sample it has made."""

    def __init__(self, length: int, each: int) -> None:
        super().__init__(length)
        self.each = each
        self.kept: dict[int, bytes] = {}

    def __getitem__(self, index: int) -> torch.Tensor:
        self.kept[index] = os.urandom(64) * (self.each // 64)
        return torch.tensor(index)


class OwnBatch:
    """A batch with the method that the loader's pinning thread calls: the right way."""

    def __init__(self, samples: Any) -> None:
        self.pixels = default_collate(samples)

    def pin_memory(self) -> OwnBatch:
        self.pixels = self.pixels.pin_memory()
        return self
