"""While a sample is made, what its code opens by `Image.open` is put off: see `deferred_picture`. And some of torchvision's
operations are native code's: see `native_operations`."""

from __future__ import annotations

import io
import threading
import weakref
from typing import Any

from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

from pipefix.kernels.errors import BadPicture
from pipefix.kernels.kernel import Kernel
from pipefix.kernels.picture import Arithmetic
from pipefix.loader.fusing.deferred_picture import DeferredFile, DeferredPicture, EncodedPicture
from pipefix.loader.fusing.native_operations import Place, native_operations


class Deferral:
    """Entered for each sample, by one thread at a time: what this thread opens meanwhile is put off, and nobody else's."""

    def __init__(self, kernel: Kernel, arithmetic: Arithmetic) -> None:
        self.kernel, self.arithmetic = kernel, arithmetic
        self.views = 1
        """Pictures that were made of one file in the sample before."""
        self.failed = False
        """A file could not be decoded where pixels were looked at, rather than where they would have been without us."""
        self.pictures: list[weakref.ref[DeferredPicture]] = []
        self._most = 0

    def __enter__(self) -> Deferral:
        self.failed, self._most = False, 0
        _others.begin()
        _here.deferral = self
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        _here.deferral = None
        _others.end()
        self.views = self._most or self.views
        pictures, self.pictures = self.pictures, []
        if kind is not None:
            return
        # What the sample holds has its pixels: whoever gets it may be another thread, or look at it tomorrow.
        for known in pictures:
            picture = known()
            if type(picture) is DeferredPicture:
                picture.decode()

    def noted(self, picture_count: int) -> None:
        self._most = max(self._most, picture_count)

    def read(self, picture: JpegImageFile) -> EncodedPicture | None:
        """The file's bytes, where the kernel decodes as Pillow does."""
        file = picture.fp
        if file is None or len(picture.tile) != 1 or picture.decoderconfig:
            return None
        if type(file) is io.BytesIO:
            data = file.getvalue()
        else:
            file.seek(0)
            data = file.read()
        if picture._exclusive_fp:
            file.close()  # as Pillow does once it has decoded what it opened itself
        picture.fp = io.BytesIO(data)
        try:
            header = self.kernel.header(data)
        except BadPicture:
            return None
        same = (header.width, header.height) == picture.size and header.components == (3 if picture.mode == "RGB" else 1)
        return EncodedPicture(data, header.width, header.height, self) if same and header.plain else None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "pictures": []}


_here = threading.local()


def _kernel_here() -> Kernel | None:
    """Of the sample that this thread makes."""
    deferral: Deferral | None = getattr(_here, "deferral", None)
    return None if deferral is None else deferral.kernel


def _opened(*args: Any, **named: Any) -> Any:
    """Stands in the place of `Image.open`."""
    picture = _others.own(0)(*args, **named)
    deferral = getattr(_here, "deferral", None)
    if deferral is not None and type(picture) is JpegImageFile and picture.mode in ("RGB", "L"):
        picture.__class__ = DeferredFile
        vars(picture)["_deferral"] = deferral
    return picture


class _Others:
    """What stands in the place of others' functions, as long as any thread makes a sample."""

    def __init__(self) -> None:
        self._turn, self._entered = threading.Lock(), 0
        self._places = [(Place(Image, "open"), _opened), *native_operations(_kernel_here)]
        self._own: list[Any] = []

    def own(self, number: int) -> Any:
        """The function that stood there."""
        return self._own[number]

    def begin(self) -> None:
        with self._turn:
            self._entered += 1
            if self._entered == 1:
                self._own = [place.get() for place, _ in self._places]
                for place, function in self._places:
                    place.put(function)

    def end(self) -> None:
        with self._turn:
            self._entered -= 1
            if not self._entered:
                for (place, _), own in zip(self._places, self._own, strict=True):
                    place.put(own)


_others = _Others()
