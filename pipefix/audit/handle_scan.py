"""Finds handles (files, databases) that a dataset holds open before its workers are forked; runs none of its code."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from pipefix.vocabulary.attributes import attributes, names_in
from pipefix.vocabulary.user_modules import is_users

MAX_DEPTH = 5
MAX_ENTRIES = 64
"""Entries of a list or dict that are looked at: whoever holds handles in one holds them from the beginning."""
MOST = 8
"""Handles that are told."""

_PLAIN = (str, bytes, bytearray, int, float, complex, bool, type, ModuleType, BuiltinFunctionType)
_NOT_LOOKED_INTO = ("torch", "numpy", "pandas", "logging", "threading", "pipefix", "tqdm")


def _reads(file: Any) -> bool:
    """Not what is only written to, as logs are: there nobody minds where the next line goes."""
    return not file.closed and bool(file.readable() and file.seekable() and not file.writable())


def _in_a_file(archive: Any) -> bool:
    return archive is not None and archive.fp is not None and not isinstance(archive.fp, io.BytesIO)


def _locks(environment: Any) -> bool:
    """Each transaction of a forked worker takes a row of the table of readers, until none of its 126 is left."""
    return bool(environment.flags()["lock"])


_IS_OPEN: tuple[tuple[str, Callable[[Any], bool]], ...] = (
    ("zarr.ZipStore tensorstore.TensorStore openslide.OpenSlide sqlite3.Connection sqlite3.Cursor", lambda _: True),
    ("av.container.InputContainer decord.VideoReader torchcodec.VideoDecoder", lambda _: True),
    ("pymysql.Connection MySQLdb.Connection pymongo.MongoClient redis.Connection", lambda _: True),
    ("soundfile.SoundFile rasterio.DatasetReader psycopg2.connection psycopg.Connection", lambda handle: not handle.closed),
    ("h5py.File h5py.Group h5py.Dataset", bool),
    ("zipfile.ZipFile", _in_a_file),
    ("tarfile.TarFile", lambda archive: not archive.closed and not isinstance(archive.fileobj, io.BytesIO)),
    ("netCDF4.Dataset", lambda file: bool(file.isopen())),
    ("tables.File", lambda file: bool(file.isopen)),
    ("cv2.VideoCapture", lambda video: bool(video.isOpened())),
    ("socket.socket", lambda socket: socket.fileno() >= 0),
)
"""Of these a subclass is one as well. Whether it is open is asked of the library, not of the user's code."""
_KINDS: dict[tuple[str, str], tuple[str, Callable[[Any], bool]]] = {
    **{("io", name): ("file", _reads) for name in ("TextIOWrapper", "BufferedReader", "FileIO")},
    ("numpy", "NpzFile"): ("numpy.load of an .npz", lambda arrays: _in_a_file(arrays.zip)),
    ("builtins", "Environment"): ("lmdb.Environment with lock=True", _locks),
    ("pipefix", "Environment"): ("lmdb.Environment with lock=True", _locks),  # the same, where a probe listens
} | {(kind.partition(".")[0], kind.rpartition(".")[2]): (kind, asked) for kinds, asked in _IS_OPEN for kind in kinds.split()}
"""By a class's library and name: what it is told as, and whether one is open."""


def open_handles(dataset: Any, worker_init: Any = None) -> dict[str, str]:
    """What ``dataset`` and the datasets inside it hold open, by the place where it is held.

    ``worker_init``: the loader's ``worker_init_fn``; what its code names, each worker opens anew.
    """
    worker_init = getattr(worker_init, "func", worker_init)
    opened_anew = set(names_in(worker_init.__code__)) - _LEADS_ON if isinstance(worker_init, FunctionType) else set()
    handles = _visit(dataset, "dataset", 0, set())
    return dict(islice(((where, kind) for where, kind in handles if opened_anew.isdisjoint(where.split("."))), MOST))


def _visit(value: Any, name: str, depth: int, seen: set[int]) -> Iterator[tuple[str, str]]:
    if depth > MAX_DEPTH or id(value) in seen or value is None or type(value) in _PLAIN:
        return
    seen.add(id(value))
    if kind := _kind(value):
        yield name, kind
    elif type(value) is MethodType:
        yield from _visit(value.__self__, name, depth + 1, seen)
    elif type(value) is functools.partial:
        yield from _visit([value.func, *value.args, *value.keywords.values()], name, depth + 1, seen)
    elif type(value) is FunctionType:
        yield from _used_by(value, depth, seen)
    elif type(value) in (list, tuple):
        for place, held in enumerate(value[:MAX_ENTRIES]):
            yield from _visit(held, f"{name}[{place}]", depth + 1, seen)
    elif type(value) is dict:
        for key in list(value)[:MAX_ENTRIES]:
            yield from _visit(value[key], f"{name}[{key!r}]", depth + 1, seen)
    elif (_of_the_user(type(value)) or "dataset" in name.rpartition(".")[2]) and not _minds_forks(type(value)):
        for attribute, held in attributes(value).items():
            yield from _visit(held, f"{name}.{attribute}", depth + 1, seen)
        for function in _methods(type(value)):
            yield from _used_by(function, depth, seen)


def _used_by(function: FunctionType, depth: int, seen: set[int]) -> Iterator[tuple[str, str]]:
    """What the user's own code has at hand outside of objects: module-level names, and variables of the function around it."""
    if not is_users(function.__module__) or not _FORK_AWARE.isdisjoint(names_in(function.__code__)):
        return
    scope = function.__globals__
    for name in sorted({*names_in(function.__code__)} & scope.keys()):
        if not isinstance(scope[name], FunctionType):
            yield from _visit(scope[name], f"{function.__module__.rpartition('.')[2]}.{name}", depth + 1, seen)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # not filled yet
            yield from _visit(cell.cell_contents, f"{function.__qualname__}: {name}", depth + 1, seen)


def _kind(value: Any) -> str | None:
    """What it is, if it is an open handle that reads."""
    for owner in type(value).__mro__:
        known = _KINDS.get((owner.__module__.partition(".")[0].lstrip("_"), owner.__name__))
        if known is not None:
            return known[0] if _asked(known[1], value) else None
    return None


def _asked(is_open: Callable[[Any], bool], value: Any) -> bool:
    try:
        return bool(is_open(value))
    except Exception:  # noqa: BLE001 - a library may raise anything about a handle that it has closed
        return False


_LEADS_ON = {"dataset", "datasets"}
"""Names on the way to a handle, not of one."""
_FORK_AWARE = frozenset({"getpid", "register_at_fork", "get_worker_info"})


def _minds_forks(kind: type) -> bool:
    """Whether its code asks which process it runs in, as code does that opens anew in each."""
    return any(not _FORK_AWARE.isdisjoint(names_in(function.__code__)) for function in _methods(kind))


def _methods(kind: type) -> list[FunctionType]:
    """Written in Python, inherited ones too; not those of torch and the like."""
    members = [member for owner in kind.__mro__ if _of_the_user(owner) for member in vars(owner).values()]
    return [member for member in members if isinstance(member, FunctionType)]


def _of_the_user(kind: type) -> bool:
    return kind.__module__.partition(".")[0] not in _NOT_LOOKED_INTO
