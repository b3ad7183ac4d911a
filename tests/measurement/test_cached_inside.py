"""A cached dataset that is read inside a probe for the first time: its hooks and the probe's are in place at once."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import pipefix
from pipefix.caches.convert import convert, recipe_of
from pipefix.caches.dataset import CachedDataset
from tests.doubles.ticks import PROBE, Ticks


class Bytes(Dataset[Any]):
    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        with open(self.paths[index], "rb") as file:
            return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)


def test_it_goes_on_reading_its_cache_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = open
    paths = [tmp_path / f"{index}.bin" for index in range(12)]
    for index, path in enumerate(paths):
        path.write_bytes(bytes([index] * 64))
    dataset = Bytes(paths)
    converted = convert(dataset, recipe_of("lmdb", "source"), tmp_path / "cache", target="a target", workers=0)
    cached = CachedDataset(converted.folder, dataset=dataset)
    with monkeypatch.context() as during:
        Ticks().given_to(PROBE, during)
        pipefix.probe(DataLoader(cached, batch_size=4), budget=0.5, trial_workers=())  # fake clock
    for path in paths:
        path.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert [int(cached[index][0]) for index in range(12)] == list(range(12))
    del cached
    assert open is before, "the last reader is gone, and the probe was before it"
