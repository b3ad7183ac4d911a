"""Pickles a dataset once for all workers that are not forked, into memory that each of them reads.

Torch pickles it once a worker and writes it through a pipe each time. What must not be pickled by itself (tensors, which are
shared, and locks, queues and connections, which belong to one worker's start) is left to torch, with the whole dataset.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import weakref
from multiprocessing import reduction
from typing import Any

import torch

from pipefix.vocabulary.held_transforms import datasets_in

SMALLEST = 1 << 20
"""Bytes below which torch's way is as quick."""
_BY_VALUE = {"_reduce_method", "_reduce_method_descriptor", "_reduce_partial"}
PRELOADED = ("torch", "torch.utils.data", "pipefix.loader.workers.iterator")


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        reducer = reduction.ForkingPickler._extra_reducers.get(type(value))  # type: ignore[attr-defined]
        if (reducer is not None and reducer.__name__ not in _BY_VALUE) or isinstance(value, torch.Tensor):
            raise pickle.PicklingError("it has a way of its own between processes")
        return NotImplemented


class PackedDataset:
    """Stands for a dataset where a process is started, and is the dataset there."""

    def __init__(self, payload: memoryview) -> None:
        self.size = len(payload)
        self._fd = os.memfd_create("pipefix-dataset", os.MFD_CLOEXEC)
        self._end = weakref.finalize(self, os.close, self._fd)
        os.ftruncate(self._fd, self.size)
        with mmap.mmap(self._fd, self.size) as memory:
            memory[:] = payload

    def __reduce__(self) -> Any:
        return unpacked, (reduction.DupFd(self._fd), self.size)


def unpacked(handle: Any, size: int) -> Any:
    fd = handle.detach()
    try:
        with mmap.mmap(fd, size, prot=mmap.PROT_READ) as memory, memoryview(memory) as payload:
            return pickle.loads(payload)
    finally:
        os.close(fd)


class _Looking(pickle.Pickler):
    """Finds out whether anything holds what is sought. From then on it writes nothing more."""

    sought: set[int]
    found = False

    def persistent_id(self, value: Any) -> Any:
        self.found = self.found or id(value) in self.sought
        return self.found or None


def pack(dataset: Any, *beside: Any) -> PackedDataset | None:
    """None where torch's way is to be taken: it has the errors that users know. ``beside``: what is sent as well. Where this holds
    the dataset, as ``collate_fn=dataset.collate`` does, a worker is to have one dataset, and not two."""
    if not hasattr(os, "memfd_create"):
        return None
    file, looking = io.BytesIO(), _Looking(io.BytesIO())
    looking.sought = {id(part) for _, part in datasets_in(dataset)}
    try:
        _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(dataset)
        if file.tell() < SMALLEST:
            return None
        looking.dump(beside)
        return None if looking.found else PackedDataset(file.getbuffer())
    except Exception:  # noqa: BLE001 - the user's __reduce__, which torch meets again, or a system that refuses such memory
        return None


def preload(*users: Any) -> None:
    """The server that workers are forked from loads torch once, so that they need not; where its modules are still to be chosen.

    ``users``: things of the user's whose modules workers need.
    """
    from multiprocessing import forkserver

    server = forkserver._forkserver
    if getattr(server, "_forkserver_pid", 0) is None and getattr(server, "_preload_modules", None) == ["__main__"]:
        modules = {getattr(user, "__module__", None) or type(user).__module__ for user in users} - {"__main__", "builtins"}
        forkserver.set_forkserver_preload(["__main__", *PRELOADED, *sorted(modules)])


def forget_server() -> None:
    """In a forked process: the fork server that it inherited is its parent's, and cannot be used. The first use starts its own."""
    from multiprocessing import forkserver

    server = forkserver._forkserver
    inherited = getattr(server, "_forkserver_alive_fd", None)
    if inherited is None:
        return
    os.close(inherited)
    vars(server).update(_forkserver_address=None, _forkserver_alive_fd=None, _forkserver_pid=None)
