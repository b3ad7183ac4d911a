"""NumPy's readers: arrays from files, archives and maps."""

from __future__ import annotations

import io

import numpy as np
import pytest

from pipefix.seams.numpy import touch
from pipefix.vocabulary.stage import Stage

ARRAY = np.arange(24_000, dtype=np.float32).reshape(60, 20, 20)
OPENED = {"open": "storage", "read": "storage"}
LOADED = {**OPENED, "numpy.load": "decode"}


@pytest.fixture
def npy(tmp_path):
    np.save(tmp_path / "a.npy", ARRAY)
    return tmp_path / "a.npy"


@pytest.fixture(params=[np.savez, np.savez_compressed])
def npz(request, tmp_path):
    request.param(tmp_path / "a.npz", x=ARRAY, y=np.array(3), z=np.array(["a", "bc"]))
    return tmp_path / "a.npz"


def test_npy(seams, npy):
    seams.contract(lambda: np.load(npy), "files", "numpy", ops={**LOADED, "numpy.fromfile": "storage"})


def test_npy_counts_its_bytes(seams, npy):
    seams.install("files", "numpy")
    seams.run(lambda: np.load(npy))
    assert npy.stat().st_size <= seams.tap.bytes_read <= npy.stat().st_size + 8192
    seams.run(lambda: np.load(npy), record=True)
    seams.run(lambda: np.load(npy), replace=[Stage.DECODE])
    assert seams.charged() == {"read": "storage"}
    assert npy.stat().st_size <= seams.tap.bytes_read <= npy.stat().st_size + 8192


def test_npy_from_memory_alone(seams, npy):
    seams.install("files", "numpy")
    bare = seams.run(lambda: np.load(npy), record=True)
    npy.unlink()
    again = seams.run(lambda: np.load(npy), replace=[Stage.STORAGE])
    assert again.tobytes() == bare.tobytes()
    assert seams.charged() == {"numpy.load": "decode"}
    assert seams.tap.misses == 0


def test_npy_from_an_open_file(seams, npy):
    def load():
        with open(npy, "rb") as file:
            return np.load(file), file.tell()

    bare = load()
    seams.install("files", "numpy")
    for how in ({}, {"record": True}, {"replace": [Stage.STORAGE]}, {"replace": [Stage.DECODE, Stage.STORAGE]}):
        array, end = seams.run(load, **how)
        assert array.tobytes() == bare[0].tobytes()
        assert end == bare[1]


def test_npz_members_are_read_when_asked_for(seams, npz):
    def load():
        with np.load(npz) as archive:
            return [archive["x"], archive["y"], archive["z"]]

    bare = load()
    seams.install("files", "numpy")
    ops = {**LOADED, "numpy.load(npz)[key]": "decode"}
    for how in ({}, {"record": True}):
        again = seams.run(load, **how)
        assert all(a.tobytes() == b.tobytes() and a.dtype == b.dtype for a, b in zip(again, bare, strict=True))
        assert seams.charged() == ops
    again = seams.run(load, replace=[Stage.STORAGE])
    assert again[0].tobytes() == ARRAY.tobytes()
    assert "read" not in seams.charged()
    again = seams.run(load, replace=[Stage.STORAGE, Stage.DECODE])
    assert again[0].tobytes() == ARRAY.tobytes()
    assert seams.charged() == {"numpy.load": "decode"}


def test_npz_members_are_lazy(seams, npz):
    seams.install("files", "numpy")
    seams.run(lambda: np.load(npz)["y"])
    assert seams.tap.bytes_read < ARRAY.nbytes


def test_fromfile(seams, tmp_path):
    path = tmp_path / "raw"
    ARRAY.tofile(path)
    ops = {"numpy.fromfile": "storage"}
    seams.contract(lambda: np.fromfile(path, np.float32, 100, offset=400), "files", "numpy", ops=ops)
    seams.contract(lambda: np.fromfile(str(path), np.uint8), "files", "numpy", ops=ops)

    def twice():
        with open(path, "rb") as file:
            return [np.fromfile(file, np.float32, 10), np.fromfile(file, np.float32, 10), file.tell()]

    seams.contract(twice, "files", "numpy", ops={"open": "storage", **ops})


@pytest.mark.parametrize("reader", [np.loadtxt, np.genfromtxt])
def test_text(seams, tmp_path, reader):
    path = tmp_path / "t.txt"
    path.write_text("1 2 3\n4 5 6\n")
    name = reader.__name__
    ops = {f"numpy.{name}": "decode"}
    seams.contract(
        lambda: getattr(np, name)(path),
        "files",
        "os_calls",
        "numpy",
        ops={"os.stat": "storage", **OPENED, f"numpy.{name}": "decode"},
    )
    seams.contract(lambda: getattr(np, name)(io.StringIO("1 2\n3 4")), "files", "numpy", ops=ops)


@pytest.mark.parametrize(
    "index", [3, slice(2, 5), ([1, 7, 3],), (slice(None), 1, slice(None, None, -2)), (2, 3, 4), slice(0, 0)], ids=str
)
def test_mapped(seams, npy, index):
    mapped = np.load(npy, mmap_mode="r")
    seams.contract(lambda: mapped[index], "files", "numpy", ops={"numpy.memmap[index]": "storage"})


def test_mapped_bytes(seams, npy):
    seams.install("files", "numpy")
    mapped = np.load(npy, mmap_mode="r")
    seams.run(lambda: mapped[3][4])
    assert seams.tap.bytes_read == ARRAY[3].nbytes


def test_writable_maps_stay_maps(seams, npy):
    seams.install("files", "numpy")
    seams.run(lambda: np.load(npy, mmap_mode="r+")[3].fill(7))
    seams.undo()
    assert (np.load(npy)[3] == 7).all()


def test_touch_takes_any_shape():
    for array in (ARRAY, ARRAY[::-1], ARRAY[:, 3], ARRAY.T, ARRAY[5:5], ARRAY[1, 2, 3:4], ARRAY[:, ::7, ::-3]):
        touch(array)


def test_from_numpy_import_load(seams, npy):
    import sys
    import types

    module = types.ModuleType("took_numpy_load_by_name")
    exec("from numpy import load", vars(module))
    sys.modules[module.__name__] = module
    try:
        seams.contract(lambda: module.load(npy), "files", "numpy", ops={**LOADED, "numpy.fromfile": "storage"})
    finally:
        del sys.modules[module.__name__]
