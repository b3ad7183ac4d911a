"""Whether a dataset is the one that a cache was made from: a digest of what the object holds, its long lists by ranges of samples.

A dataset of a million files holds a million paths. Lists as long as the dataset itself are therefore digested part by part, so
that files added at the end, or a label mended in the middle, change only the parts that they belong to.
"""

from __future__ import annotations

import hashlib
import os
import re
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import msgspec

_DEEPEST = 6
_STEP = 4096
_CLIENTS = frozenset({
    "requests", "urllib3", "http", "ssl", "socket", "botocore", "boto3", "s3transfer", "fsspec", "s3fs", "gcsfs", "adlfs",
    "aiohttp", "aiobotocore", "httpx", "obstore", "s3torchconnector", "threading", "asyncio", "concurrent",
})  # fmt: skip
"""Libraries whose objects change with every request: connections are no state of a dataset, only where they lead is."""
_SKIPPED = ("_pipefix", "_cache", "_lock")
TRANSFORMS = re.compile(r"(^|_)(transforms?|aug\w*|preprocess\w*|pipeline)(_|$)", re.IGNORECASE)
"""Names of attributes that hold transforms: what of them is stored is compared by itself, and the live rest may change."""
TARGETS = re.compile(r"target", re.IGNORECASE)


class Fingerprint:
    """Of a dataset of ``length`` samples."""

    def __init__(self, dataset: Any, length: int | None) -> None:
        self._length = length
        self._lists: list[tuple[str, Any]] = []
        digest = hashlib.sha256()
        self._walk("", dataset, digest, 0, set())
        self.state = digest.hexdigest()

    def part(self, start: int, stop: int) -> str:
        """Digest of what the long lists hold for these samples."""
        digest = hashlib.sha256()
        for name, held in self._lists:
            digest.update(name.encode("utf-8", "surrogateescape"))
            for at in range(start, stop, _STEP):
                _feed(digest, held[at : min(at + _STEP, stop)])
        return digest.hexdigest()

    def _walk(self, name: str, value: Any, digest: Any, depth: int, seen: set[int]) -> None:
        digest.update(f"{name}:{type(value).__qualname__};".encode("utf-8", "surrogateescape"))
        if value is None or isinstance(value, (bool, int, float, str, bytes, os.PathLike)):
            digest.update(repr(os.fspath(value) if isinstance(value, os.PathLike) else value).encode("utf-8", "surrogateescape"))
            return
        if id(value) in seen or depth > _DEEPEST or isinstance(value, ModuleType):
            return
        seen.add(id(value))
        if type(value).__module__.partition(".")[0] in _CLIENTS:
            where = [getattr(value, key, None) for key in ("url", "bucket", "prefix", "path")]
            digest.update(repr([one for one in where if isinstance(one, (str, os.PathLike))]).encode("utf-8", "surrogateescape"))
            return
        if isinstance(value, (FunctionType, MethodType, BuiltinFunctionType, type)):
            digest.update(value.__qualname__.encode())
        elif self._is_list(value):
            self._lists.append((name, value))
        elif isinstance(value, dict):
            for key in value:
                self._walk(f"{name}.{key!r}", value[key], digest, depth + 1, seen)
        elif isinstance(value, (list, tuple, set, frozenset)):
            if len(value) > _STEP or not _feed(digest, sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value):
                for place, one in enumerate(value):
                    self._walk(f"{name}[{place}]", one, digest, depth + 1, seen)
        elif hasattr(value, "dtype") and hasattr(value, "shape"):
            _feed(digest, value)
        else:
            for key, held in sorted(getattr(value, "__dict__", {}).items()):
                if not key.startswith(_SKIPPED) and (TARGETS.search(key) or not TRANSFORMS.search(key)):
                    self._walk(f"{name}.{key}", held, digest, depth + 1, seen)

    def _is_list(self, value: Any) -> bool:
        if self._length is None or self._length < 2 or not hasattr(value, "__len__") or isinstance(value, (dict, set, frozenset)):
            return False
        if not isinstance(value, (list, tuple)) and not (hasattr(value, "dtype") and hasattr(value, "shape") and value.shape):
            return False
        return len(value) == self._length


def _feed(digest: Any, values: Any) -> bool:
    """False where these are not plain values."""
    if hasattr(values, "dtype"):
        array = values.detach().cpu().numpy() if hasattr(values, "detach") else values
        if getattr(array.dtype, "hasobject", False) or not hasattr(array, "tobytes"):
            digest.update(repr(array).encode("utf-8", "surrogateescape"))
        else:
            digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
        return True
    try:
        told = msgspec.msgpack.encode(values, enc_hook=_encoded)
    except (TypeError, ValueError, RecursionError, UnicodeError, OverflowError):
        try:
            told = repr(values).encode("utf-8", "surrogateescape")
        except Exception:  # noqa: BLE001 - a stranger's __repr__
            return False
        if b" at 0x" in told:
            return False
    digest.update(told)
    return True


def _encoded(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return value.item()
    raise TypeError
