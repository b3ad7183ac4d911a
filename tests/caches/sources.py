"""Datasets that the tests convert, written as people write them; nothing in them knows of caches."""

from __future__ import annotations

import io
import itertools
import json
import mmap
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import h5py
import numpy as np
import torch
import torchvision
from PIL import Image
from torch.utils.data import Dataset, IterableDataset


def draw(path: Path, seed: int, size: tuple[int, int] = (60, 44), **how: Any) -> Path:
    """A picture of its own: smooth, so that JPEG keeps it, with one colour that tells which it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = how.pop("mode", "RGB")
    across = np.linspace(0, 200, size[0])[None, :, None]
    down = np.linspace(0, 50, size[1])[:, None, None]
    pixels = (across + down + np.array([seed * 7 % 50, seed * 3 % 50, seed % 50])).clip(0, 255).astype(np.uint8)
    image = Image.fromarray(pixels)
    if mode == "I;16":
        image = Image.fromarray(pixels[:, :, 0].astype(np.uint16) * 257)
    elif mode != "RGB":
        image = image.convert(mode)
    image.save(path, **how)
    return path


class Files(Dataset[Any]):
    """Paths and labels; the transform list is an attribute."""

    def __init__(self, paths: list[Path], transform: Any = None, convert: str | None = "RGB") -> None:
        self.paths = [str(path) for path in paths]
        self.labels = list(range(len(paths)))
        self.transform = transform
        self.convert = convert

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        image = Image.open(self.paths[index])
        if self.convert:
            image = image.convert(self.convert)
        if self.transform is not None:
            image = self.transform(image)
        return image, self.labels[index]


class ReadBy(Dataset[Any]):
    """Reads its files in one of the many ways there are."""

    def __init__(self, paths: list[Path], how: str) -> None:
        self.paths = [str(path) for path in paths]
        self.way = how

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        return WAYS[self.way](self.paths[index])


def by_pil(path: str) -> Any:
    with open(path, "rb") as file:
        return np.asarray(Image.open(file).convert("RGB"))


def by_json_and_pil(path: str) -> Any:
    """An annotation that names the picture, a picture, and a mask beside it."""
    labels = json.loads(Path(path).with_suffix(".json").read_text())
    mask = Image.open(Path(path).with_suffix(".png"))
    return np.asarray(Image.open(Path(path).parent / labels["file"]).convert("RGB")), np.asarray(mask), labels["label"]


def by_descriptor(path: str) -> Any:
    """As C programmers do it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        head = os.read(descriptor, 10)
        middle = bytearray(20)
        os.preadv(descriptor, [middle], 10)
        return np.frombuffer(head + bytes(middle) + os.pread(descriptor, size, 30), np.uint8)
    finally:
        os.close(descriptor)


def by_map(path: str) -> Any:
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return np.frombuffer(bytes(memoryview(mapped)[5:90]) + mapped[-7:], np.uint8)


def by_mapped_array(path: str) -> Any:
    return np.array(np.load(Path(path).with_suffix(".npy"), mmap_mode="r")[2:]), np.array(np.memmap(path, mode="r")[3:40])


def by_hdf5(path: str) -> Any:
    with h5py.File(Path(path).with_suffix(".h5")) as file:
        return file["plain"][1:], file["packed"][:], file["group"].attrs["label"]


def by_bytes_io(path: str) -> Any:
    return np.asarray(Image.open(io.BytesIO(Path(path).read_bytes())))


WAYS = {
    "pil": by_pil,
    "pil path": lambda path: np.asarray(Image.open(path)),
    "BytesIO": by_bytes_io,
    "cv2": lambda path: cv2.imread(path),
    "torchvision": lambda path: torchvision.io.decode_image(path).numpy(),
    "torchvision file": lambda path: torchvision.io.decode_image(torchvision.io.read_file(path)).numpy(),
    "numpy": lambda path: np.load(Path(path).with_suffix(".npy")),
    "fromfile": lambda path: np.fromfile(path, np.uint8),
    "json, picture and mask": by_json_and_pil,
    "tiff": lambda path: np.asarray(Image.open(Path(path).with_suffix(".tiff"))),
    "hdf5": by_hdf5,
    "descriptor": by_descriptor,
    "map": by_map,
    "mapped array": by_mapped_array,
}


class Shard(Dataset[Any]):
    """Many samples in one file, each read from its place."""

    def __init__(self, path: Path, each: int) -> None:
        self.path, self.each = str(path), each

    def __len__(self) -> int:
        return Path(self.path).stat().st_size // self.each

    def __getitem__(self, index: int) -> bytes:
        with open(self.path, "rb", buffering=0) as file:
            file.seek(index * self.each)
            return file.read(self.each)


class Numbers(Dataset[Any]):
    """Small records of several kinds."""

    def __init__(self, length: int = 100) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return {"index": index, "value": torch.arange(4) * index, "name": f"n{index}", "weights": np.full(3, index, np.float32)}


class Acting(Numbers):
    """Does something when it comes to one of its samples; with ``apart`` only in another process than the one that made it."""

    def __init__(self, number: int, act: Callable[[], Any], *, apart: bool = False) -> None:
        super().__init__()
        self.number, self.act = number, act
        self.process = os.getpid() if apart else None

    def __getitem__(self, index: int) -> Any:
        if index == self.number and os.getpid() != self.process:
            self.act()
        return super().__getitem__(index)


class Texts(Numbers):
    def __init__(self, length: int = 3000) -> None:
        super().__init__(length)

    def __getitem__(self, index: int) -> Any:
        return {
            "text": f"the quick fox number {index}",
            "label": index % 7,
            "score": index / 3,
            "ids": np.arange(index % 5, dtype=np.int32),
        }


class Stream(IterableDataset[Any]):
    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Any:
        return ((torch.full((2,), index), index) for index in range(self.length))


class Endless(IterableDataset[Any]):
    """Pictures, over and over."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = [str(path) for path in paths]

    def __iter__(self) -> Any:
        for number in itertools.count():
            yield Image.open(self.paths[number % len(self.paths)]).convert("RGB"), number


class Noisy(Dataset[Any]):
    """Random by itself, without any transform that could be taken out."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> float:
        return index + random.random()
