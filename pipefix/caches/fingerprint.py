"""Digests of a dataset's code and of what it holds, which tell whether it is the one that a cache was made from.

A dataset of a million files holds a million paths. Lists as long as the dataset itself are therefore digested part by part, so
that files added at the end, or a label mended in the middle, change only the parts that they belong to.
"""

from __future__ import annotations

import array as arrays
import hashlib
import os
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType, NoneType
from typing import Any

import msgspec
import numpy as np

from pipefix.caches import code_digest
from pipefix.vocabulary.attributes import attributes
from pipefix.vocabulary.held_transforms import names_transforms

_DEEPEST = 6
_STEP = 4096
_MOST_BYTES = 64 << 20
"""Of an array, or of 4,096 rows of a long one, about as much is digested, evenly: it may be a file of any size that is mapped."""
_CLIENTS = frozenset({
    "requests", "urllib3", "http", "ssl", "socket", "botocore", "boto3", "s3transfer", "fsspec", "s3fs", "gcsfs", "adlfs",
    "aiohttp", "aiobotocore", "httpx", "obstore", "s3torchconnector", "threading", "asyncio", "concurrent",
})  # fmt: skip
"""Libraries whose objects change with every request: connections are no state of a dataset, only where they lead is."""
_SAY_ALL = frozenset({"builtins", "datetime", "decimal", "numpy", "numpy.dtypes", "operator", "torch"})
"""Modules whose values without attributes are told apart by their repr."""
_SKIPPED = ("_pipefix", "_cache", "_lock")
_CONTENTS = ("_modules", "_parameters", "_buffers", "_fingerprint")
"""What torch's modules compute with, and what Hugging Face's datasets tell of their rows."""


class Fingerprint:
    """Of a dataset of ``length`` samples, whose files may lie below another of these ``roots`` tomorrow."""

    def __init__(self, dataset: Any, length: int | None, roots: Collection[str | None] = ()) -> None:
        self._roots = sorted({root.rstrip(os.sep) for root in (*roots, *_own_roots(dataset)) if root}, key=len, reverse=True)
        self._lists: list[tuple[str, Any]] = []
        self._is_state: Callable[[str], bool] = _is_state
        self.attributes: dict[str, str] = {}
        """Digests by name of what the dataset holds, its long lists left out."""
        held = list(_attributes(dataset, ""))
        picking = tuple(name.removesuffix("indices") for name, _ in held if name == "indices" or name.endswith(".indices"))
        for name, value in held:
            # Of what is picked from by indices, as a Subset does, an element's place is not that of its sample.
            self._length = None if name.startswith(picking) and not name.endswith("indices") else length
            digest = hashlib.sha256()
            self._walk(name, value, digest, 0, {})
            self.attributes[name] = digest.hexdigest()[:16]
        self._length = None  # what long lists hold is digested with them, however long that is

    def part(self, start: int, stop: int, but: Collection[str] = ()) -> str:
        """Digest of what the long lists, ``but`` those of these names, hold for these samples."""
        digest = hashlib.sha256()
        for name, held in self._lists:
            if name not in but:
                digest.update(name.encode("utf-8", "surrogateescape"))
                for at in range(start, stop, _STEP):
                    self._elements(name, held[at : min(at + _STEP, stop)], digest, 0, {})
        return digest.hexdigest()

    def rows(self, indices: Sequence[int]) -> dict[str, str]:
        """Digests of these elements of each long list."""
        digests = {}
        for name, held in self._lists:
            digest = hashlib.sha256()
            self._elements(name, [held[index] for index in indices if index < len(held)], digest, 0, {})
            digests[name] = digest.hexdigest()
        return digests

    def _walk(self, name: str, value: Any, digest: Any, depth: int, visited_ids: dict[int, int]) -> None:
        digest.update(f"{type(value).__qualname__};".encode("utf-8", "surrogateescape"))
        if type(value) in weakref.ProxyTypes:
            return  # what it stands for is somebody else's, and may be gone
        if isinstance(value, (NoneType, bool, int, float, complex, str, bytes, date, Enum, os.PathLike)):
            plain = os.fspath(value) if isinstance(value, os.PathLike) else value
            digest.update(repr(self._below(plain)).encode("utf-8", "surrogateescape"))
            return
        if id(value) in visited_ids:  # which one it is once more: labels may be objects that samples share
            digest.update(f"{visited_ids[id(value)]};".encode())
            return
        if depth > _DEEPEST or isinstance(value, ModuleType):
            return
        visited_ids[id(value)] = len(visited_ids)
        if type(value).__module__.partition(".")[0] in _CLIENTS:
            where = [getattr(value, key, None) for key in ("url", "bucket", "prefix", "path")]
            named = [place for place in where if isinstance(place, (str, os.PathLike))]
            digest.update(repr(named).encode("utf-8", "surrogateescape"))
            return
        if isinstance(value, (FunctionType, MethodType, BuiltinFunctionType, type)):
            digest.update(f"{value.__qualname__}{code_digest.digest(value)}".encode())
        elif hasattr(value, "iloc") and hasattr(value, "to_numpy"):  # a table or column of pandas
            for column, values in [("its index", value.index), *(value.items() if value.ndim == 2 else [("its values", value)])]:
                digest.update(repr(column).encode("utf-8", "surrogateescape"))
                self._array(f"{name}.{column}", values.to_numpy(), digest, depth, visited_ids)
        elif type(value).__module__.partition(".")[0] in ("pyarrow", "polars") and hasattr(value, "slice"):
            for column, values in _of_arrow(value.to_arrow() if hasattr(value, "to_arrow") else value):
                digest.update(f"{column!r}{values.type}{len(values)}".encode("utf-8", "surrogateescape"))
                self._array(f"{name}.{column}", _spread(values), digest, depth, visited_ids)
        elif hasattr(value, "dtype") and hasattr(value, "shape"):
            self._array(name, value, digest, depth, visited_ids)
        elif isinstance(value, (bytearray, arrays.array)):
            self._array(name, np.asarray(value), digest, depth, visited_ids)
        elif self._is_list(value):
            self._lists.append((name, value))
        elif isinstance(value, dict):
            for key in value:
                digest.update(repr(key).encode("utf-8", "surrogateescape"))
                self._walk(f"{name}.{key!r}", value[key], digest, depth + 1, visited_ids)
        elif isinstance(value, (list, tuple, range)):
            for at in range(0, len(value), _STEP):
                self._elements(name, value[at : at + _STEP], digest, depth, visited_ids)
        elif isinstance(value, (set, frozenset)):
            self._elements(name, sorted(value, key=repr), digest, depth, visited_ids)
        else:
            self._object(name, value, digest, depth, visited_ids)

    def _object(self, name: str, value: Any, digest: Any, depth: int, visited_ids: dict[int, int]) -> None:
        if type(value).__module__.startswith("albumentations."):
            # They note what they drew last among their settings, and tell themselves what they are: but for some of the user's own.
            described = type(value).__qualname__
            with suppress(Exception):
                described = repr(value.to_dict()["transform"])
            digest.update(described.encode("utf-8", "surrogateescape"))
            return
        users = code_digest.digest(type(value))
        digest.update(users.encode())
        in_all = {**attributes(value), **getattr(value, "__dict__", {})}
        digest.update(b"" if in_all else _told(value).encode("utf-8", "surrogateescape"))
        for key, held in sorted(in_all.items()):
            # What libraries keep under private names is their own business, but for what tells their contents.
            if self._is_state(key) and (users or not key.startswith("_") or key in _CONTENTS):
                digest.update(key.encode("utf-8", "surrogateescape"))
                self._walk(f"{name}.{key}", held, digest, depth + 1, visited_ids)

    def _array(self, name: str, values: Any, digest: Any, depth: int, visited_ids: dict[int, int]) -> None:
        if self._is_list(values):
            self._lists.append((name, values))
        else:
            self._elements(name, values, digest, depth, visited_ids)

    def _elements(self, name: str, values: Any, digest: Any, depth: int, visited_ids: dict[int, int]) -> None:
        if hasattr(values, "dtype"):
            array = _of_numpy(values)
            if not hasattr(array, "tobytes"):
                digest.update(repr(array).encode("utf-8", "surrogateescape"))
                return
            if not getattr(array.dtype, "hasobject", False) and array.dtype.kind != "U":
                digest.update(f"{array.dtype}{array.shape}".encode())
                flat = array.reshape(-1)
                every = max(1, array.nbytes // _MOST_BYTES)
                for at in range(0, len(flat), every * _STEP):
                    digest.update(flat[at : at + _STEP].tobytes())
                return
            digest.update(f"{array.shape}".encode())
            values = array.reshape(-1).tolist()  # texts: paths may lie below another root tomorrow
        values = list(values) if isinstance(values, range) else values
        try:
            text = msgspec.json.encode(values, enc_hook=_encoded, order="deterministic")  # sets have another order in every process
        except (TypeError, ValueError, RecursionError, UnicodeError, OverflowError):
            for place, value in enumerate(values):
                self._walk(f"{name}[{place}]", value, digest, depth + 1, visited_ids)
            return
        for root in self._roots:
            text = text.replace(b'"' + msgspec.json.encode(root)[1:-1] + os.sep.encode(), b'"')
        digest.update(text)

    def _below(self, value: Any) -> Any:
        """A path without the root that it lies below."""
        for root in self._roots if isinstance(value, str) else ():
            if value.rstrip(os.sep) == root:
                return ""
            if value.startswith(root + os.sep):
                return value[len(root) + 1 :]
        return value

    def _is_list(self, value: Any) -> bool:
        if self._length is None or self._length < 2 or not hasattr(value, "__len__"):
            return False
        is_array = hasattr(value, "dtype") and hasattr(value, "shape") and value.shape
        return bool(isinstance(value, (list, tuple, range)) or is_array) and len(value) == self._length


def _told(value: Any) -> str:
    """What a value without attributes says of itself, such as torch.float32 or slice(0, 3), unless that is its place in memory."""
    told = repr(value) if type(value).__module__ in _SAY_ALL else ""
    return "" if told.startswith("<") or " at 0x" in told else told


def _of_arrow(held: Any) -> list[tuple[str, Any]]:
    """The columns of a table, or the one that it is."""
    columns = list(zip(held.schema.names, held.columns, strict=True)) if hasattr(held, "schema") else [("its values", held)]
    return [(column, values) for column, values in columns if hasattr(values, "to_numpy")]


def _spread(values: Any) -> Any:
    """An arrow column as an array: whole, or of a large one so many rows, evenly."""
    every = max(1, values.nbytes // _MOST_BYTES)
    return (values if every == 1 else values.take(np.arange(0, len(values), every))).to_numpy(zero_copy_only=False)


def changed(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Names of what a dataset holds that is not what it was. What came to it since is made by its samples, or by other code."""
    return [name for name, digest in then.items() if now.get(name) != digest]


def digest_of(values: Sequence[Any]) -> str:
    """Of operations: what they are, by their code and their settings; empty for none."""
    if not values:
        return ""
    digest = hashlib.sha256()
    walker = Fingerprint(None, None)
    walker._is_state = lambda _: True
    for value in values:
        walker._walk("", value, digest, 0, {})
    return digest.hexdigest()[:16]


def _attributes(dataset: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """By name what a dataset and those that it wraps hold, and what they are."""
    held = getattr(dataset, "__dict__", None)
    if held is None or isinstance(dataset, (FunctionType, type)):
        yield prefix or "its values", dataset
        return
    yield f"{prefix}its code", type(dataset)
    for key, value in sorted(held.items()):
        if not _is_state(key):
            continue
        if key == "dataset" and hasattr(value, "__dict__") and prefix.count(".") < _DEEPEST:
            yield from _attributes(value, f"{prefix}{key}.")
        elif key == "datasets" and isinstance(value, (list, tuple)) and len(value) <= _STEP and prefix.count(".") < _DEEPEST:
            for place, inner in enumerate(value):
                yield from _attributes(inner, f"{prefix}{key}[{place}].")
        else:
            yield f"{prefix}{key}", value


def _own_roots(dataset: Any) -> Iterator[str]:
    for _ in range(_DEEPEST):
        root = getattr(dataset, "__dict__", {}).get("root")
        if isinstance(root, (str, os.PathLike)) and isinstance(os.fspath(root), str) and len(os.fspath(root)) > 1:
            yield os.fspath(root)
            yield os.path.abspath(root)
        dataset = getattr(dataset, "dataset", None)


def _is_state(key: str) -> bool:
    """What of transforms is stored is compared by itself, and the live rest may change."""
    return not key.startswith(_SKIPPED) and not names_transforms(key)


def _of_numpy(values: Any) -> Any:
    """A tensor as an array, in a type that NumPy has, and so an index or an array of pandas' own; anything else as it is."""
    if type(values).__module__.partition(".")[0] == "pandas":
        return values.to_numpy()
    if not hasattr(values, "detach"):
        return values
    tensor = values.detach().cpu()
    try:
        return tensor.numpy()
    except TypeError:  # bfloat16, or sparse
        return tensor.to_dense().float().numpy()


def _encoded(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return value.item()
    raise TypeError
