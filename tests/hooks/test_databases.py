"""LMDB and HDF5."""

from __future__ import annotations

import h5py
import lmdb
import numpy as np
import pytest

from pipefix.hooks import install
from pipefix.vocabulary.stage import Stage


@pytest.fixture
def database(tmp_path):
    with lmdb.open(str(tmp_path / "db"), map_size=1 << 24, max_dbs=2) as env:
        named = env.open_db(b"named")
        with env.begin(write=True) as txn:
            for i in range(50):
                txn.put(f"{i:03}".encode(), bytes([i]) * 9000)
            txn.put(b"k", b"other", db=named)
    return str(tmp_path / "db")


def _read(path, **how):
    with lmdb.open(path, readonly=True, lock=False, max_dbs=2) as env, env.begin(**how) as txn:
        values = [txn.get(b"007"), txn.get(b"none"), txn.get(b"none", 3)]
        return [bytes(value) if isinstance(value, memoryview) else value for value in values]


def test_lmdb_get(hooks, database):
    hooks.contract(lambda: _read(database), "lmdb", ops={"lmdb.Transaction.get": "storage"})
    hooks.install("lmdb")
    hooks.run(lambda: _read(database))
    assert hooks.timer.bytes_read == 9000


def test_lmdb_get_without_copies(hooks, database):
    hooks.contract(lambda: _read(database, buffers=True), "lmdb", ops={"lmdb.Transaction.get": "storage"})


def test_lmdb_all_the_rest_is_passed_on(hooks, database):
    def look():
        env = lmdb.Environment(database, readonly=True, lock=False, max_dbs=2)
        named = env.open_db(b"named")
        with lmdb.Transaction(env, buffers=False) as txn, lmdb.Cursor(named, txn) as cursor:
            everything = list(cursor), env.stat()["entries"], txn.stat(named)["entries"], env.path() == database
            assert env.open_db(b"named", txn=txn) is not None
            fresh = txn.cursor()
            return (
                *everything, fresh.set_key(b"004"), fresh.value(), fresh.next(), fresh.key(), fresh.item()[0], len(list(fresh)),
                [key for key, _ in fresh.iterprev()][:3], fresh.get(b"005"), isinstance(env, lmdb.Environment),
            )  # fmt: skip

    bare = look()
    hooks.install("lmdb")
    for how in ({}, {"record": True}, {"replace": [Stage.STORAGE]}):
        assert hooks.run(look, **how) == bare
    assert "lmdb.Cursor.value" not in hooks.charged()
    assert hooks.charged()["lmdb.Cursor.next"] == "storage"


def test_lmdb_opened_before(hooks, database):
    env = lmdb.open(database, readonly=True, lock=False)
    hooks.install("lmdb")
    assert isinstance(env, lmdb.Environment)
    wrapped = install.stand_in(hooks.timer, env)
    hooks.run(lambda: wrapped.begin().get(b"001"))
    assert hooks.charged() == {"lmdb.Transaction.get": "storage"}
    assert install.stand_in(hooks.timer, 3) is None
    env.close()


def test_lmdb_of_two_loaders_is_charged_to_the_one_whose_sample_is_made(make_hooks, database):
    first, second = make_hooks(), make_hooks()
    for hooks in (first, second):
        hooks.install("lmdb")
    with lmdb.open(database, readonly=True, lock=False) as env:
        for hooks in (first, second):
            hooks.run(lambda: env.begin().get(b"001"))
            assert hooks.charged() == {"lmdb.Transaction.get": "storage"}
    for hooks in (second, first):
        hooks.undo()


@pytest.fixture(params=[None, "gzip"])
def hdf5(request, tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(6000).reshape(60, 10, 10), chunks=(1, 10, 10), compression=request.param)
        file.create_dataset("text", data=["a", "bc"])
        file["scalar"] = 3.5
    return path, "decode" if request.param else "storage"


def test_hdf5(hooks, hdf5):
    path, stage = hdf5
    with h5py.File(path) as file:
        x = file["x"]
        hooks.contract(lambda: [x[3], x[2:5, 1], x[[1, 4]], x[0, 0, 0]], "h5py", ops={"h5py.Dataset[index]": stage})
        assert hooks.run(lambda: x[3]).shape == (10, 10)


def test_hdf5_counts_bytes_and_names_lookups(hooks, hdf5):
    path, stage = hdf5
    hooks.install("h5py")

    def read():
        with h5py.File(path) as file:
            return file["x"][3], file["text"].asstr()[1], file["scalar"][()]

    x, text, scalar = hooks.run(read)
    assert (x.sum(), text, scalar) == (np.arange(300, 400).sum(), "bc", 3.5)
    assert hooks.charged()["h5py.Dataset[index]"] in ("storage", stage)
    assert hooks.charged()["h5py.Group[name]"] == "storage"
    assert hooks.charged()["h5py.File"] == "storage"
    assert hooks.timer.bytes_read >= x.nbytes
