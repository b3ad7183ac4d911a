"""Pipelines of every kind that a loader takes. A module of its own, so that spawned workers can import it."""

from __future__ import annotations

import os
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

LENGTH = 48
Pair = namedtuple("Pair", ["image", "label"])


def work(index: int) -> torch.Tensor:
    pixels = np.random.default_rng(int(index)).random((32, 32), dtype=np.float32)
    return soften(torch.from_numpy(pixels))


def soften(pixels: torch.Tensor) -> torch.Tensor:
    return (pixels + pixels.roll(1, 0) + pixels.roll(1, 1)) / 3


class Map(Dataset[Any]):
    """Notes in which processes it was asked."""

    def __init__(self) -> None:
        self.asked_in: dict[int, int] = {}

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Any:
        self.asked_in[os.getpid()] = self.asked_in.get(os.getpid(), 0) + 1
        return work(index), int(index)


class Batched(Map):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


class Sharded(IterableDataset[Any]):
    """Each worker has its own part."""

    def __init__(self, shards: int = 4) -> None:
        self.shards = shards

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        mine = range(self.shards)[info.id :: info.num_workers] if info is not None else range(self.shards)
        for shard in mine:
            for index in range(12):
                yield work(100 * shard + index), shard


class Sized(Sharded):
    def __len__(self) -> int:
        return 12 * self.shards


class Slices(Map):
    """Asked for lists of indices, since its sampler gives those."""

    def __getitem__(self, index: Any) -> Any:
        return torch.stack([work(position) for position in index])


class Keyed(Map):
    def __getitem__(self, index: int) -> Any:
        return {"pair": Pair(work(index), index), "meta": {"name": str(index), "size": 3.5}}


class Thing:
    """Nothing that default_collate knows."""

    def __init__(self, pixels: torch.Tensor) -> None:
        self.pixels = pixels


class Things(Map):
    def __getitem__(self, index: int) -> Any:
        return Thing(work(index))


def collate_things(things: list[Thing]) -> Any:
    return torch.stack([thing.pixels for thing in things])


class Pairs(Map):
    """Its sampler names samples by tuples, as multi-scale ones do."""

    def __getitem__(self, index: Any) -> Any:
        where, size = index
        assert type(index) is tuple and type(where) is np.int64
        return work(where)[:size, :size]


class PairSampler:
    def __len__(self) -> int:
        return LENGTH // 4

    def __iter__(self) -> Iterator[list[Any]]:
        for batch in np.arange(LENGTH).reshape(-1, 4):
            yield [(position, 16) for position in batch]


class Lazy(Map):
    """Opens its HDF5 file when first asked, once in every worker."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path
        self.file: Any = None

    def __getitem__(self, index: int) -> Any:
        if self.file is None:
            self.file = h5py.File(self.path)
        return soften(torch.from_numpy(self.file["images"][index]))


class Drawn(Map):
    """Random: every draw must come from the process's own state."""

    def __getitem__(self, index: int) -> Any:
        return work(index) + torch.rand(1) + float(np.random.rand())


def begin(worker: int) -> None:
    info = get_worker_info()
    assert info is not None and isinstance(info.dataset, Dataset) and type(info.dataset).__module__ == __name__
    info.dataset.begun = worker  # type: ignore[attr-defined]


class Begun(Map):
    """Fails where worker_init_fn did not reach it."""

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        assert info is None or self.begun == info.id  # type: ignore[attr-defined]
        return work(index)


def loader(kind: str, workers: int, **options: Any) -> DataLoader[Any]:
    """The pipeline called ``kind`` as its users would set it up."""
    makers: dict[str, Any] = {
        "map": lambda: (Map(), {"batch_size": 4, "shuffle": True}),
        "batched": lambda: (Batched(), {"batch_size": 4}),
        "sized stream": lambda: (Sized(), {"batch_size": 5, "drop_last": True}),
        "single": lambda: (Map(), {"batch_size": None}),
        "single stream": lambda: (Sharded(), {"batch_size": None}),
        "lists": lambda: (Slices(), {"batch_size": None, "sampler": [[0, 1], [2, 3], [4, 5]] * 4}),
        "tuples": lambda: (Pairs(), {"batch_sampler": PairSampler()}),
        "dict in numpy's order": lambda: (Keyed(), {"batch_size": 4, "sampler": np.random.default_rng(0).permutation(LENGTH)}),
        "custom batches": lambda: (Things(), {"batch_sampler": [[0, 1, 2], [3], [4, 5]] * 4, "collate_fn": collate_things}),
        "every setting": lambda: (
            Begun(),
            {
                "batch_size": 5,
                "drop_last": True,
                "worker_init_fn": begin,
                "persistent_workers": workers > 0,
                "in_order": False,
                "pin_memory": True,
            },
        ),
        "generator": lambda: (Drawn(), {"batch_size": 4, "shuffle": True, "generator": torch.Generator().manual_seed(1)}),
    }
    dataset, settings = makers[kind]()
    return DataLoader(dataset, num_workers=workers, **settings, **options)


KINDS = (
    "map", "batched", "sized stream", "single", "single stream", "lists", "tuples", "dict in numpy's order", "custom batches",
    "every setting", "generator",
)  # fmt: skip
