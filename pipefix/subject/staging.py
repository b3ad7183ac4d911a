"""Which stage a piece of the user's own code belongs to, by what it is handed; and whether it is the user's own at all."""

from __future__ import annotations

import inspect
import io
import sys
import sysconfig
from collections.abc import Iterable
from functools import lru_cache
from itertools import islice
from pathlib import PurePath
from types import FunctionType
from typing import Any

from pipefix.vocabulary.stage import Stage

_LIBRARY_FOLDERS = tuple({sysconfig.get_path(key) for key in ("stdlib", "platstdlib", "purelib", "platlib")})
_INSTALLED = {"site-packages", "dist-packages"}
_RAW = (bytes, bytearray, memoryview, io.BytesIO)
_LOOK_AT = 8
"""How many elements of a list or dict decide what it holds."""


def is_users(name: Any) -> bool:
    """Whether a module is the user's own: neither a library's, nor ours, nor built in."""
    if name == "__main__":
        return True
    if not isinstance(name, str) or name.partition(".")[0] == "pipefix":
        return False
    file = getattr(sys.modules.get(name), "__file__", None)
    return isinstance(file, str) and not _is_librarys(file)


@lru_cache(maxsize=1024)
def _is_librarys(file: str) -> bool:
    return file.startswith(_LIBRARY_FOLDERS) or not _INSTALLED.isdisjoint(PurePath(file).parts)


def is_lazy(function: Any) -> bool:
    """Generators and coroutines return before they work, so timing the call would say nothing."""
    return inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def is_users_function(value: Any) -> bool:
    return isinstance(value, FunctionType) and is_users(value.__module__) and not is_lazy(value)


def data_stage(values: Iterable[Any]) -> Stage | None:
    """What a call that is handed ``values`` does, by the first that is bytes or pixels; None where none is (an index, a path)."""
    return next((stage for value in values if (stage := _stage_of_one(value)) is not None), None)


def _stage_of_one(value: Any, nested: bool = False) -> Stage | None:
    kind = type(value)
    if kind in (int, str, float, bool, type(None)):
        return None
    if isinstance(value, _RAW):
        return Stage.DECODE
    module = str(kind.__module__).partition(".")[0]
    if module in ("numpy", "torch", "torchvision") and hasattr(value, "dtype") and hasattr(value, "ndim"):
        raw = value.ndim == 1 and str(value.dtype).endswith("uint8")
        return Stage.DECODE if raw else Stage.AUGMENT if value.ndim else None
    if module == "PIL" and hasattr(value, "size"):
        return Stage.AUGMENT
    if not nested:
        inner = (_stage_of_one(one, nested=True) for one in _first(value))
        return next((stage for stage in inner if stage is not None), None)
    return None


def _first(value: Any) -> Any:
    """The first elements of a container, read past whatever a subclass does when it is asked for them."""
    if isinstance(value, dict):
        return islice(dict.values(value), _LOOK_AT)
    if isinstance(value, list):
        return list.__getitem__(value, slice(_LOOK_AT))
    return tuple.__getitem__(value, slice(_LOOK_AT)) if isinstance(value, tuple) else ()
