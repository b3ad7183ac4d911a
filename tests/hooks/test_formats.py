"""json, pickle, torch.load, compression, archives and mapped files."""

# ruff: noqa: SIM115
from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import mmap
import pickle
import tarfile
import zipfile
import zlib

import pytest
import torch

from pipefix.vocabulary.stage import Stage

OPENED = {"open": "storage", "read": "storage"}
VALUE = {"a": [1, 2.5, None, "ü"], "b": {"c": True}}
DATA = b"".join(f"{i},{i * i}\n".encode() for i in range(3000))
NAMES = ("files", "os_calls", "json", "pickle", "zlib", "gzip", "bz2", "lzma", "_compression", "compression", "zipfile", "tarfile",
         "torch", "mmap")  # fmt: skip


@pytest.fixture
def whole(tmp_path):
    """One file of each kind."""
    (tmp_path / "v.json").write_text(json.dumps(VALUE))
    (tmp_path / "v.jsonl").write_text("".join(json.dumps({"i": i}) + "\n" for i in range(500)))
    (tmp_path / "v.pkl").write_bytes(pickle.dumps(VALUE))
    (tmp_path / "many.pkl").write_bytes(b"".join(pickle.dumps([i] * 50) for i in range(40)))
    torch.save({"x": torch.arange(100), "y": 3}, tmp_path / "v.pt")
    for module, ending in ((gzip, "gz"), (bz2, "bz2"), (lzma, "xz")):
        with module.open(tmp_path / f"d.{ending}", "wb") as file:
            file.write(DATA)
    with zipfile.ZipFile(tmp_path / "d.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("one", DATA)
        archive.writestr("two", DATA[::-1])
    for mode in ("w", "w:gz"):
        with tarfile.open(tmp_path / f"d.tar{mode[1:].replace(':', '.')}", mode) as tar:
            for name in ("one", "two"):
                info = tarfile.TarInfo(name)
                info.size = len(DATA)
                tar.addfile(info, io.BytesIO(DATA if name == "one" else DATA[::-1]))
    return tmp_path


def _unpickled(path):
    with open(path, "rb") as file:
        values = []
        while True:
            try:
                values.append(pickle.load(file))
            except EOFError:
                return values


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(
    ("call", "ops"),
    [
        (lambda at: json.load(open(at / "v.json")), {**OPENED, "json.loads": "decode"}),
        (lambda at: [json.loads(line) for line in open(at / "v.jsonl")], {**OPENED, "json.loads": "decode"}),
        (lambda at: pickle.load(open(at / "v.pkl", "rb")), {**OPENED, "pickle.load": "decode"}),
        (lambda at: pickle.loads((at / "v.pkl").read_bytes()), {**OPENED, "pickle.loads": "decode"}),
        (lambda at: torch.load(at / "v.pt"), {**OPENED, "os.stat": "storage", "torch.load": "decode"}),
        (lambda at: torch.load(open(at / "v.pt", "rb")), {**OPENED, "torch.load": "decode"}),
        (lambda at: zlib.decompress(zlib.compress(DATA)), {"zlib.decompress": "decode"}),
        (lambda at: gzip.decompress((at / "d.gz").read_bytes()), {**OPENED, "gzip.decompress": "decode"}),
        (lambda at: bz2.decompress((at / "d.bz2").read_bytes()), {**OPENED, "bz2.decompress": "decode"}),
        (lambda at: lzma.decompress((at / "d.xz").read_bytes()), {**OPENED, "lzma.decompress": "decode"}),
    ],
    ids=["json", "jsonl", "pickle", "pickle bytes", "torch", "torch file", "zlib", "gzip", "bz2", "lzma"],
)
def test_contract(hooks, whole, call, ops):
    bare = call(whole)
    hooks.install(*NAMES)
    for how in ({}, {"record": True}):
        again = hooks.run(lambda: call(whole), **how)
        assert str(again) == str(bare)
        assert {**hooks.charged(), "os.stat": "storage"} == {**ops, "os.stat": "storage"}
    assert str(hooks.run(lambda: call(whole), replace=[Stage.DECODE, Stage.STORAGE])) == str(bare)
    assert not hooks.charged()
    assert hooks.timer.misses == 0
    assert str(hooks.run(lambda: call(whole), replace=[Stage.STORAGE])) == str(bare)
    assert set(hooks.charged().values()) == {"decode"}
    assert str(hooks.run(lambda: call(whole), replace=[Stage.DECODE])) == str(bare)
    assert set(hooks.charged().values()) <= {"storage"}
    hooks.undo()
    assert str(call(whole)) == str(bare)


def test_a_stream_of_pickles_ends_where_it_ended(hooks, whole):
    bare = _unpickled(whole / "many.pkl")
    hooks.install(*NAMES)
    for how in ({}, {"record": True}, {"replace": [Stage.DECODE]}, {"replace": [Stage.DECODE, Stage.STORAGE]}):
        assert hooks.run(lambda: _unpickled(whole / "many.pkl"), **how) == bare


STREAMS = {
    "gz": (lambda at: gzip.open(at / "d.gz").read(), "compressed stream"),
    "gz lines": (lambda at: list(gzip.open(at / "d.gz", "rt")), "compressed stream"),
    "bz2": (lambda at: bz2.open(at / "d.bz2").read(), "compressed stream"),
    "xz": (lambda at: lzma.open(at / "d.xz").read(), "compressed stream"),
    "zip": (lambda at: zipfile.ZipFile(at / "d.zip").open("two").read(), "zip member stream"),
    "tar": (lambda at: [tar.extractfile(m).read() for tar in [tarfile.open(at / "d.tar")] for m in tar], "tar header"),
    "tar.gz": (lambda at: [tar.extractfile(m).read() for tar in [tarfile.open(at / "d.tar.gz")] for m in tar], "compressed stream"),
    "tar pipe": (lambda at: [tar.extractfile(m).read() for tar in [tarfile.open(at / "d.tar", "r|")] for m in tar], "tar header"),
}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("name", STREAMS)
def test_streams_are_timed_and_replay_their_storage(hooks, whole, name):
    call, op = STREAMS[name]
    bare = call(whole)
    hooks.install(*NAMES)
    for how in ({}, {"record": True}):
        assert hooks.run(lambda: call(whole), **how) == bare
        assert hooks.charged()[op] == "decode"
        assert {"read", "os.read"} & hooks.charged().keys()
    assert hooks.run(lambda: call(whole), replace=[Stage.STORAGE]) == bare
    assert {name for name, stage in hooks.charged().items() if stage == "storage"} <= {"os.open"}
    assert hooks.run(lambda: call(whole), replace=[Stage.STORAGE, Stage.DECODE]) == bare


def test_zip_members_read_whole_are_replaced(hooks, whole):
    with zipfile.ZipFile(whole / "d.zip") as archive:
        hooks.contract(lambda: [archive.read("one"), archive.read("two")], *NAMES, ops={"zipfile.ZipFile.read": "decode"})


def test_a_zip_kept_open_since_the_seams_came_has_its_reads_timed(hooks, whole):
    hooks.install(*NAMES)
    archive = zipfile.ZipFile(whole / "d.zip")
    data = hooks.run(lambda: archive.read("one"), record=True)
    assert hooks.charged() == {"zipfile.ZipFile.read": "decode", "read": "storage"}
    assert hooks.run(lambda: archive.read("one"), replace=[Stage.DECODE]) == data
    assert hooks.charged() == {"read": "storage"}
    archive.close()


def test_mapped_bytes(hooks, whole):
    (whole / "raw").write_bytes(DATA)
    file = open(whole / "raw", "rb")
    older = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    before = mmap.mmap
    hooks.install(*NAMES)
    assert isinstance(older, mmap.mmap)
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    assert bytes(memoryview(mapped)[5:10]) == DATA[5:10]

    def read():
        mapped.seek(3)
        return mapped[10:500], mapped[4], mapped.read(5), mapped.readline()

    for how in ({}, {"record": True}, {"replace": [Stage.STORAGE]}):
        assert hooks.run(read, **how) == (DATA[10:500], DATA[4], DATA[3:8], DATA[8:].partition(b"\n")[0] + b"\n")
    assert "mmap[slice]" not in hooks.charged()
    hooks.run(read)
    assert hooks.charged() == {"mmap[slice]": "storage", "mmap.read": "storage", "mmap.readline": "storage"}
    hooks.undo()
    assert mmap.mmap is before
    mapped.close()
    file.close()


def test_csv_reads_through_the_files(hooks, whole):
    (whole / "d.csv").write_bytes(DATA)
    hooks.contract(lambda: list(csv.reader(open(whole / "d.csv"))), *NAMES, ops=OPENED)
