"""Pictures that a dataset's `__getitem__` opens itself: the function again, with stand-ins under the names it opens them by.

The user's class and module stay as they are: a copy of the dataset gets a class of its own, whose function looks names up in a copy
of the module's.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any, Generic

import PIL
import torchvision
from PIL import Image
from torchvision import io as tvio
from torchvision.datasets import folder

from pipefix.loader.fusing.picture_loading import PictureLoading, folder_backend
from pipefix.loader.fusing.stand_in import PictureStandIn, Touched, loaded
from pipefix.vocabulary.attributes import Overlaid


class OpenedStandIn(PictureStandIn):
    """What `Image.open` gives: to be converted to RGB, and nothing else."""

    __slots__ = ()

    def convert(self, mode: Any = None, *more: Any) -> PictureStandIn:
        if mode != "RGB" or more:
            raise Touched(f"converts pictures to {mode!r}")
        return PictureStandIn(self.what)

    def __enter__(self) -> OpenedStandIn:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def _open(path: Any, *more: Any) -> OpenedStandIn:
    if more or not (isinstance(path, str) or hasattr(path, "__fspath__")):
        raise Touched("opens pictures from something else than a path")
    return OpenedStandIn(path)


def _read(path: Any, mode: Any = tvio.ImageReadMode.UNCHANGED, *more: Any) -> PictureStandIn:
    if more or mode not in (tvio.ImageReadMode.RGB, "RGB"):
        raise Touched("reads pictures as they are, not as RGB")
    return loaded(path)


def _known(value: Any) -> tuple[Any, PictureLoading] | None:
    """What stands in the place of a name's value."""
    pillow, tensors = PictureLoading("pil"), PictureLoading("tensor")
    if value is Image.open:
        return _open, pillow
    if value is Image:
        return Overlaid(Image, open=_open), pillow
    if value is PIL:
        return Overlaid(PIL, Image=Overlaid(Image, open=_open)), pillow
    if value is folder.pil_loader or (value is folder.default_loader and folder_backend() == "PIL"):
        return loaded, pillow
    if value is tvio.read_image or value is tvio.decode_image:
        return _read, tensors
    if value is tvio:
        return Overlaid(tvio, read_image=_read, decode_image=_read), tensors
    if value is torchvision:
        return Overlaid(torchvision, io=Overlaid(tvio, read_image=_read, decode_image=_read)), tensors
    return None


def _subclass(kind: type, names: dict[str, Any]) -> type:
    """Without a call of the user's own ``__init_subclass__``, which may keep a register or ask for arguments: what it is derived
    from at first is the nearest class that has none."""
    base = next(one for one in kind.__mro__ if _told_of_subclasses(one) in (object, Generic))
    made: type = type.__new__(type(kind), kind.__name__, (base,), names)
    if base is not kind:
        made.__bases__ = (kind,)
    return made


def _told_of_subclasses(kind: type) -> type:
    """The class whose ``__init_subclass__`` is called for subclasses of this one."""
    return next(one for one in kind.__mro__ if "__init_subclass__" in vars(one))


def with_stand_ins(owner: Any) -> PictureLoading | None:
    """Give ``owner`` (a copy) a `__getitem__` that opens nothing; None where it is not seen what it opens pictures with."""
    function = getattr(type(owner), "__getitem__", None)
    if not isinstance(function, FunctionType):
        return None
    names = {name: known for name in function.__code__.co_names if (known := _known(function.__globals__.get(name))) is not None}
    openings = {loading for _, loading in names.values()}
    if len(openings) != 1:
        return None
    scope = {**function.__globals__, **{name: value for name, (value, _) in names.items()}}
    again = FunctionType(function.__code__, scope, function.__name__, function.__defaults__, function.__closure__)
    again.__kwdefaults__ = function.__kwdefaults__
    kind: type = type(owner)
    try:
        owner.__class__ = _subclass(kind, {"__getitem__": again, "__module__": kind.__module__})
    except TypeError:  # memory of another layout
        return None
    return openings.pop()
