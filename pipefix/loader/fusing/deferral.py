"""Puts off decoding while a sample is made: patches `Image.open`, and slow functions of torchvision, for its thread alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

from pipefix.loader.fusing.deferred_picture import DeferredFile, DeferredPicture, PutOff
from pipefix.loader.fusing.native_operations import Function, Place, native_operations
from pipefix.loader.policy.read_policy import StandsForDataset
from pipefix.vocabulary.random_state import RandomState

if TYPE_CHECKING:
    from pipefix.kernels.native import NativeKernel
    from pipefix.kernels.request import Arithmetic


class Deferral:
    """Puts decoding off, sample by sample: of what the thread opens that makes one, and of nobody else's."""

    def __init__(self, kernel: NativeKernel, arithmetic: Arithmetic) -> None:
        self.kernel, self.arithmetic = kernel, arithmetic
        self.views = 1
        """Pictures that were made of one file in the latest sample."""

    @contextmanager
    def sample(self) -> Iterator[PutOff]:
        """While a sample is made. Any number of threads may make one each."""
        put_off = PutOff(self.kernel, self.arithmetic, self.views)
        _others.begin()
        _here.put_off = put_off
        try:
            yield put_off
        finally:
            _here.put_off = None
            _others.end()
            self.views = put_off.most_views or self.views
        # What the sample holds has its pixels: whoever gets it may be another thread, or look at it tomorrow.
        for known in put_off.pictures:
            picture = known()
            if type(picture) is DeferredPicture:
                picture.as_pillows()


class _Here(threading.local):
    put_off: PutOff | None = None
    """Of the sample that this thread makes."""


_here = _Here()


def _opened(*args: Any, **named: Any) -> Any:
    """Stands in the place of `Image.open`."""
    picture = _others.own[0](*args, **named)
    put_off = _here.put_off
    if put_off is not None and type(picture) is JpegImageFile and picture.mode in ("RGB", "L"):
        picture.__class__ = DeferredFile
        vars(picture)["_put_off"] = put_off
    return picture


class _Others:
    """What stands in the place of others' functions, as long as any thread makes a sample."""

    def __init__(self) -> None:
        self._turn, self._entered = threading.Lock(), 0
        others = native_operations(lambda: None if _here.put_off is None else _here.put_off.kernel)
        self._places: list[tuple[Place, Function]] = [((vars(Image), "open"), _opened), *others]
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
        put_off: PutOff | None = None
        try:
            with self.deferral.sample() as put_off:
                sample = read(indices)
            if not put_off.failed:
                return sample
        except Exception:
            if put_off is None or not put_off.failed:
                raise
        before.restore()
        return read(indices)


class DeferredBatchReads(DeferredReads):
    """The same where the dataset reads whole batches itself."""

    def __getitems__(self, indices: Any) -> Any:
        return self._made(self.dataset.__getitems__, indices)
