"""Datasets and collate functions for the drop-in contract; importable, so that every start method can send them."""

from __future__ import annotations

import random
import signal
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, default_collate, get_worker_info

Point = namedtuple("Point", ["x", "y"])


class Kinds(Dataset[Any]):
    """Every kind of value that default_collate knows."""

    def __len__(self) -> int:
        return 23

    def __getitem__(self, index: int) -> Any:
        return {
            "image": torch.full((3, 4, 5), index, dtype=torch.uint8),
            "array": np.arange(6, dtype=np.int16).reshape(2, 3) + index,
            "scalar": np.float32(index),
            "point": Point(index, torch.tensor([index, -index])),
            "name": f"sample {index}",
            "raw": b"%d" % index,
            "empty": torch.zeros(0, 2),
            "complex": torch.tensor([1j * index]),
            "half": torch.tensor([index], dtype=torch.bfloat16),
            "list": [torch.tensor(index > 3), [float(index)]],
        }


class Mixed(Kinds):
    """And a random number of each library's."""

    def __getitem__(self, index: int) -> Any:
        drawn = {"noise": torch.rand(2), "drawn": (random.random(), float(np.random.rand()))}
        return {**super().__getitem__(index), **drawn}


class Batched(Dataset[Any]):
    def __len__(self) -> int:
        return 17

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [torch.tensor([index, len(indices)]) for index in indices]

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("the batched reader is to be used")


class Stream(IterableDataset[Any]):
    """Sharded by worker; shards of different lengths."""

    def __init__(self, length: int = 21) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for index in range(first, self.length, step):
            yield torch.tensor([index, 0 if info is None else info.id]), torch.rand(3)


class Tensors(Dataset[torch.Tensor]):
    """Samples of one shape, each filled with its index."""

    def __init__(self, length: int = 64, shape: tuple[int, ...] = (16,)) -> None:
        self.length, self.shape = length, shape

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full(self.shape, float(index))


class Faulty(Tensors):
    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 9:
            raise KeyError("sample nine")
        return super().__getitem__(index)


class Uneven(Tensors):
    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(3 if index == 2 else 4)


class Told(Dataset[Any]):
    """What a worker knows of itself."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        assert info is not None
        return index, info.id, info.num_workers, info.seed, getattr(info.dataset, "marked", -1), torch.get_num_threads()


def mark(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.marked = worker * 10  # type: ignore[attr-defined]


class Wrapped:
    """A batch of the user's own type, with its own way to be pinned."""

    def __init__(self, samples: list[Any]) -> None:
        self.stacked = torch.stack([sample.clone() for sample in samples])
        self.pinned = False

    def pin_memory(self) -> Wrapped:
        self.pinned = True
        return self


def wrap(samples: list[Any]) -> Wrapped:
    return Wrapped(samples)


def unusual(samples: list[Any]) -> Any:
    """Tensors that are views, shared, repeated, not contiguous, with a gradient; arrays large and read-only."""
    stacked = default_collate(samples)
    whole = torch.arange(4000.0).view(40, 100)
    array = np.arange(9000, dtype=np.float64).reshape(90, 100) + float(stacked.sum())
    fixed = array.copy()
    fixed.flags.writeable = False
    return {
        "first": stacked[0],
        "turned": stacked.t(),
        "again": stacked,
        "whole": whole,
        "rows": whole[3:30],
        "every other": whole[:, ::2],
        "a corner": whole[:1, :2],
        "grown": torch.ones(1, 1).expand(5, 7),
        "learnt": torch.ones(3, requires_grad=True),
        "sparse": torch.eye(4).to_sparse(),
        "array": array,
        "fixed": fixed,
        "columns": np.asfortranarray(array),
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }


def itself(samples: Any) -> Any:
    return samples


def first_only(samples: list[Any]) -> Any:
    return samples[0]


def no_tensor(samples: list[Any]) -> Any:
    return [float(sample[0]) for sample in samples]


_remembered: list[Any] = []


def remembering(samples: list[Any]) -> Any:
    """A collate function that looks at the batches it made before."""
    batch = default_collate(samples)
    _remembered.append(batch)
    return batch, sum(float(old.sum()) for old in _remembered)


def once_unpicklable(samples: list[Any]) -> Any:
    batch = default_collate(samples)
    return batch, (lambda: None) if float(batch[0, 0]) == 4.0 else None


class Noting(Tensors):
    """Notes each index that is read, whoever reads it."""

    def __init__(self, path: str, length: int) -> None:
        super().__init__(length)
        self.path = path

    def __getitem__(self, index: int) -> torch.Tensor:
        with open(self.path, "a", encoding="ascii") as file:
            file.write(f"{index}\n")
        return super().__getitem__(index)


class Torn(Tensors):
    """Some samples cannot be read; the dataset lists its files."""

    def __init__(self, length: int = 40, bad: tuple[int, ...] = (3, 17, 18)) -> None:
        super().__init__(length, (4,))
        self.bad = bad
        self.samples = [(f"/data/{index}.jpg", 0) for index in range(length)]

    def __getitem__(self, index: int) -> torch.Tensor:
        if index in self.bad:
            raise OSError(f"cannot identify image {index}")
        return super().__getitem__(index)


class TornTogether(Torn):
    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        return [self[index] for index in indices]


class Late(Tensors):
    """The alarm rings while its sample 5 is made, as if that took too long."""

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 5:
            signal.raise_signal(signal.SIGALRM)
        return super().__getitem__(index)


class Drawing(Dataset[Any]):
    """Each sample draws from every generator."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        return index, torch.rand(1), random.random(), float(np.random.rand())


class Counting(Tensors):
    """Counts in memory that all processes share."""

    def __init__(self) -> None:
        super().__init__(16)
        self.count = torch.zeros((), dtype=torch.int64).share_memory_()

    def __getitem__(self, index: int) -> torch.Tensor:
        self.count += 1
        return super().__getitem__(index)
