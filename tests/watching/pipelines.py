"""Datasets for watched loaders; at module level, so that spawned workers find them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info


class Files(Dataset[Any]):
    """Reads JSON, makes a tensor of it, works on that."""

    def __init__(self, folder: Path, length: int = 64) -> None:
        self.path = folder / "sample.json"
        self.path.write_text(json.dumps(list(range(2000))))
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        with open(self.path) as file:
            values = json.loads(file.read())
        return torch.tensor(values, dtype=torch.float32) + index


class Stream(IterableDataset[Any]):
    """Each worker gives its own half."""

    def __iter__(self) -> Any:
        info = get_worker_info()
        mine = range(info.id, 20, info.num_workers) if info is not None else range(20)
        yield from (torch.tensor([float(value)]) for value in mine)


class Breaking(Dataset[Any]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if index == 5:
            raise ValueError("sample 5 is broken")
        return index


class Mine(DataLoader[Any]):
    """A loader class of the user's own."""

    def __iter__(self) -> Any:
        self.begun = getattr(self, "begun", 0) + 1
        return super().__iter__()


class Endless(DataLoader[Any]):
    """Keeps one iterator for all epochs and hands out generators, as some trainers' loaders do."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        object.__setattr__(self, "kept", None)

    def __iter__(self) -> Any:
        if self.kept is None:
            object.__setattr__(self, "kept", super().__iter__())
        for _ in range(2):
            yield next(self.kept)


def note_worker(worker: int) -> None:
    """The user's worker_init_fn."""
    info = get_worker_info()
    assert info is not None and info.id == worker
    info.dataset.length_seen = worker  # type: ignore[attr-defined]
