"""obstore and s3torchconnector, as stand-ins with their shapes: what they read is storage, kept by URL and answered from there."""

from __future__ import annotations

import datetime
import sys
import types

import pytest

from pipefix.caches.replay import Shelf
from pipefix.caches.witness import Reads
from pipefix.hooks.install import install_all
from pipefix.hooks.patches import Patches
from pipefix.hooks.sample_timer import SampleTimer
from pipefix.vocabulary.stage import Stage

BODY = bytes(range(200))
CHANGED = datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc)


class ResultStore:
    """Keeps objects, and answers with them: as a source cache does."""

    def __init__(self) -> None:
        self.reads, self.asked = Reads(), 0

    @property
    def files(self):
        return self.reads

    def keep(self, *args):
        """Results are not kept."""

    def find(self, *args):
        raise AssertionError("an object was not answered from its bytes")


def shelf_of(reads):
    """What a cache gives back of these reads."""
    shelf = Shelf(None)
    place, known, data = 0, {}, b""
    for name, read in reads.files.items():
        pieces = []
        for offset, part in read.runs():
            pieces.append((offset, len(part), place, -1))
            data, place = data + part, place + len(part)
        known[name] = (read.size, pieces)
    shelf._known, shelf._record = known, memoryview(data)
    return shelf


@pytest.fixture
def both(monkeypatch, make_hooks):
    """Runs a call while its objects are kept, then from those alone: both results, operations, and names of what was kept.

    The same in a probe's recording, which keeps results of calls.
    """

    def run(modules, name, call, requests):
        for key, module in modules.items():
            monkeypatch.setitem(sys.modules, key, module)
        probed = make_hooks()
        probed.install(name)
        bare, began = probed.run(call), probed.charged()
        assert set(began.values()) == {"storage"}
        moved = probed.timer.bytes_read
        assert moved
        assert probed.run(call, record=True) == bare and probed.charged() == began
        assert probed.timer.bytes_read >= moved and not probed.store.refused
        before = len(requests)
        assert probed.run(call, replace=[Stage.STORAGE]) == bare
        assert len(requests) == before and not probed.charged() and not probed.timer.misses and not probed.timer.bytes_read
        probed.undo()
        requests.clear()
        timer, patches, store = SampleTimer(), Patches(), ResultStore()
        install_all(timer, patches, [name])
        timer.active, timer.recording = True, store
        timer.begin(0)
        first = call()
        timer.end()
        before = len(requests)
        timer.recording, timer.playing, timer.replaced = None, store, frozenset({Stage.STORAGE})
        files = shelf_of(store.reads)
        monkeypatch.setattr(ResultStore, "files", property(lambda self: files))
        timer.begin(0)
        again = call()
        timer.end()
        patches.undo()
        assert before and len(requests) == before and timer.misses == 0
        return first, again, {op for _, op in timer.names}, list(store.reads.files)

    return run


@pytest.mark.parametrize("methods", ["ObjectStoreMethods", "_ObjectStoreMixin"])
def test_obstore(both, methods):
    requests = []
    meta = {"path": "x", "size": 200, "e_tag": '"a"', "last_modified": CHANGED, "version": None}

    class Got:
        def __init__(self):
            self.meta, self.attributes = meta, {"Content-Type": "text/plain"}

        def bytes(self):
            return BODY

    def answer(value):
        def ask(held, path, **kwargs):
            requests.append((path, kwargs))
            return value(**kwargs)

        return ask

    def ranges(starts, ends):
        return [BODY[begin:end] for begin, end in zip(starts, ends, strict=True)]

    obstore, store = types.ModuleType("obstore"), types.ModuleType("obstore.store")
    answers = {"get": Got, "get_range": lambda start, end: BODY[start:end], "get_ranges": ranges, "head": lambda: meta}
    functions = {name: answer(value) for name, value in answers.items()}
    vars(obstore).update(functions, Bytes=bytes, store=store, list=lambda held: [])
    setattr(store, methods, type(methods, (), dict(functions)))
    bucket = type("S3Store", (getattr(store, methods),), {"config": {"bucket": "b"}, "prefix": "data/"})()

    def call():
        got = bucket.get("x")
        return (
            got.bytes(), got.meta, got.attributes, bucket.head("x"),
            bucket.get_range("x", start=3, end=9), obstore.get_ranges(bucket, "x", starts=[1, 50], ends=[4, 60]),
        )  # fmt: skip

    first, again, operations, names = both({"obstore": obstore, "obstore.store": store}, "obstore", call, requests)
    assert first == again == (BODY, meta, {"Content-Type": "text/plain"}, meta, BODY[3:9], [BODY[1:4], BODY[50:60]])
    assert {"obstore.get", "obstore.get_range", "obstore.get_ranges", "obstore.head"} <= operations
    assert names == ["head+s3://b/data/x", "s3://b/data/x"]


def test_s3torchconnector(both):
    requests = []

    class HeadObjectResult:
        def __init__(self, etag, size, last_modified, storage_class, restore_status):
            self.etag, self.size, self.last_modified = etag, size, last_modified

    class S3Client:
        def _get_object_stream(self, bucket, key, *span):  # of older releases it takes no span
            start, end = span or (None, None)
            requests.append((bucket, key, "stream", *span))
            return iter([BODY[start or 0 : end][:50], BODY[start or 0 : end][50:]])

        def head_object(self, bucket, key):
            requests.append((bucket, key))
            return HeadObjectResult('"a"', 200, 17, None, None)

    client, native = types.ModuleType("client"), types.ModuleType("native")
    client.S3Client, native.HeadObjectResult = S3Client, HeadObjectResult
    modules = {
        "s3torchconnector": types.ModuleType("s3torchconnector"), "s3torchconnector._s3client": types.ModuleType("package"),
        "s3torchconnector._s3client._s3client": client, "s3torchconnectorclient": types.ModuleType("s3torchconnectorclient"),
        "s3torchconnectorclient._mountpoint_s3_client": native,
    }  # fmt: skip

    def call():
        client = S3Client()
        stream = client._get_object_stream("b", "x")
        head = client.head_object("b", "x")
        whole = b"".join(stream)
        return whole, stream.tell(), b"".join(client._get_object_stream("b", "x", 5, 9)), head.etag, head.size, head.last_modified

    first, again, operations, names = both(modules, "s3torchconnector", call, requests)
    assert first == again == (BODY, 200, BODY[5:9], '"a"', 200, 17)
    assert {"s3torchconnector.get_object", "s3torchconnector.head_object"} <= operations
    assert ("b", "x", "stream") in requests
    assert names == ["head+s3://b/x", "s3://b/x"]
