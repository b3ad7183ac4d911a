"""Fuses part of a dataset's transforms, where they cannot be one call; the user's own code does the rest.

The user's transforms run as they are, on pictures of Pillow's whose decoding is put off (`deferred_picture`): crops, a resize and
flips in front of the first operation that looks at pixels are done with decoding, by one native call. Where the list goes on from
pictures to tensors (`ToTensor`, `Normalize` …) another call makes that and writes the sample where the batch wants it; operations
after it run on what was written. All of it draws the numbers that the list itself would draw, and is equal to the bit.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image

from pipefix.kernels.kernel import native
from pipefix.kernels.request import Target
from pipefix.loader.fusing import stand_in
from pipefix.loader.fusing.child_process import in_child_process
from pipefix.loader.fusing.deferral import Deferral, DeferredBatchReads, DeferredReads
from pipefix.loader.fusing.deferred_picture import DeferredPicture
from pipefix.loader.fusing.errors import CannotFollow, NotFused, found_once
from pipefix.loader.fusing.listing import copied_with_list
from pipefix.loader.fusing.pixel_difference import spread
from pipefix.loader.fusing.recipe import Layout
from pipefix.loader.fusing.recognise import finish_of, in_three, pillow_order, places_pixels
from pipefix.loader.fusing.sample_random import seeded
from pipefix.loader.fusing.source import FusedSource, refuse_other_samples, refuse_unlike, settings_of
from pipefix.loader.policy.read_policy import drawing, reads_batches
from pipefix.vocabulary.held_transforms import held_transforms
from pipefix.vocabulary.quantity import counted

Look = tuple[stand_in.Path, int, int]
LEAST_GAIN = 1.05
"""Of CPU time, below which the dataset's own code is left to itself."""
TIMED = 4
"""Samples by which both ways are timed."""
LONG_S = 3.0
"""Seconds after which no more samples are tried than have to be."""
TIMES = 2
"""Each sample that is timed is made so often in each way, and the quickest counts."""


class ListInPart:
    """A transform list: operations on pictures, values, and operations on the tensor."""

    exact = True

    def __init__(self, transform: Any) -> None:
        """Raises `NotFused` where no part of it goes from pictures to tensors."""
        self.before, self.values, self.after = in_three(transform)
        self.finish, self.kind = finish_of(self.values)
        self.elsewhere: Counter[str] = Counter()

    def picture(self, picture: Any) -> Image.Image:
        """What comes to the values. Raises `CannotFollow`."""
        for operation in self.before:
            picture = operation(picture)
        if not isinstance(picture, Image.Image) or picture.mode != "RGB":
            kind = f"a picture in {picture.mode}" if isinstance(picture, Image.Image) else f"a {type(picture).__name__}"
            raise CannotFollow(f"what its transforms make into a tensor is {kind}, not one of Pillow's in RGB")
        return picture

    def write(self, picture_in: Any, target: Target, place: int, deferral: Deferral) -> None:
        """Sample ``place``, of what enters the list. Raises `CannotFollow`."""
        picture = self.picture(picture_in)
        if picture.size != (target.width, target.height):
            raise CannotFollow("a sample of another size")
        if type(picture) is DeferredPicture:
            picture.write(self.finish, target, place)
        else:
            cut = Layout(*picture.size).cut(deferral.arithmetic)
            deferral.kernel.pixels_into(np.asarray(picture), cut, self.finish, target, place)
        if not self.after:
            return
        row: Any = target.tensor[place].as_subclass(self.kind)
        sample = row
        for operation in self.after:
            sample = operation(sample)
        if sample is not row:
            if not isinstance(sample, torch.Tensor) or sample.shape != row.shape or sample.dtype != row.dtype:
                raise CannotFollow("a sample of another size or type")
            target.tensor[place].copy_(sample)

    def explain(self, kernel: str) -> str:
        """Which operation goes where."""
        own = next((place for place, operation in enumerate(self.before) if not places_pixels(operation)), len(self.before))
        steps = [f"decoding{_names(self.before[:own], ', ')} in one {kernel} call"]
        steps += [f"{_names(self.before[own:])} as written"] if self.before[own:] else []
        steps += [f"{_names(self.values)} in one call into the batch"]
        steps += [f"{_names(self.after)} there, as written"] if self.after else []
        return ", then ".join(steps)


def _names(operations: list[Any], before: str = "") -> str:
    return "".join(before + name for name in [", ".join(type(operation).__name__ for operation in operations)] if name)


class SourceInPart(FusedSource):
    """What batches are made from where only a part of the transforms is fused. One thread at a time calls `begin`."""

    draws = True
    """By code that is not known."""

    def __init__(self, dataset: Any, why_not_whole: str, deferral: Deferral, look: Look | None = None, gain: str = "") -> None:
        """Raises `NotFused` or `CannotFollow`, or what the user's code raises. ``look``: what was found before; ``gain``: what it
        was measured to be worth."""
        self.dataset, self.why_not_whole, self.deferral, self.gain = dataset, why_not_whole, deferral, gain
        chain, held = copied_with_list(dataset)
        self.fused: Any = ListInPart(held.value)
        vars(held.owner)[held.name] = self._transformed
        self._copy = chain[0]
        self.kind = torch.uint8 if self.fused.finish.table is None else torch.float32
        self.look = look or self._look()
        self.path, self.width, self.height = self.look

    def __reduce__(self) -> Any:
        return SourceInPart, (self.dataset, self.why_not_whole, self.deferral, self.look)

    def _look(self) -> Look:
        """Where a sample has its picture, and the picture's width and height."""
        sample = self.begin(spread(len(self.dataset), 1)[0], 0, None, 0)
        return stand_in.paths(sample)[0], *self._size

    def _transformed(self, picture: Any) -> stand_in.PicturePlace:
        """Stands in the place of the transforms: what they make is written into the batch, or only its size is looked at."""
        self._calls += 1
        if self._target is None:
            self._size = self.fused.picture(picture).size
        else:
            self.fused.write(picture, self._target, self._place, self.deferral)
        return stand_in.PicturePlace(None)

    def begin(self, index: Any, key: int, target: Target | None, place: int) -> Any:
        self._target, self._place, self._calls = target, place, 0
        try:
            with drawing(key), self.deferral.sample() as put_off:
                sample = self._copy[index]
        finally:
            self._target = None
        if put_off.failed:
            raise CannotFollow("a file that could not be decoded")
        if self._calls != 1 or len(stand_in.paths(sample)) != 1:
            raise CannotFollow("a sample with another number of pictures")
        return sample

    def explain(self) -> str:
        others = self.fused.elsewhere
        rest = f" The dataset's own code made {counted(others.total(), 'sample')}" if others else ""
        rest += f", most of them because: {others.most_common(1)[0][0]}." if others else ""
        steps = self.fused.explain(self.deferral.kernel.name)
        return f"In part, as {self.why_not_whole}: {steps}. Samples equal the dataset's own{self.gain}.{rest}"


class ReadInPart:
    """A loader whose samples are made by the dataset's own code, on pictures whose decoding is put off."""

    def __init__(self, dataset: Any, deferral: Deferral, why: str, gain: str) -> None:
        self.reads = (DeferredBatchReads if reads_batches(dataset) else DeferredReads)(dataset, deferral)
        self.why, self.gain = why, gain

    def explain(self) -> str:
        return (
            f"Fused in part, as {self.why}: the dataset's own code runs as it is; of a JPEG that it opens with Pillow, "
            f"decoding and what it crops, resizes and flips are one {self.reads.deferral.kernel.name} call. Samples and random "
            f"numbers are as without{self.gain}."
        )


# -- whether it is worth it ------------------------------------------------------------------------------------------------


def in_part(dataset: Any, known: dict[Any, Any], why: str) -> SourceInPart | ReadInPart:
    """The best that can be done for a dataset that is not fused as a whole because of ``why``, tried on samples from all over it.
    Raises `NotFused`.

    ``known``: what was found out before. It is tried in a process of its own: what the dataset opens at its first sample (a
    database) is not open here when workers are forked, and what it remembers of a trial goes with that process.
    """
    kernel, arithmetic = native(), pillow_order()
    if kernel is None or arithmetic is None or not isinstance(vars(Image.Image).get("im"), property):
        raise NotFused(why)  # before Pillow 11.1 pixels are a plain attribute, of which nobody is told that it is looked at
    deferral = Deferral(kernel, arithmetic)
    key = ("in part", type(dataset), *(settings_of(held.value) for held in held_transforms(dataset)))

    def look() -> Any:
        try:
            return in_child_process(partial(_tried, dataset, deferral, why))
        except NotFused as error:
            raise error if str(error).startswith(why) else NotFused(f"{why}; in part neither: {error}") from None

    like, gain = found_once(known, key, look)
    if like is None:
        return ReadInPart(dataset, deferral, why, gain)
    return SourceInPart(dataset, why, deferral, like, gain)


def _tried(dataset: Any, deferral: Deferral, why: str) -> tuple[Any, str]:
    """What `SourceInPart` is to be given, or None for `ReadInPart`, and what it gains. Raises `NotFused`."""
    length = len(dataset)
    try:
        source = SourceInPart(dataset, why, deferral)
        refuse_other_samples(source, length)
    except Exception:  # noqa: BLE001, S110 - the user's code, in the way of what we did to it: it is tried as it is next
        pass
    else:
        target = Target(torch.empty((1, 3, source.height, source.width), dtype=source.kind, device="cpu"))
        return source.look, _worth(dataset.__getitem__, lambda index: source.begin(index, index, target, 0), length, why)
    reads = DeferredReads(dataset, deferral)
    batched = getattr(dataset, "__getitems__", None)
    own = dataset.__getitem__ if batched is None else lambda index: batched([index])
    read = partial(reads._made, own)
    try:
        refuse_unlike(read, own, length, seconds=LONG_S)
    except NotFused as error:
        raise NotFused(f"{why}; in part neither, as {error}") from None
    return None, _worth(own, read, length, why)


def _worth(own: Callable[[int], Any], read: Callable[[int], Any], length: int, why: str) -> str:
    """CPU time of both ways, in words. Raises `NotFused` where it is as good as the same."""
    pairs: list[list[float]] = []
    begun = time.perf_counter()
    for index in spread(length, TIMED):
        if pairs and time.perf_counter() - begun > LONG_S:
            break
        with suppress(Exception):  # a sample that cannot be read says nothing of either way
            pairs.append([min(_timed(make, index) for _ in range(TIMES)) for make in (own, read)])
    before, after = (1000 * sum(times) / len(pairs) for times in zip(*pairs, strict=True)) if pairs else (0.0, 0.0)
    cpu_times = f"{after:.2f} ms of CPU time a sample instead of {before:.2f} ms"
    if before < LEAST_GAIN * after or not pairs:
        raise NotFused(f"{why}; made in part by native calls, samples take {cpu_times}")
    return f", and take {cpu_times}"


def _timed(make: Callable[[int], Any], index: int) -> float:
    with seeded(index):
        begun = time.thread_time()
        make(index)
        return time.thread_time() - begun
