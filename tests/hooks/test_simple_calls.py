"""Every row of the table, held against a stand-in of its library: charged to its stage, answered as it says, and undone."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipefix.hooks import calls, simple_calls
from pipefix.hooks.calls import Calls, How
from pipefix.hooks.snapshot import nbytes, snapshot
from pipefix.vocabulary.stage import Stage

PIXELS = np.arange(24).reshape(4, 6)
FILE_BYTES = 5000


class Counts:
    """A value that tells its size."""

    nbytes = 12

    def __repr__(self) -> str:
        return "Counts"


class StandIn:
    """A module of a row's name, whose functions count how often they are called."""

    def __init__(self, row: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
        self.row, self.called = row, 0
        module = ModuleType(row.module)
        monkeypatch.setitem(sys.modules, row.module, module)
        self.owner: Any = module
        for part in row.owner.split(".") if row.owner else ():
            kind = type(part, (), {"compressor": None, "filters": None, "codec": None})
            setattr(self.owner, part, kind)
            self.owner = kind
        self.names = [named.partition("@")[0] for named in row.names.split()]
        for name in self.names:
            setattr(self.owner, name, self.member(name))
        self.before = {name: vars(self.owner)[name] for name in self.names}

    def member(self, name: str) -> Any:
        how, of_class = self.row.how, bool(self.row.owner)
        result = (
            b"read"
            if self.row.counts is len
            else 4
            if self.row.counts is int
            else Counts()
            if self.row.counts or how is How.FUTURE
            else PIXELS
        )

        def function(*args: Any, **_: Any) -> Any:
            self.called += 1
            if how is How.STREAM:
                return args[0].read(2)
            return iter([PIXELS, PIXELS]) if how is How.STEPS else None if name == "__init__" else result

        if how is How.PROPERTY:
            return property(function)
        return function if of_class else lambda *args, **kwargs: function(*args, **kwargs)

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        held = self.owner.__new__(self.owner) if self.row.owner and name != "__init__" else self.owner
        if self.row.how is How.PROPERTY:
            return getattr(held, name)
        result = getattr(held, name)(*([SimpleNamespace()] if name == "__init__" else []), *args, **kwargs)
        return [step.tolist() for step in result] if self.row.how is How.STEPS else result


def label_of(row: Calls, name: str) -> str:
    return f"{row.label[:-1]}()" if name == "__call__" else row.label + name if row.label.endswith(".") else row.label


@pytest.mark.parametrize("row", simple_calls.TABLE, ids=lambda row: f"{row.label}{row.names[:9]}")
def test_row(hooks: Any, row: Calls, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    library = StandIn(row, monkeypatch)
    path = tmp_path / "file"
    path.write_bytes(bytes(FILE_BYTES))
    stage = row.stage if isinstance(row.stage, Stage) else Stage.STORAGE
    at_once = row.how is How.FUTURE
    answered = row.how not in (How.TIMED, How.FUTURE)
    for name in library.names:
        with path.open("rb") as stream:
            args = (str(path),) if row.how is How.FILE else (stream,) if row.how is How.STREAM else ()

            def call(name: str = name, args: Any = args, stream: Any = stream) -> Any:
                stream.seek(7)
                return library.call(name, *args), stream.tell()

            bare = call()
            calls.install_row(row, hooks.timer, hooks.patches)
            ops = {} if at_once else {label_of(row, name): str(stage)}
            if row.how is How.FILE:
                ops[f"{row.label.partition('.')[0]} read"] = "storage"
            for how in ({}, {"record": True}):
                assert str(hooks.run(call, **how)) == str(bare)
                assert hooks.charged() == ops
            moved = FILE_BYTES if row.how is How.FILE else {None: 0, len: 4, int: 4}.get(row.counts, Counts.nbytes)
            assert hooks.timer.bytes_read == moved
            before = library.called
            assert str(hooks.run(call, replace=list(Stage))) == str(bare)
            assert hooks.charged() == ({} if answered else ops) and hooks.timer.misses == 0
            assert library.called == before + (not answered) + (row.how is How.STEPS)
            hooks.undo()
            assert str(call()) == str(bare)
    assert {name: vars(library.owner)[name] for name in library.names} == library.before


@pytest.mark.parametrize("row", [row for row in simple_calls.TABLE if row.into], ids=lambda row: row.label)
def test_results_written_into_an_array_of_the_caller_are_never_answered(
    hooks: Any, row: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = StandIn(row, monkeypatch)
    calls.install_row(row, hooks.timer, hooks.patches)
    for named in row.names.split():
        name, _, position = named.partition("@")
        args = [None] * (int(position or 0) - bool(row.owner)) + [PIXELS] if position else []
        for given, kwargs in ((args, {}), ([], {row.into: PIXELS})):
            hooks.run(lambda name=name, given=given, kwargs=kwargs: library.call(name, *given, **kwargs), record=True)
            before = library.called
            hooks.run(lambda name=name, given=given, kwargs=kwargs: library.call(name, *given, **kwargs), replace=list(Stage))
            assert library.called == before + (bool(kwargs) or bool(position))


@pytest.mark.parametrize("row", simple_calls.TABLE, ids=lambda row: f"{row.label}{row.names[:9]}")
def test_names_are_those_of_the_library_where_it_is_installed(row: Calls) -> None:
    """A release may lack some of them; none of them would be a row about something else."""
    owner = pytest.importorskip(row.module, exc_type=ImportError)
    if row.owner == "_NormalAccessor" and sys.version_info >= (3, 11):
        pytest.skip("of Python 3.10")
    for part in row.owner.split(".") if row.owner else ():
        owner = getattr(owner, part)
    known = [named for named in row.names.split() if hasattr(owner, named.partition("@")[0])]
    assert known or row.names.startswith("read_video"), "newer releases of torchvision leave videos to torchcodec"


def test_rows_come_with_their_modules_and_only_then(hooks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    row = next(row for row in simple_calls.TABLE if row.module == "tiktoken")
    monkeypatch.delitem(sys.modules, row.module, raising=False)
    assert row.module not in simple_calls.install(hooks.timer, hooks.patches)
    library = StandIn(row, monkeypatch)
    assert simple_calls.install(hooks.timer, hooks.patches) == [row.module]
    assert simple_calls.install(hooks.timer, hooks.patches) == []
    assert vars(library.owner)["encode"] is not library.before["encode"]


def test_a_class_that_lets_nothing_be_replaced_stays_as_it_is(hooks: Any) -> None:
    for how in (How.RESULT, How.STEPS):
        calls.install_row(Calls("builtins", "bytes", "upper nothing", Stage.DECODE, "bytes.", how), hooks.timer, hooks.patches)
    assert not hooks.patches.replaced


def test_a_class_that_a_release_lacks_is_left_out(hooks: Any) -> None:
    """None stood for it, which has an ``__init__``: a probe with torchcodec from before WavDecoder ended with an AttributeError."""
    calls.install_row(Calls("json", "WavDecoder", "__init__ read", Stage.DECODE, "json."), hooks.timer, hooks.patches)
    assert not hooks.patches.replaced


BYTES, ZSTD = {"name": "bytes"}, {"name": "zstd"}


@pytest.mark.parametrize(
    ("library", "codecs", "stage"),
    [
        ("zarr", {"compressors": ("zstd",), "filters": ()}, Stage.DECODE),
        ("zarr", {"compressors": (), "filters": ()}, Stage.STORAGE),
        ("zarr", {"compressor": None, "filters": None}, Stage.STORAGE),
        ("zarr", {"compressor": "blosc", "filters": None}, Stage.DECODE),
        ("tensorstore", {"codecs": [BYTES, ZSTD]}, Stage.DECODE),
        ("tensorstore", {"codecs": [{"name": "transpose"}, BYTES]}, Stage.STORAGE),
        ("tensorstore", {"compressor": {"id": "blosc"}}, Stage.DECODE),
        ("tensorstore", {"compressor": None, "filters": None}, Stage.STORAGE),
        ("tensorstore", {"compression": {"type": "gzip"}}, Stage.DECODE),
        ("tensorstore", {"compression": {"type": "raw"}}, Stage.STORAGE),
        ("tensorstore", {"encoding": "jpeg"}, Stage.DECODE),
        ("tensorstore", {"encoding": "raw"}, Stage.STORAGE),
        ("tensorstore", None, Stage.STORAGE),
    ],
)
def test_selections_of_compressed_arrays_are_decoding(library: str, codecs: Any, stage: Stage) -> None:
    array = SimpleNamespace(codec=codecs and SimpleNamespace(to_json=lambda: codecs), **(codecs or {}))
    assert next(row for row in simple_calls.TABLE if row.module == library).stage(array) is stage  # type: ignore[operator]


def test_waiting_for_a_future_belongs_to_the_stage_of_the_call_that_gave_it(hooks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("tensorstore")
    module.Future = type("Future", (), {"result": lambda self: PIXELS})
    packed = SimpleNamespace(to_json=lambda: {"codecs": [BYTES, ZSTD]})
    module.TensorStore = type("TensorStore", (), {"read": lambda self: module.Future(), "codec": packed})
    monkeypatch.setitem(sys.modules, "tensorstore", module)
    hooks.contract(lambda: module.TensorStore().read().result(), "tensorstore", ops={"tensorstore.Future.result": "decode"})
    hooks.contract(lambda: module.Future().result(), "tensorstore", ops={"tensorstore.Future.result": "storage"})


class Held:
    """A value of a library: what it holds can be asked for in many ways."""

    def __init__(self, wrapped: Any = None) -> None:
        self.held = PIXELS if wrapped is None else getattr(wrapped, "held", wrapped)
        self.planes = [SimpleNamespace(buffer_size=24)]

    def asnumpy(self) -> Any:
        return self.held.copy()

    clone = asnumpy

    def estimated_size(self) -> int:
        return 24

    GetNumberOfPixels = estimated_size
    GetNumberOfComponentsPerPixel = GetSizeOfPixelComponent = lambda self: 1


@pytest.mark.parametrize(
    ("library", "name"),
    [("av", "VideoFrame"), ("av", "AudioFrame"), ("decord", "nd"), ("SimpleITK", "Image"), ("polars", "DataFrame")],
)
def test_values_of_libraries_can_be_kept(library: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type(name, (Held,), {})
    module = ModuleType(library)
    monkeypatch.setitem(sys.modules, library, module)
    setattr(module, name, SimpleNamespace(NDArray=kind, array=kind) if name == "nd" else kind)
    value = kind()
    copied = snapshot(value)
    assert np.array_equal(getattr(copied, "held", copied), PIXELS)
    assert nbytes(value) == (PIXELS.nbytes if name == "nd" else 24)


@pytest.mark.parametrize(("how", "ops"), [(How.FILE, {"sounds.load": "decode", "sounds read": "storage"}),
                                          (How.STREAM, {"sounds.load": "decode"})])  # fmt: skip
def test_a_file_may_be_given_by_the_name_of_its_parameter(
    hooks: Any, how: How, ops: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """As in ``librosa.load(path=...)``, ``torch.load(f=...)``."""

    def load(path: str, rate: int) -> tuple[str, int]:
        return path, rate

    sounds: Any = ModuleType("sounds")
    sounds.load = load
    monkeypatch.setitem(sys.modules, "sounds", sounds)
    file = tmp_path / "a.wav"
    file.write_bytes(b"data")
    calls.install_row(Calls("sounds", "", "load", Stage.DECODE, "sounds.", how), hooks.timer, hooks.patches)
    assert hooks.run(lambda: sounds.load(rate=3, path=str(file))) == (str(file), 3)
    assert hooks.charged() == ops
    with pytest.raises(TypeError, match="path"):
        hooks.run(lambda: sounds.load(rate=3))
