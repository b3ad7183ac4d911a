"""`CachedDataset`: a cache as a dataset for any DataLoader.

It holds the manifest and paths, and opens files when the first sample is asked for: it can be pickled, forked and spawned at any
time, and threads may share it (not over ``source``, where the dataset's own code runs between replaced functions).
"""

from __future__ import annotations

import copy as copies
import operator
import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset, IterableDataset

from pipefix.caches import cut as cuts
from pipefix.caches import manifest as manifests
from pipefix.caches import pictures, remote, replay
from pipefix.caches.fingerprint import Fingerprint, changed
from pipefix.caches.index import DataFile, Parts
from pipefix.caches.maker import getter
from pipefix.caches.manifest import Manifest
from pipefix.caches.record import Picture, Pixels, RecordDecoder
from pipefix.hooks.object_answers import HEAD
from pipefix.stores.opening import open_store
from pipefix.stores.store import RequestLedger, is_store
from pipefix.tier.client import Tier
from pipefix.vocabulary.errors import BadUsage
from pipefix.vocabulary.held_transforms import datasets_in
from pipefix.vocabulary.quantity import counted


class CachedDataset(Dataset[Any]):
    """The records of a cache, as samples.

    ``dataset`` is the one that the cache was made from. Over ``source`` its own code runs, and reads from the cache. Over other
    stores the part of its transforms that was not stored runs live; ``transform`` gives that part by hand instead, and is called
    as the dataset would call it (without a known place in the sample: on its only image, or else on the whole sample).

    ``images``: what pictures become: ``as-was`` (what the dataset gave), ``image`` (PIL), ``tensor``, ``array``; ``none`` leaves
    them out, for who wants the labels alone.
    ``tier`` (caches in a store only): a local directory and the bytes that it may take, such as ``/nvme/tier:200GB``; parts that
    are read come to lie there, as long as there is room.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, dataset: Any = None, transform: Callable[..., Any] | None = None,
        images: str = "as-was", root: str | os.PathLike[str] | None = None, tier: str | None = None,
    ) -> None:  # fmt: skip
        if is_store(path):
            store = open_store(str(path))
            tier_kept = Tier.at(tier) if tier is not None else None
            manifest = remote.read_manifest(store)
            self._begin(manifest, store.url, images, remote.RemoteParts(store, manifest, tier_kept))
        elif tier is None:
            # Workers, and samples that come later, find it also where the program has changed its directory by then.
            self._begin(manifests.read(Path(path)), Path(path).absolute(), images)
        else:
            raise BadUsage(
                f"{path} is a directory, which needs no tier.", advice="Leave tier out, or copy the cache to a local disk."
            )
        self._attach(dataset, transform, root)

    @classmethod
    def over(cls, manifest: Manifest, folder: Path, *, dataset: Any = None) -> CachedDataset:
        """Of a manifest that lies in no file: parts that were made for a forecast."""
        cached = cls.__new__(cls)
        cached._begin(manifest, folder, "as-was")
        cached._attach(dataset)
        return cached

    def given(self, picture: Callable[[Picture], Any], pixels: Callable[[Pixels], Any], transform: Any) -> CachedDataset:
        """A copy whose stored images become what these functions make of them, with ``transform`` in its transforms' place."""
        copied = copies.copy(self)
        copied.transform = transform
        copied._decode = RecordDecoder(picture, pixels)
        return copied

    @property
    def ledger(self) -> RequestLedger | None:
        """Requests and bytes of a cache in an object store; None for one in a directory."""
        return self._parts.store.ledger if isinstance(self._parts, remote.RemoteParts) else None

    def _begin(self, manifest: Manifest, folder: Path | str, images: str, parts: Parts | None = None) -> None:
        if images not in pictures.FORMS:
            raise BadUsage(f"There is no {images!r} to choose.", advice=f"Choose one of {', '.join(pictures.FORMS)}.")
        self.path, self.manifest, self.images = folder, manifest, images
        self._starts = [0, *accumulate(part.records for part in manifest.parts)][:-1]
        self._parts = parts or Parts(Path(folder), manifest.parts, manifest.recipe.container)
        self._length = manifest.length

    def _open(self) -> None:
        """What is made anew in every process."""
        self._decode = pictures.decoder_to(self.images)
        self._take: Any = getter(self.dataset, None) if self.dataset is not None else None
        self._shelf: replay.Shelf | None = None
        self._rows: Any = None
        if self.manifest.recipe.store == "rows":
            from pipefix.caches.parquet import Rows

            self._rows = Rows(self.manifest, self._parts, self._starts, self._decode.picture)

    def _attach(self, dataset: Any, transform: Any = None, root: str | os.PathLike[str] | None = None) -> None:
        cut, of_source = self.manifest.cut, self.manifest.recipe.store == "source"
        self.root = os.path.abspath(root) if root is not None else self.manifest.source.root
        self.dataset, self.transform = dataset if of_source else None, transform
        if dataset is not None and of_source:
            self._check_length(dataset)
        elif dataset is not None and transform is None:
            self._check_source(dataset)
            self.transform = cuts.rest_of(dataset, cut, self._refresh) if cut is not None else None
        self._call = cut.call if cut is not None else None
        self._open()

    def _check_length(self, dataset: Any) -> None:
        length = len(dataset) if hasattr(type(dataset), "__len__") else self.manifest.samples
        if length != self.manifest.samples:
            raise BadUsage(
                f"The dataset has {counted(length, 'sample')}, and {self.path} was made from one of {self.manifest.samples}.",
                advice=self._refresh(),
            )

    def _check_source(self, dataset: Any) -> None:
        """Refuse a dataset whose code, labels or files are not those that the records were made from."""
        source, parts = self.manifest.source, self.manifest.parts
        if not source.attributes:
            return  # a cache of an earlier version, or one of a forecast
        samples = None if isinstance(dataset, IterableDataset) else self.manifest.samples
        if samples is not None:
            self._check_length(dataset)
        fingerprint = Fingerprint(dataset, samples, [source.root, self.root])
        differing = changed(source.attributes, fingerprint.attributes)
        if not differing and any(part.lists != fingerprint.part(part.start, part.stop, source.volatile) for part in parts):
            differing = ["the files or labels of its samples"]
        if differing:
            more = f" and {len(differing) - 3} more" if len(differing) > 3 else ""
            raise BadUsage(
                f"The dataset is not the one that {self.path} was made from: {', '.join(differing[:3])}{more} changed since.",
                advice=self._refresh(),
            )

    def _refresh(self) -> str:
        """What to do where the dataset is another one by now."""
        as_stored = "; or take the samples as they are stored: CachedDataset(..., transform=...) with what is to run live"
        return self.manifest.refresh(self.path) + ("" if self.manifest.recipe.store == "source" else as_stored)

    @property
    def classes(self) -> list[str]:
        """Names of the classes, as the dataset that the cache was made from had them; empty where it had none."""
        return list(self.manifest.classes)

    # -- samples -------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._length

    def raw(self, index: int) -> memoryview:
        """The record itself, in memory of its own."""
        if not 0 <= index < self._length:
            index = self._inside(index)
        part = bisect_right(self._starts, index) - 1
        file = self._parts.files[part]
        if not isinstance(file, DataFile):  # it is not open, or far, and may have come to lie in the tier
            file = self._parts[part]
        record: memoryview = file.read(index - self._starts[part])
        return record

    def __getitem__(self, index: Any) -> Any:
        index = operator.index(index)
        if self._rows is not None:
            return self._finish(self._rows[self._inside(index)])
        if self.dataset is not None:
            return self._replayed(self._inside(index))
        if self.manifest.recipe.store == "source":
            return self._finish(self.files(index))
        return self._finish(self._decode(self.raw(index)))

    def __getitems__(self, indices: Sequence[Any]) -> list[Any]:
        if isinstance(self._parts, remote.RemoteParts):
            inside = [self._inside(operator.index(index)) for index in indices]
            self._parts.fetch(map(self._place, inside) if self._rows is None else self._rows.missing(inside))
        if self._rows is None:
            return [self[index] for index in indices]
        samples: list[Any] = [None] * len(indices)
        for place in sorted(range(len(indices)), key=indices.__getitem__):  # row groups are read once, whatever the order
            samples[place] = self[indices[place]]
        return samples

    def _place(self, index: int) -> tuple[int, int]:
        """Part, and position in it."""
        number = bisect_right(self._starts, index) - 1
        return number, index - self._starts[number]

    def _inside(self, index: int) -> int:
        position = index + self._length if index < 0 else index
        if not 0 <= position < self._length:
            raise IndexError(f"sample {index} of {self._length}")
        return position

    def _finish(self, sample: Any) -> Any:
        if self.transform is None or self.images == "none":
            return sample
        if self._call is not None:
            return cuts.run_live(self.transform, self._call, sample)
        images = [path for path, value in cuts.ways(sample) if pictures.is_image(value)]
        return cuts.run_live(self.transform, manifests.Call(leaves=images if len(images) == 1 else [[]]), sample)

    def sample_number(self, index: int) -> int:
        """Which sample of the source a record is of: damaged ones have no record."""
        number, position = self._place(self._inside(index))
        part = self.manifest.parts[number]
        sample = part.start + position
        for bad in sorted(part.bad):
            sample += bad <= sample
        return sample

    # -- the source store ----------------------------------------------------------------------------------------------

    def _replayed(self, index: int) -> Any:
        number, position = self._place(index)
        read = self._parts[number].read
        if self._shelf is None:
            self._shelf = replay.Shelf(self.root)
        self._shelf.turn_to(read(position), read)
        return self._finish(replay.replayer(self).run(self._shelf, self._take, self.sample_number(index)))

    @property
    def misses(self) -> int:
        """Reads in this process that no source cache could answer: they went to the original files. `close` sets it to 0."""
        return replay.misses()

    def close(self) -> None:
        """Put back the functions of libraries that were replaced so that the dataset's own code reads from the cache.

        It happens by itself once the last such dataset of the process is gone. The next sample replaces them again.
        """
        replay.leave(id(self))

    def files(self, index: int) -> dict[str, bytes]:
        """What a sample read, by file name or URL; of a file that was read in part, the parts that were, joined."""
        number, position = self._place(self._inside(index))
        read = self._parts[number].read
        taken = read(position)

        def joined(pieces: list[replay.Piece]) -> bytes:
            held = ((taken if holder < 0 else read(holder), place, length) for _, length, place, holder in pieces)
            return b"".join(replay.piece_of(*piece) for piece in held)

        return {name: joined(pieces) for name, _, pieces in replay.entries(taken) if not name.startswith(HEAD)}

    # -- between processes ---------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key not in ("_decode", "_rows", "_shelf", "_take")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._open()

    def __repr__(self) -> str:
        recipe = self.manifest.recipe
        return f"CachedDataset({str(self.path)!r}: {counted(self._length, 'record')}, {recipe.store} in {recipe.container})"


def cache_of(dataset: Any) -> CachedDataset | None:
    """The cache that all samples of a dataset are read from, its own or that of the one it wraps; None where they are not."""
    wrapped = (part for path, part in datasets_in(dataset) if set(path) <= {"dataset"})  # of several, others are read otherwise
    return next((part for part in wrapped if isinstance(part, CachedDataset)), None)
