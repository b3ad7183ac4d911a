"""Handles that a dataset holds open: found wherever they are held, and nothing that is closed or opened anew in each process."""

from __future__ import annotations

import functools
import io
import logging
import os
import socket
import sqlite3
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
import pytest
from torch.utils.data import ConcatDataset, Dataset, Subset, get_worker_info

from pipefix.audit.handle_scan import open_handles


class Holding(Dataset[int]):
    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return index


class Minding(Holding):
    """Opens anew where it finds itself in another process."""

    def __getitem__(self, index: int) -> int:
        if self.pid != os.getpid():  # type: ignore[attr-defined]
            self.file = None
        return index


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """One of each."""
    (tmp_path / "data").write_bytes(b"0123")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as made:
        made.writestr("0", b"0")
    with tarfile.open(tmp_path / "a.tar", "w") as packed:
        packed.add(tmp_path / "data", "data")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["images"] = np.zeros(4)
    np.savez(tmp_path / "a.npz", images=np.zeros(4))
    lmdb.open(str(tmp_path / "a.lmdb")).close()
    with (
        (tmp_path / "data").open("rb") as data,
        zipfile.ZipFile(tmp_path / "a.zip") as archive,
        tarfile.open(tmp_path / "a.tar") as tar,
        h5py.File(tmp_path / "a.h5") as hdf,
        closing(sqlite3.connect(tmp_path / "a.db")) as database,
        closing(socket.socket()) as wire,
        np.load(tmp_path / "a.npz") as arrays,
        lmdb.open(str(tmp_path / "a.lmdb"), readonly=True) as environment,
    ):
        yield {
            "file": data, "zipfile.ZipFile": archive, "tarfile.TarFile": tar, "h5py.File": hdf, "h5py.Dataset": hdf["images"],
            "sqlite3.Connection": database, "socket.socket": wire, "numpy.load of an .npz": arrays,
            "lmdb.Environment with lock=True": environment,
        }  # fmt: skip


KINDS = [
    "file", "zipfile.ZipFile", "tarfile.TarFile", "h5py.File", "h5py.Dataset", "sqlite3.Connection", "socket.socket",
    "numpy.load of an .npz", "lmdb.Environment with lock=True",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_an_open_handle_is_found_wherever_it_is_held(kind: str, opened: dict[str, Any]) -> None:
    handle = opened[kind]
    held = {
        "dataset.handle": Holding(handle=handle),
        "dataset.handles[1]": Holding(handles=[None, handle]),
        "dataset.by_name['train']": Holding(by_name={"train": handle}),
        "dataset.dataset.handle": Subset(Holding(handle=handle), [0, 1]),
        "dataset.datasets[0].handle": ConcatDataset([Holding(handle=handle)]),
    }
    for where, dataset in held.items():
        assert open_handles(dataset) == {where: kind}


LEFT_OPEN: Any = None


class AtModuleLevel(Holding):
    def __getitem__(self, index: int) -> int:
        return len(LEFT_OPEN.namelist()) + index


class Reader:
    def __init__(self, file: Any) -> None:
        self.file = file

    def read(self, index: int) -> bytes:
        return bytes(self.file.read(index))


def _reading(file: Any) -> Any:
    return lambda index: file.read(index)


@pytest.mark.parametrize("kind", KINDS)
def test_an_open_handle_is_found_behind_functions(kind: str, opened: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    handle = opened[kind]
    monkeypatch.setattr(sys.modules[__name__], "LEFT_OPEN", handle)
    held = {
        "test_handle_scan.LEFT_OPEN": AtModuleLevel(),
        "dataset.get.file": Holding(get=Reader(handle).read),
        "_reading.<locals>.<lambda>: file": Holding(get=_reading(handle)),
        "dataset.get[1]": Holding(get=functools.partial(len, handle)),
    }
    for where, dataset in held.items():
        assert open_handles(dataset) == {where: kind}


def test_what_workers_open_anew_raises_no_alarm(opened: dict[str, Any]) -> None:
    def worker_init(_: int) -> None:
        get_worker_info().dataset.archive = None  # type: ignore[union-attr]

    assert open_handles(Holding(archive=opened["zipfile.ZipFile"]), worker_init) == {}
    assert len(open_handles(Holding(other=opened["zipfile.ZipFile"]), worker_init)) == 1


def test_an_archive_in_memory_raises_no_alarm(tmp_path: Path) -> None:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as made:
        made.writestr("0", b"0")
    with zipfile.ZipFile(memory) as archive:
        assert open_handles(Holding(archive=archive)) == {}


def test_what_is_closed_in_memory_or_written_to_is_none(opened: dict[str, Any], tmp_path: Path) -> None:
    opened["zipfile.ZipFile"].close()
    opened["tarfile.TarFile"].close()
    opened["h5py.File"].close()
    opened["file"].close()
    closed = [opened[kind] for kind in KINDS[:4]]
    opened["numpy.load of an .npz"].close()
    closed.append(opened["numpy.load of an .npz"])
    opened["lmdb.Environment with lock=True"].close()
    with (tmp_path / "log").open("w") as log, lmdb.open(str(tmp_path / "a.lmdb"), readonly=True, lock=False) as unlocked:
        logger = logging.getLogger("of a dataset")
        logger.addHandler(logging.StreamHandler(log))
        harmless = Holding(closed=closed, memory=io.BytesIO(b"0"), log=log, logger=logger, out=sys.stderr, unlocked=unlocked)
        assert open_handles(harmless) == {}


def test_code_that_asks_which_process_it_is_in_raises_no_alarm(opened: dict[str, Any]) -> None:
    assert open_handles(Minding(file=opened["file"], pid=os.getpid())) == {}
