"""Seams of libraries that the test environment lacks: doubles that are called as those are; test_real_libraries has the real."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

PIXELS = np.arange(24).reshape(4, 6)


@pytest.fixture
def library(monkeypatch):
    """A module of that name, with those members, and its parents."""

    def made(name: str, **members: Any) -> ModuleType:
        parts = name.split(".")
        for depth in range(1, len(parts) + 1):
            monkeypatch.setitem(sys.modules, ".".join(parts[:depth]), ModuleType(".".join(parts[:depth])))
        module = sys.modules[name]
        vars(module).update(members)
        for member in members.values():
            if callable(member):
                member.__module__ = name
        return module

    return made


class Reader:
    """A decoder of whatever file it is given."""

    def __init__(self, path: str, **_: Any) -> None:
        self.path = path

    def get_frames_at(self, indices: list[int]) -> Any:
        return torch.arange(6)[indices]

    def get_batch(self, indices: list[int]) -> Any:
        return Array(PIXELS[indices])

    def read(self, frames: int = -1) -> Any:
        return PIXELS.ravel()[:frames]

    def Execute(self) -> Any:
        return PIXELS


class Array:
    def __init__(self, held: Any) -> None:
        self.held = held

    def asnumpy(self) -> Any:
        return self.held.copy()


def kind_of(name: str, *bases: type, **members: Any) -> type:
    return type(name, bases or (object,), members)


def load(path: str, offset: int = 0, frame_offset: int = 0) -> Any:
    return PIXELS.ravel()[offset:].astype(float), 8000


def worked(values: Any, *_: Any) -> Any:
    return np.asarray(values) * 2


def test_av(seams, library):
    frame = kind_of("VideoFrame", to_ndarray=lambda self, format="rgb24": PIXELS.copy(), planes=[SimpleNamespace(buffer_size=24)])

    def decode(self: Any, **_: Any) -> Any:
        for _ in range(3):
            yield frame()

    container = kind_of("InputContainer", decode=decode, demux=decode, seek=lambda self, offset: None)
    av = library(
        "av", VideoFrame=frame, AudioFrame=kind_of("AudioFrame"), Packet=kind_of("Packet", decode=decode),
        AudioResampler=kind_of("AudioResampler"), open=lambda path: container(),
        container=SimpleNamespace(InputContainer=container),
    )  # fmt: skip

    def clip() -> Any:
        return np.stack([each.to_ndarray(format="rgb24") for each in av.open("v.mp4").decode(video=0)])

    bare = clip()
    seams.install("av")
    for how in ({}, {"record": True}):
        assert np.array_equal(seams.run(clip, **how), bare)
        assert seams.charged() == {"av.open": "decode", "av.decode": "decode", "av.VideoFrame.to_ndarray": "decode"}
    assert np.array_equal(seams.run(clip, replace=["decode"]), bare)
    assert seams.charged() == {"av.open": "decode"}  # a container is a handle, no value
    assert next(av.open("v.mp4").decode()).to_ndarray() is not None
    seams.undo()
    assert av.container.InputContainer.decode is decode


def test_a_class_that_lets_nothing_be_replaced_stays_as_it_is(seams):
    from pipefix.seams.seam import cut, cut_iterator
    from pipefix.vocabulary.stage import Stage

    cut(seams.tap, seams.patches, bytes, "upper", Stage.DECODE)
    cut_iterator(seams.tap, seams.patches, bytes, "split", Stage.DECODE, "split")
    cut(seams.tap, seams.patches, bytes, "nothing", Stage.DECODE)
    assert not seams.patches.replaced


def test_torchcodec(seams, library):
    kind = kind_of("VideoDecoder", Reader)
    library("torchcodec.decoders", VideoDecoder=kind)

    def clip() -> Any:
        return kind("v.mp4").get_frames_at([0, 2])

    seams.install("torchcodec")
    seams.run(clip, record=True)
    assert seams.charged() == {"torchcodec.VideoDecoder.__init__": "decode", "torchcodec.VideoDecoder.get_frames_at": "decode"}
    assert torch.equal(seams.run(clip, replace=["decode"]), torch.tensor([0, 2]))
    assert seams.charged() == {"torchcodec.VideoDecoder.__init__": "decode"}


def test_decord(seams, library):
    kind = kind_of("VideoReader", Reader)
    library("decord", VideoReader=kind, nd=SimpleNamespace(NDArray=Array, array=Array))

    def clip() -> Any:
        return kind("v.mp4").get_batch([1, 0]).asnumpy()

    seams.install("decord")
    seams.run(clip, record=True)
    assert set(seams.charged()) == {"decord.VideoReader.__init__", "decord.VideoReader.get_batch", "decord.NDArray.asnumpy"}
    assert np.array_equal(seams.run(clip, replace=["decode"]), PIXELS[[1, 0]])
    assert "decord.VideoReader.get_batch" not in seams.charged()


def test_sounds_that_are_read_whole_are_read_apart(seams, library, tmp_path):
    (tmp_path / "a.wav").write_bytes(bytes(5000))
    path = str(tmp_path / "a.wav")
    soundfile = library("soundfile", read=load, info=load, SoundFile=kind_of("SoundFile", Reader))
    torchaudio = library("torchaudio", load=load)
    resampled = library("torchaudio.functional", resample=worked)
    vars(sys.modules["torchaudio"]).update(load=load)
    audio = library("librosa.core.audio", load=load, resample=worked)
    torchaudio = sys.modules["torchaudio"]
    seams.contract(lambda: soundfile.read(path)[0], "soundfile", ops={"soundfile read": "storage", "soundfile.read": "decode"})
    seams.contract(
        lambda: resampled.resample(torchaudio.load(path)[0], 8000, 4000),
        "torchaudio",
        ops={"torchaudio read": "storage", "torchaudio.load": "decode", "torchaudio.functional.resample": "augment"},
    )
    seams.contract(
        lambda: audio.resample(audio.load(path)[0], 8000, 4000),
        "librosa",
        ops={"librosa read": "storage", "librosa.load": "decode", "librosa.resample": "augment"},
    )
    seams.contract(lambda: audio.load(path, offset=2)[0], "librosa", ops={"librosa.load": "decode"})
    seams.install("soundfile")
    seams.run(lambda: soundfile.read(path))
    assert seams.tap.bytes_read == 5000


def test_text_to_ids(seams, library):
    kind = kind_of("Encoding", encode=lambda self, text: list(text.encode()))
    library("tiktoken", Encoding=kind)
    seams.contract(lambda: kind().encode("cat"), "tiktoken", ops={"tiktoken.Encoding.encode": "decode"})
    kind = kind_of("SentencePieceProcessor", EncodeAsIds=lambda self, text: list(text.encode()))
    library("sentencepiece", SentencePieceProcessor=kind)
    seams.contract(lambda: kind().EncodeAsIds("cat"), "sentencepiece", ops={"sentencepiece.EncodeAsIds": "decode"})


def test_rows_are_fetched_and_formatted_apart(seams, library):
    class Rows(list):
        nbytes = 12

    formatting = library(
        "datasets.formatting.formatting",
        query_table=lambda table, key: Rows(table[key : key + 1]),
        format_table=lambda rows, key: {"label": rows[0]},
    )
    seams.contract(
        lambda: formatting.format_table(formatting.query_table([3, 4], 1), 1),
        "datasets",
        ops={"datasets.query_table": "storage", "datasets.format_table": "decode"},
    )


def test_tables(seams, library, tmp_path):
    (tmp_path / "t.csv").write_text("a\n1\n")

    class Frame(list):
        def clone(self) -> Frame:
            return Frame(self)

        def estimated_size(self) -> int:
            return 8

    lazy = kind_of("LazyFrame", collect=lambda self: Frame([1]))
    readers = dict.fromkeys(
        ("read_csv", "read_parquet", "read_ipc", "read_json", "read_ndjson", "read_avro"), lambda path: Frame([1])
    )
    polars = library("polars", DataFrame=Frame, Series=kind_of("Series"), LazyFrame=lazy, **readers)
    seams.contract(
        lambda: polars.read_csv(str(tmp_path / "t.csv")), "polars", ops={"polars read": "storage", "polars.read_csv": "decode"}
    )
    seams.contract(lambda: lazy().collect(), "polars", ops={"polars.LazyFrame.collect": "decode"})


@pytest.mark.parametrize(
    ("codecs", "stage"),
    [
        ({"compressors": ("zstd",), "filters": ()}, "decode"),
        ({"compressors": (), "filters": ()}, "storage"),
        ({"compressor": None, "filters": None}, "storage"),
        ({"compressor": "blosc", "filters": None}, "decode"),
    ],
)
def test_selections_of_compressed_arrays_are_decoding(seams, library, codecs, stage):
    members = dict.fromkeys(
        ("get_basic_selection", "get_orthogonal_selection", "get_mask_selection", "get_coordinate_selection"), worked
    )
    kind = kind_of("Array", __getitem__=lambda self, at: PIXELS[at], **members, **codecs)
    library("zarr", Array=kind)
    array = kind()
    seams.contract(lambda: array[1], "zarr", ops={"zarr.Array[selection]": stage})


def test_medical_images(seams, library, tmp_path):
    (tmp_path / "a.dcm").write_bytes(bytes(700))
    path = str(tmp_path / "a.dcm")
    kind = kind_of("Dataset", pixel_array=property(lambda self: PIXELS.copy()))
    dicom = library("pydicom", Dataset=kind, dcmread=lambda path: kind())
    ops = {"pydicom.dcmread": "decode", "pydicom.Dataset.pixel_array": "decode"}
    seams.contract(lambda: dicom.dcmread(path).pixel_array, "pydicom", ops=ops)

    class Image:
        def __init__(self, other: Any = None) -> None:
            self.pixels = PIXELS if other is None else other.pixels

        def GetNumberOfPixels(self) -> int:
            return 24

        GetNumberOfComponentsPerPixel = GetSizeOfPixelComponent = GetNumberOfPixels

    itk = library(
        "SimpleITK", Image=Image, ReadImage=lambda path: Image(), GetArrayFromImage=lambda image: image.pixels.copy(),
        Median=lambda image: Image(image), ImageFileReader=kind_of("ImageFileReader", Reader),
        ImageSeriesReader=kind_of("ImageSeriesReader", Reader), ResampleImageFilter=kind_of("ResampleImageFilter", Reader),
    )  # fmt: skip
    seams.contract(
        lambda: itk.GetArrayFromImage(itk.Median(itk.ReadImage(path))),
        "simpleitk",
        ops={
            "SimpleITK read": "storage",
            "SimpleITK.ReadImage": "decode",
            "SimpleITK.Median": "augment",
            "SimpleITK.GetArrayFromImage": "decode",
        },
    )
