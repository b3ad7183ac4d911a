"""Datasets of Hugging Face and webdataset: FastLoader gives what torch's loader gives, and a probe knows what took the time."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torchvision import transforms

import pipefix
from pipefix.loader.fast_loader import FastLoader
from tests.frameworks.conftest import package
from tests.loader.likeness import assert_same

pytestmark = pytest.mark.filterwarnings("ignore")
TRANSFORM = transforms.Compose([transforms.RandomResizedCrop(32), transforms.RandomHorizontalFlip(), transforms.ToTensor()])


def same_as_torch(make: Callable[[], Any], batches: int = 0, **options: Any) -> FastLoader[Any]:
    made = []
    for kind in (DataLoader, FastLoader):
        torch.manual_seed(7)
        loader = kind(make(), batch_size=4, **options)
        made.append([batch for _ in range(2) for batch in loader])
    assert len(made[0]) == (batches or 6)
    assert_same(*made)
    return loader  # type: ignore[return-value]


class TestHuggingFace:
    @pytest.fixture
    def rows(self, tmp_path: Path, photo: Callable[..., bytes]) -> Any:
        datasets = package("datasets")
        files = []
        for number in range(12):
            files.append(str(tmp_path / f"{number}.jpg"))
            Path(files[-1]).write_bytes(photo(60 + number, 50))
        table = {"image": files, "label": list(range(12))}
        return datasets.Dataset.from_dict(table).cast_column("image", datasets.Image())

    def transformed(self, rows: Any) -> Any:
        return rows.with_transform(
            lambda batch: {"pixels": [TRANSFORM(one.convert("RGB")) for one in batch["image"]], "label": batch["label"]}
        )

    @pytest.mark.parametrize("workers", [0, 2])
    def test_batches_are_torchs(self, rows: Any, workers: int) -> None:
        loader = same_as_torch(lambda: self.transformed(rows), num_workers=workers, shuffle=True)
        assert loader.explain()

    def test_a_probe_finds_the_decoding(self, rows: Any) -> None:
        report = pipefix.probe(DataLoader(self.transformed(rows), batch_size=4), budget=5)
        assert "decode" in str(report)


class TestWebDataset:
    @pytest.fixture
    def shards(self, tmp_path: Path, photo: Callable[..., bytes]) -> list[str]:
        names = []
        for shard in range(2):
            names.append(str(tmp_path / f"{shard}.tar"))
            with tarfile.open(names[-1], "w") as archive:
                for number in range(6):
                    for ending, content in (("jpg", photo(60 + number, 50)), ("cls", str(number).encode())):
                        entry = tarfile.TarInfo(f"{shard}{number}.{ending}")
                        entry.size = len(content)
                        archive.addfile(entry, io.BytesIO(content))
        return names

    def pictures(self, shards: list[str]) -> Any:
        library = package("webdataset")
        still = transforms.Compose([transforms.Resize((32, 32)), transforms.ToTensor()])
        return library.WebDataset(shards, shardshuffle=False).decode("pil").to_tuple("jpg", "cls").map_tuple(still)

    @pytest.mark.parametrize("workers", [0, 2])
    def test_batches_are_torchs(self, shards: list[str], workers: int) -> None:
        """Twelve samples by one process; with two workers six of a shard each, of which four make a whole batch."""
        same_as_torch(lambda: self.pictures(shards), workers and 4, num_workers=workers, drop_last=bool(workers))

    def test_a_probe_finds_the_decoding(self, shards: list[str]) -> None:
        report = pipefix.probe(DataLoader(self.pictures(shards), batch_size=4), budget=5)
        assert "decode" in str(report)
