"""The shapes in which people write datasets. Each does the same four things, in its own words."""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import cv2
import numpy as np
import torch.utils.data
from torchvision.datasets import DatasetFolder

from measured.planted.batching import Payload
from measured.planted.formats import pieces_of
from measured.planted.ledger import Watch
from measured.planted.sources import Source

_loaded: list[Watch] = []
"""The watch of the sample that a loader function has just read: what follows until the sample is complete is its augmentation."""


class Parts:
    """What every shape is made of."""

    def __init__(self, source: Source, decode: Callable[[bytes], Any], transform: Any, payload: Payload, length: int) -> None:
        self.source = source
        self.decode = decode
        self.transform = transform
        self.payload = payload
        self.length = length


class MapStyle(torch.utils.data.Dataset[Any]):
    """``__getitem__`` that calls what the dataset holds: a source, a function that decodes, a transform list."""

    def __init__(self, parts: Parts) -> None:
        self.source = parts.source
        self.decode = parts.decode
        self.transform = parts.transform
        self.payload = parts.payload
        self.length = parts.length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        watch = Watch()
        raw = self.source.read(index)
        watch.lap("storage")
        values = self.decode(raw)
        watch.lap("decode")
        values = self.transform(values)
        watch.lap("augment")
        return self.finished(values, index)

    def finished(self, values: Any, index: int) -> Any:
        block = self.payload.of(index)
        return (values, index % 10) if block is None else (values, index % 10, block)


class Methods(MapStyle):
    """The same work in methods of the dataset."""

    def __getitem__(self, index: int) -> Any:
        watch = Watch()
        raw = self._load(index)
        watch.lap("storage")
        values = self._parse(raw)
        watch.lap("decode")
        values = self._augment(values)
        watch.lap("augment")
        return self.finished(values, index)

    def _load(self, index: int) -> bytes:
        return self.source.read(index)

    def _parse(self, raw: bytes) -> Any:
        return self.decode(raw)

    def _augment(self, values: Any) -> Any:
        return self.transform(values)


class Inline(MapStyle):
    """Library calls written straight into ``__getitem__``: arrays from OpenCV or zlib."""

    def __init__(self, parts: Parts, name: str) -> None:
        super().__init__(parts)
        self.name = name

    def __getitem__(self, index: int) -> Any:
        watch = Watch()
        raw = self.source.read(index)
        watch.lap("storage")
        for piece in pieces_of(raw):
            if self.name == "cv2":
                pixels: Any = cv2.imdecode(np.frombuffer(piece, dtype=np.uint8), cv2.IMREAD_COLOR)
                values = cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)
            else:
                height, width = struct.unpack_from("<II", piece)
                values = np.frombuffer(zlib.decompress(piece[8:]), dtype=np.uint8).reshape(height, width, 3)
        watch.lap("decode")
        for operation in self.transform.transforms:
            values = operation(values)
        watch.lap("augment")
        return self.finished(values, index)


class Batched(MapStyle):
    """``__getitems__``: a whole batch asked for at once."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        watch = Watch()
        raws = [self.source.read(index) for index in indices]
        watch.lap("storage", len(indices))
        decoded = [self.decode(raw) for raw in raws]
        watch.lap("decode", len(indices))
        augmented = [self.transform(values) for values in decoded]
        watch.lap("augment", len(indices))
        return [self.finished(values, index) for values, index in zip(augmented, indices, strict=True)]


class Stream(torch.utils.data.IterableDataset[Any]):
    """Samples in a row, dealt out among the workers."""

    def __init__(self, parts: Parts) -> None:
        self.source = parts.source
        self.decode = parts.decode
        self.transform = parts.transform
        self.payload = parts.payload
        self.length = parts.length

    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for index in itertools.islice(itertools.count(first, step), -(-self.length // step)):
            watch = Watch()
            raw = self.source.read(index)
            watch.lap("storage")
            values = self.decode(raw)
            watch.lap("decode")
            values = self.transform(values)
            watch.lap("augment")
            block = self.payload.of(index)
            yield (values, index % 10) if block is None else (values, index % 10, block)


class Folder(DatasetFolder):  # type: ignore[misc]
    """torchvision's own folder dataset with a loader function; the transform is torchvision's to call."""

    def __init__(self, root: str, parts: Parts) -> None:
        self._parts = parts
        super().__init__(root, loader=self._read, extensions=(".bin",), transform=parts.transform)
        self._places = {path: number for number, path in enumerate(parts.source.files)}
        self._repeat = max(1, parts.length // len(self.samples))

    def __len__(self) -> int:
        return len(self.samples) * self._repeat

    def __getitem__(self, index: int) -> Any:
        values, label = super().__getitem__(index % len(self.samples))
        if _loaded:
            _loaded.pop().lap("augment")
        block = self._parts.payload.of(index)
        return (values, label) if block is None else (values, label, block)

    def _read(self, path: str) -> Any:
        watch = Watch()
        raw = self._parts.source.read(self._places[path])
        watch.lap("storage")
        values = self._parts.decode(raw)
        watch.lap("decode")
        _loaded[:] = [watch]
        return values


SHAPES = ("map", "methods", "inline", "batched", "stream", "folder")
