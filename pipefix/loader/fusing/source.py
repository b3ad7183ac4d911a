"""`FusedSource`: a dataset compiled with its transforms, which makes samples by index where the batch wants them."""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image

from pipefix.kernels.request import Target
from pipefix.loader.fusing import stand_in
from pipefix.loader.fusing.errors import CannotFollow, NotFused, found_once
from pipefix.loader.fusing.fuse import Fused, fuse
from pipefix.loader.fusing.listing import Listing, listed, refuse_what_remembers
from pipefix.loader.fusing.pixel_difference import MEAN_BAR, spread
from pipefix.loader.fusing.recipe import FlipStep, RandomCropStep, RandomResizedCropStep
from pipefix.loader.fusing.sample_random import seeded
from pipefix.loader.policy.read_policy import Outcome
from pipefix.vocabulary.nested import at, with_at

Make = Callable[[int], Any]
Unlike = Callable[[Any, Any], str | None]
TRIED, COMPARED, LEAST_COMPARED = 16, 4, 2
"""Before anything is fused, samples of the user's are made both ways: of so many from all over the dataset, until so many were
compared; with fewer than the last, nothing is known of the dataset."""


class FusedSource:
    """What batches are made from. Calls of `begin` may come from any number of threads, `finish` from one."""

    def __init__(self, dataset: Any, listing: Listing, fused: Fused, size: tuple[int, int]) -> None:
        self.dataset, self.listing, self.fused = dataset, listing, fused
        self.path = listing.path
        self.width, self.height = size
        self.kind = torch.uint8 if fused.finish.table is None else torch.float32

    def __reduce__(self) -> Any:
        """For a worker that is spawned: compiled there."""
        return _again, (self.dataset, "exact" if self.fused.exact else "close")

    def begin(self, index: Any, key: int, target: Target, place: int) -> Any:
        """The picture of a sample is written; the rest of the sample is returned. Raises where `finish` has to make it."""
        sample, picture_place = self.listing.sample(index)
        data = self.listing.data(picture_place)
        write = self.fused.pixels_into if isinstance(data, np.ndarray) else self.fused.jpeg_into
        write(data, target, place, key)
        return sample

    def finish(self, index: Any, key: int, target: Target, place: int, why: Exception) -> Any:
        """As the dataset itself makes it, with its own errors; the key's random numbers are the process's meanwhile."""
        with seeded(key):
            sample = self.dataset[index]
        picture = at(sample, self.path)
        wanted = (3, self.height, self.width)
        if not isinstance(picture, torch.Tensor) or tuple(picture.shape) != wanted:
            actual = list(picture.shape) if isinstance(picture, torch.Tensor) else type(picture).__name__
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(wanted)} at entry 0 and {actual} at entry {place}"
            )
        target.tensor[place].copy_(picture)
        self.fused.elsewhere[str(why) or type(why).__name__] += 1
        return with_at(sample, self.path, stand_in.PicturePlace(None))

    @property
    def draws(self) -> bool:
        """Whether the transforms draw random numbers."""
        return any(isinstance(step, (RandomResizedCropStep, RandomCropStep, FlipStep)) for step in self.fused.recipe.steps)

    def explain(self) -> str:
        return self.fused.explain()


def compiled(dataset: Any, mode: str, known: dict[Any, Any]) -> FusedSource:
    """What the samples of a dataset are made from by fused calls, after a few of them were made both ways. Raises `NotFused`.

    ``known``: lists that were compiled before, to be looked up and added to.
    """
    found_once(known, ("shown stand-ins", id(dataset)), partial(refuse_what_remembers, dataset))
    listing = listed(dataset)
    key = (mode, listing.loading, settings_of(listing.transform))
    fused, size = found_once(known, key, partial(_sized, listing, mode))
    source = FusedSource(dataset, listing, fused, size)
    found_once(known, ("compared", key), partial(refuse_other_samples, source, len(dataset)))
    return source


def settings_of(transform: Any) -> Any:
    """What tells a list of transforms from the same list with other settings. Texts of torchvision's are rounded."""
    try:
        return pickle.dumps(transform)
    except Exception:  # noqa: BLE001 - a lambda, or what the user's own class raises
        return repr(transform)


def _again(dataset: Any, mode: str) -> FusedSource:
    try:
        return compiled(dataset, mode, {})
    except NotFused as error:
        raise RuntimeError(f"In a worker, the dataset is not what it was: {error}.") from error


def _sized(listing: Listing, mode: str) -> tuple[Fused, tuple[int, int]]:
    fused = fuse(listing.transform, listing.loading, mode=mode)
    size = fused.size()
    if size is None:
        raise NotFused("samples are of different sizes, as their pictures are")
    return fused, size


def refuse_other_samples(source: FusedSource, length: int) -> None:
    """Raise `NotFused` where samples that are written into a batch are not the dataset's own."""
    both = Target(torch.empty((2, 3, source.height, source.width), dtype=source.kind, device="cpu"))
    level = source.fused.finish.level()
    bar = (0.0 if source.fused.exact else MEAN_BAR) * level

    def unlike(rest: Any, own: Any) -> str | None:
        distance = (both.tensor[0].double() - both.tensor[1].double()).abs().mean(dim=(1, 2))
        if bool((distance > bar).any()):
            return f"differs from the dataset's own by {float((distance / level).max()):.2f} levels of 255 on average"
        return unlike_values(rest, own)

    compared = CannotFollow("it was compared")
    refuse_unlike(
        lambda index: source.begin(index, index, both, 0),
        lambda index: source.finish(index, index, both, 1, compared),
        length,
        unlike,
    )
    source.fused.elsewhere.clear()


def unlike_values(sample: Any, own: Any) -> str | None:
    """What is wrong with a sample, given the dataset's own; None: nothing."""
    return None if alike(sample, own) else "is not the same under the same random numbers"


def refuse_unlike(make: Make, own: Make, length: int, unlike: Unlike = unlike_values, *, seconds: float = math.inf) -> None:
    """Raise `NotFused` where samples from all over the dataset that ``make`` makes are not its own, or too few could be compared.
    After so many ``seconds`` no more are compared than have to be.

    A sample that ``make`` cannot make is left to the dataset's own code; it says nothing of either, and is not counted.
    """
    indices, compared, not_made, begun = spread(length, TRIED), 0, "", time.perf_counter()
    for index in (index for first in (0, 2, 1, 3) for index in indices[first::4]):  # the first few come from everywhere already
        if compared == COMPARED or (compared >= LEAST_COMPARED and time.perf_counter() - begun > seconds):
            return
        with seeded(index):
            sample, error = Outcome.of(make, index)
        with seeded(index):
            own_sample, own_error = Outcome.of(own, index)
        if error is not None:
            not_made = not_made or f" (sample {index}: {type(error).__name__}: {error})"
            continue
        if own_error is not None:
            error_text = f"{type(own_error).__name__} ({own_error})"
            raise NotFused(f"the dataset's own code raises {error_text} for sample {index}, which the call makes")
        why = unlike(sample, own_sample)
        if why is not None:
            raise NotFused(f"sample {index} {why}")
        compared += 1
    if compared < min(LEAST_COMPARED, length):
        raise NotFused(
            f"of {len(indices)} samples that were tried, {compared} could be compared with what the dataset's own code makes of "
            f"them{not_made}"
        )


def alike(sample: Any, expected: Any) -> bool:
    """Values that can be compared, are; the user's own types are taken for alike."""
    if type(sample) is not type(expected) or type(sample) is stand_in.PicturePlace:
        return type(sample) is type(expected)
    if isinstance(sample, dict):
        return sample.keys() == expected.keys() and all(alike(value, expected[key]) for key, value in sample.items())
    if isinstance(sample, (tuple, list)):
        return len(sample) == len(expected) and all(map(alike, sample, expected))
    if isinstance(sample, torch.Tensor):
        return torch.equal(sample, expected)
    if isinstance(sample, (np.ndarray, Image.Image)):
        return np.array_equal(np.asarray(sample), np.asarray(expected))
    return not isinstance(sample, (int, float, str, bytes)) or sample == expected or sample != sample
