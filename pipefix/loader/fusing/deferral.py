"""Puts off decoding while a sample is made: patches `Image.open`, and slow functions of torchvision, for its thread alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

from pipefix.loader.fusing.deferred_picture import DeferredFile, DeferredPicture, PutOff
from pipefix.loader.fusing.native_operations import Function, Place, native_operations
from pipefix.loader.policy.read_policy import StandsForDataset
from pipefix.vocabulary.random_state import RandomState

if TYPE_CHECKING:
    from pipefix.kernels.native import NativeKernel


class Deferral(PutOff):
    """Entered for each sample, by one thread at a time: what this thread opens meanwhile is put off, and nobody else's."""

    def __enter__(self) -> Deferral:
        self.failed, self.most_views = False, 0
        _others.begin()
        _here.deferral = self
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        _here.deferral = None
        _others.end()
        self.views = self.most_views or self.views
        pictures, self.pictures = self.pictures, []
        if kind is not None:
            return
        # What the sample holds has its pixels: whoever gets it may be another thread, or look at it tomorrow.
        for known in pictures:
            picture = known()
            if type(picture) is DeferredPicture:
                picture.decode()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "pictures": []}


_here = threading.local()


def _kernel_here() -> NativeKernel | None:
    """Of the sample that this thread makes."""
    deferral: Deferral | None = getattr(_here, "deferral", None)
    return None if deferral is None else deferral.kernel


def _opened(*args: Any, **named: Any) -> Any:
    """Stands in the place of `Image.open`."""
    picture = _others.own[0](*args, **named)
    deferral = getattr(_here, "deferral", None)
    if deferral is not None and type(picture) is JpegImageFile and picture.mode in ("RGB", "L"):
        picture.__class__ = DeferredFile
        vars(picture)["_deferral"] = deferral
    return picture


class _Others:
    """What stands in the place of others' functions, as long as any thread makes a sample."""

    def __init__(self) -> None:
        self._turn, self._entered = threading.Lock(), 0
        self._places: list[tuple[Place, Function]] = [((vars(Image), "open"), _opened), *native_operations(_kernel_here)]
        self.own: list[Any] = [names[key] for (names, key), _ in self._places]
        """The functions that stood there."""
        self._over: list[Any] = [None] * len(self._places)
        """What somebody has put over ours while a sample was made, and may call ours: it stays as it is."""

    def begin(self) -> None:
        with self._turn:
            self._entered += 1
            if self._entered == 1:
                for at, ((names, key), function) in enumerate(self._places):
                    if names[key] is not function and names[key] is not self._over[at]:
                        self.own[at], names[key] = names[key], function

    def end(self) -> None:
        with self._turn:
            self._entered -= 1
            if not self._entered:
                for at, ((names, key), function) in enumerate(self._places):
                    if names[key] is function:
                        names[key] = self.own[at]
                    else:
                        self._over[at] = names[key]


_others = _Others()


class DeferredReads(StandsForDataset):
    """A dataset that is read by its own code, while the decoding of the pictures that this opens is put off."""

    def __init__(self, dataset: Any, deferral: Deferral) -> None:
        self.dataset, self.deferral = dataset, deferral

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        return self._made(self.dataset.__getitem__, index)

    def _made(self, read: Callable[[Any], Any], indices: Any) -> Any:
        """Once more without us where a file could not be decoded, so that the error is met where it belongs."""
        before = RandomState()
        try:
            with self.deferral:
                sample = read(indices)
            if not self.deferral.failed:
                return sample
        except Exception:
            if not self.deferral.failed:
                raise
        before.restore()
        return read(indices)


class DeferredBatchReads(DeferredReads):
    """The same where the dataset reads whole batches itself."""

    def __getitems__(self, indices: Any) -> Any:
        return self._made(self.dataset.__getitems__, indices)
