"""NumPy's readers: arrays from files, archives and maps."""

from __future__ import annotations

import io

import numpy as np
import pytest

from pipefix.hooks.numpy import touch
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


def test_npy(hooks, npy):
    hooks.contract(lambda: np.load(npy), "files", "numpy", ops={**LOADED, "numpy.fromfile": "storage"}, recorded=LOADED)


def test_npy_counts_its_bytes(hooks, npy):
    hooks.install("files", "numpy")
    hooks.run(lambda: np.load(npy))
    assert npy.stat().st_size <= hooks.timer.bytes_read <= npy.stat().st_size + 8192
    hooks.run(lambda: np.load(npy), record=True)
    hooks.run(lambda: np.load(npy), replace=[Stage.DECODE])
    assert hooks.charged() == {"read": "storage"}
    assert npy.stat().st_size <= hooks.timer.bytes_read <= npy.stat().st_size + 8192


def test_npy_from_an_open_file(hooks, npy):
    def load():
        with open(npy, "rb") as file:
            return np.load(file), file.tell()

    bare = load()
    hooks.install("files", "numpy")
    for how in ({}, {"record": True}, {"replace": [Stage.STORAGE]}, {"replace": [Stage.DECODE, Stage.STORAGE]}):
        array, end = hooks.run(load, **how)
        assert array.tobytes() == bare[0].tobytes()
        assert end == bare[1]


def test_npz_members_are_read_when_asked_for(hooks, npz):
    def load():
        with np.load(npz) as archive:
            return [archive["x"], archive["y"], archive["z"]]

    bare = load()
    hooks.install("files", "numpy")
    ops = {**LOADED, "numpy.load(npz)[key]": "decode"}
    for how in ({}, {"record": True}):
        again = hooks.run(load, **how)
        assert all(a.tobytes() == b.tobytes() and a.dtype == b.dtype for a, b in zip(again, bare, strict=True))
        assert hooks.charged() == ops
    again = hooks.run(load, replace=[Stage.STORAGE])
    assert again[0].tobytes() == ARRAY.tobytes()
    assert "read" not in hooks.charged()
    again = hooks.run(load, replace=[Stage.STORAGE, Stage.DECODE])
    assert again[0].tobytes() == ARRAY.tobytes()
    assert hooks.charged() == {"numpy.load": "decode"}


def test_npz_members_are_lazy(hooks, npz):
    hooks.install("files", "numpy")
    hooks.run(lambda: np.load(npz)["y"])
    assert hooks.timer.bytes_read < ARRAY.nbytes


def test_fromfile(hooks, tmp_path):
    path = tmp_path / "raw"
    ARRAY.tofile(path)
    ops = {"numpy.fromfile": "storage"}
    hooks.contract(lambda: np.fromfile(path, np.float32, 100, offset=400), "files", "numpy", ops=ops, recorded=OPENED)
    hooks.contract(lambda: np.fromfile(str(path), np.uint8), "files", "numpy", ops=ops, recorded=OPENED)

    def twice():
        with open(path, "rb") as file:
            return [np.fromfile(file, np.float32, 10), np.fromfile(file, np.float32, 10), file.tell()]

    hooks.contract(twice, "files", "numpy", ops={"open": "storage", **ops}, recorded=OPENED)


@pytest.mark.parametrize("reader", [np.loadtxt, np.genfromtxt])
def test_text(hooks, tmp_path, reader):
    path = tmp_path / "t.txt"
    path.write_text("1 2 3\n4 5 6\n")
    name = reader.__name__
    ops = {f"numpy.{name}": "decode"}
    hooks.contract(
        lambda: getattr(np, name)(path),
        "files",
        "os_calls",
        "numpy",
        ops={"os.stat": "storage", **OPENED, f"numpy.{name}": "decode"},
    )
    hooks.contract(lambda: getattr(np, name)(io.StringIO("1 2\n3 4")), "files", "numpy", ops=ops)


@pytest.mark.parametrize(
    "index", [3, slice(2, 5), ([1, 7, 3],), (slice(None), 1, slice(None, None, -2)), (2, 3, 4), slice(0, 0)], ids=str
)
def test_mapped(hooks, npy, index):
    mapped = np.load(npy, mmap_mode="r")
    hooks.contract(lambda: mapped[index], "files", "numpy", ops={"numpy.memmap[index]": "storage"})


def test_mapped_bytes_are_counted_and_writable_maps_stay_maps(hooks, npy):
    hooks.install("files", "numpy")
    mapped = np.load(npy, mmap_mode="r")
    hooks.run(lambda: mapped[3][4])
    assert hooks.timer.bytes_read == ARRAY[3].nbytes
    hooks.run(lambda: np.load(npy, mmap_mode="r+")[3].fill(7))
    hooks.undo()
    assert (np.load(npy)[3] == 7).all()


@pytest.mark.parametrize("index", [1, (1, ...), (1, slice(None))], ids=str)
def test_of_a_large_view_that_is_cropped_the_crop_is_read(hooks, tmp_path, index):
    """All of each volume was read, and told as read, where a pipeline takes a small part of it."""
    np.save(tmp_path / "v.npy", np.zeros((2, 33, 256, 256), np.uint8))
    mapped = np.load(tmp_path / "v.npy", mmap_mode="r")

    def crop():
        volume = mapped[index]
        return [volume[3:9, 5:25, 7:27], volume[0, 0, 0]]

    hooks.install("files", "numpy")
    bare = hooks.run(crop)
    for how in ({"record": True}, {}):
        again = hooks.run(crop, **how)
        assert hooks.charged() == {"numpy.memmap[index][index]": "storage"}
        assert hooks.timer.bytes_read == again[0].nbytes
    again = hooks.run(crop, replace=[Stage.STORAGE])
    assert (again[0] == bare[0]).all() and again[1] == bare[1] and hooks.timer.misses == 0
    nearly_all = hooks.run(lambda: mapped[index][:32])
    assert hooks.timer.bytes_read == nearly_all.nbytes


def test_a_field_of_mapped_records_reads_those_that_are_taken(hooks, tmp_path):
    records = np.zeros(1000, [("image", "u1", (8, 8)), ("label", "i8")])
    records["label"] = np.arange(1000)
    np.save(tmp_path / "r.npy", records)
    mapped = np.load(tmp_path / "r.npy", mmap_mode="r")
    ops = {"numpy.memmap[index]": "storage"}
    hooks.contract(lambda: [mapped["image"][3], int(mapped["label"][7])], "files", "numpy", ops=ops)
    hooks.install("files", "numpy")
    hooks.run(lambda: mapped["image"][3])
    assert hooks.timer.bytes_read == 64


def test_touch_takes_any_shape():
    for array in (ARRAY, ARRAY[::-1], ARRAY[:, 3], ARRAY.T, ARRAY[5:5], ARRAY[1, 2, 3:4], ARRAY[:, ::7, ::-3]):
        touch(array)
