"""A dataset and its transforms, compiled: samples by index, written where the batch wants them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from pipefix.kernels.picture import Target
from pipefix.loader.fuse import Fused, fuse
from pipefix.loader.fusing import stand_in
from pipefix.loader.fusing.chance import seeded
from pipefix.loader.fusing.layout import CannotFollow
from pipefix.loader.fusing.listing import Coloured, Listing, listed
from pipefix.loader.fusing.recipe import Declined
from pipefix.loader.fusing.trial import MEAN_BAR

COMPARED = 2
"""Samples of the user's that are made both ways before anything is fused."""


class Source:
    """What batches are made from. Calls of `begin` may come from any number of threads, `finish` from one."""

    def __init__(self, dataset: Any, listing: Listing, fused: Fused, size: tuple[int, int]) -> None:
        self.dataset, self.listing, self.fused = dataset, listing, fused
        self.width, self.height = size
        self.mode = "exact" if fused.exact else "close"
        self.kind = torch.uint8 if fused.recipe.finish.table is None else torch.float32

    def __reduce__(self) -> Any:
        """For a worker that is spawned: compiled there."""
        return _again, (self.dataset, self.mode)

    def begin(self, index: Any, key: int, target: Target, place: int) -> Any:
        """The picture of a sample is written; the rest of the sample is returned. Raises where `finish` has to make it."""
        sample, made = self.listing.sample(index)
        data = self.listing.data(index, made)
        fused = self.fused
        if isinstance(data, np.ndarray):
            fused.attempt_pixels(data, target, place, key)
        elif isinstance(data, Coloured):
            fused.attempt(data.data, target, place, key, every_kind=False, coloured=True)
        else:
            fused.attempt(data, target, place, key, every_kind=self.listing.opening.every_kind)
        return sample

    def finish(self, index: Any, key: int, target: Target, place: int, why: Exception) -> Any:
        """As the dataset itself makes it, with its own errors; the key's random numbers are the process's meanwhile."""
        with seeded(key):
            sample = self.dataset[index]
        picture = stand_in.picture_of(sample, self.listing.like)
        wanted = (3, self.height, self.width)
        if not isinstance(picture, torch.Tensor) or tuple(picture.shape) != wanted:
            found = list(picture.shape) if isinstance(picture, torch.Tensor) else type(picture).__name__
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(wanted)} at entry 0 and {found} at entry {place}"
            )
        target.tensor[place].copy_(picture)
        self.fused.elsewhere[str(why) or type(why).__name__] += 1
        return stand_in.placed(sample, self.listing.like, stand_in.Made(None))

    def explain(self) -> str:
        return self.fused.explain()


def compiled(dataset: Any, mode: str, known: dict[Any, Any] | None = None) -> Source | Declined:
    """What the samples of a dataset are made from by fused calls, after a few of them were made both ways; or why not.

    ``known``: lists that were compiled before, to be looked up and added to.
    """
    known = {} if known is None else known
    listing = listed(dataset)
    if isinstance(listing, Declined):
        return listing
    opening = listing.opening
    key = (mode, opening, repr(listing.transform))
    if key not in known:
        known[key] = _sized(fuse(listing.transform, source=opening.source, mode=mode, upright=opening.upright))
    fused, size = known[key]
    if isinstance(fused, Declined):
        return fused
    source = Source(dataset, listing, fused, size)
    if ("compared", key) not in known:
        known["compared", key] = _differs(source, len(dataset))
    why = known["compared", key]
    return source if why is None else Declined(why)


def _again(dataset: Any, mode: str) -> Source:
    source = compiled(dataset, mode)
    if isinstance(source, Declined):
        raise RuntimeError(f"In a worker, the dataset is not what it was: {source.why}.")
    return source


def _sized(fused: Fused | Declined) -> tuple[Fused | Declined, Any]:
    size = None if isinstance(fused, Declined) else fused.size()
    if size is None and not isinstance(fused, Declined):
        return Declined("samples are of different sizes, as their pictures are"), None
    return fused, size


def _differs(source: Source, length: int) -> str | None:
    """What is wrong with the first samples made in this way, by the user's own; samples that cannot be read are not judged."""
    made = Target(torch.empty((2, 3, source.height, source.width), dtype=source.kind))
    bar = (0.0 if source.fused.exact else MEAN_BAR) * source.fused.level()
    for index in range(min(COMPARED, length)):
        try:
            rest = source.begin(index, index, made, 0)
            own = source.finish(index, index, made, 1, CannotFollow("it was compared"))
        except Exception:  # noqa: BLE001, S112 - whatever is wrong with this sample, it is raised where it is asked for
            continue
        apart = (made.tensor[0].double() - made.tensor[1].double()).abs().mean(dim=(1, 2))
        if bool((apart > bar).any()):
            worst = float((apart / source.fused.level()).max())
            return f"sample {index} differs from the dataset's own by {worst:.2f} levels of 255 on average"
        if not _alike(rest, own):
            return f"beside its picture, sample {index} is not what the dataset's code makes"
    source.fused.elsewhere.clear()
    return None


def _alike(one: Any, other: Any) -> bool:
    """Values that can be compared, are; the user's own types are taken for alike."""
    if type(one) is not type(other) or type(one) is stand_in.Made:
        return type(one) is type(other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_alike(value, other[key]) for key, value in one.items())
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    return not isinstance(one, (int, float, str, bytes)) or one == other or one != one
