"""Which stage a call of the user's own belongs to, told by what it is handed and what it gives back.

Handed pixels, it augments; handed bytes, it decodes. Handed only an index, a path or a key it is judged by its result: bytes
mean it read, pixels that it loaded. Text and lists say nothing by themselves: then it counts what the sample has been through.
"""

from __future__ import annotations

import functools
import inspect
import io
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from types import FunctionType
from typing import Any

from pipefix.hooks.charges import OWN_BEFORE, OWN_DECODED, OWN_RAW
from pipefix.vocabulary.stage import AUGMENT, DECODE, STORAGE, Stage
from pipefix.vocabulary.user_modules import is_users

_RAW = (bytes, bytearray, memoryview, io.BytesIO)
_ARRAYS = {"numpy", "torch"}
_OF_FRAMES, _FRAMES = {"av", "decord", "SimpleITK"}, {"VideoFrame", "AudioFrame", "NDArray", "Image"}
"""Libraries whose decoded values are neither arrays nor Pillow's images, and what they call them."""
_LOOK_AT = 8
"""How many elements of a list or dict decide what it holds."""

_LONGEST_KEY = 128


def is_lazy(function: Any) -> bool:
    """Generators and coroutines return before they work, so timing the call would say nothing."""
    return inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def is_users_function(value: Any) -> bool:
    return isinstance(value, FunctionType) and is_users(value.__module__) and not is_lazy(value)


_ARRAY, _CONTAINER = "array", "container"
"""What `_kind_of` says of types whose values have to be looked at."""


def data_stage(values: Iterable[Any], *, nested: bool = False) -> Stage | None:
    """What a call that is handed ``values`` does, by the first that is bytes or pixels; None where none is (an index, a path)."""
    for value in values:
        kind = _kind_of(type(value))  # type: ignore[arg-type]  # a class can be hashed
        if kind is None:
            continue
        if kind is _ARRAY:
            dimensions = value.ndim
            if dimensions:
                return DECODE if dimensions == 1 and str(value.dtype).endswith("uint8") else AUGMENT
        elif kind is not _CONTAINER:
            return kind  # type: ignore[no-any-return]
        elif not nested:
            stage = data_stage(_first(value), nested=True)
            if stage is not None:
                return stage
    return None


@functools.lru_cache(4096)
def _kind_of(kind: type) -> Any:
    """What a call does that is handed such values, `_ARRAY` or `_CONTAINER`; None where they tell nothing. It is asked for every
    argument of every call, so it is found out once a type."""
    if issubclass(kind, _RAW):
        return DECODE
    libraries = {str(base.__module__).partition(".")[0] for base in kind.__mro__}  # those of subclasses too: MetaTensor, tv_tensors
    if libraries & _ARRAYS and hasattr(kind, "dtype") and hasattr(kind, "ndim"):
        return _ARRAY
    if kind.__name__ in _FRAMES if libraries & _OF_FRAMES else "PIL" in libraries and hasattr(kind, "size"):
        return AUGMENT
    return _CONTAINER if issubclass(kind, (dict, list, tuple)) else None


def _first(value: Any) -> Any:
    """The first elements of a container, read past whatever a subclass does when it is asked for them."""
    if isinstance(value, dict):
        return islice(dict.values(value), _LOOK_AT)
    if isinstance(value, list):
        return list.__getitem__(value, slice(_LOOK_AT))
    return tuple.__getitem__(value, slice(_LOOK_AT)) if isinstance(value, tuple) else ()


UNKNOWN: Any = object()
"""The answer where only making the call will tell."""
VALUES = (list, tuple, dict, set, str)
"""What own code makes of texts and numbers."""
_NUMBERS = (int, float, bool, complex, type(None))


class StageEvidence:
    """Remembers by name what results told of calls whose arguments told nothing."""

    def __init__(self) -> None:
        self.learned: dict[str, Stage | None] = {}

    def of(self, label: str, args: Sequence[Any], kwargs: Mapping[str, Any], phase: int) -> Any:
        """The stage of the call ``label`` with these arguments, or `UNKNOWN`. None: it is the user's own code and no piece of a
        stage."""
        values = (*args, *kwargs.values()) if kwargs else args
        stage = data_stage(values)
        by_key = stage is DECODE and (phase == OWN_BEFORE or label in self.learned) and _key(values)
        return self.learned.get(label, UNKNOWN) if stage is None or by_key else stage

    def learn(self, label: str, args: Sequence[Any], kwargs: Mapping[str, Any], phase: int, result: Any) -> None:
        """The first call of a kind whose arguments told nothing gave back ``result``."""
        self.learned[label] = _by_result(result, (*args, *kwargs.values()), phase)


def _key(values: Sequence[Any]) -> bytes:
    """Bytes that data are looked up by, as in LevelDB: the only data among these, and few. Empty where they are no key."""
    data = [value for value in values if data_stage([value]) is not None]
    return data[0] if len(data) == 1 and type(data[0]) is bytes and len(data[0]) <= _LONGEST_KEY else b""


def _by_result(result: Any, values: Sequence[Any], phase: int) -> Stage | None:
    if key := _key(values):
        return STORAGE if isinstance(result, _RAW[:3]) and len(result) > len(key) else DECODE
    stage = data_stage([result])
    if stage is DECODE:
        return STORAGE
    if stage is AUGMENT:
        return DECODE
    if all(isinstance(value, _NUMBERS) for value in values):
        return None
    if phase == OWN_DECODED:
        return AUGMENT
    # Before anything was read, texts lie in memory: what is made of them is decoded.
    of_text = isinstance(result, VALUES) and any(isinstance(value, str) for value in values)
    return DECODE if phase == OWN_RAW or of_text else None


_TORCH_DRAWS = frozenset({"rand", "randn", "randint", "rand_like", "randn_like", "randint_like", "randperm", "normal", "bernoulli"})


def draws_random(function: Any, owner: Any) -> bool:
    """Whether a function of numpy or torch, the method of ``owner`` if it is one, draws random numbers."""
    if any(base.__module__.startswith("numpy.random") for base in type(owner).__mro__):
        return True
    return getattr(function, "__name__", "") in _TORCH_DRAWS and "_VariableFunctions" in getattr(function, "__qualname__", "")
