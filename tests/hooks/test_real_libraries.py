"""Hooks of libraries that the test environment lacks, held against the libraries themselves wherever they are installed."""

from __future__ import annotations

import importlib
import sys
import tarfile
from typing import Any

import numpy as np
import pytest

from pipefix.vocabulary.stage import Stage

RANDOM = np.random.default_rng(5)
SEVERAL = RANDOM.integers(0, 255, (6, 48, 64, 3), dtype=np.uint8)


def library(name: str) -> Any:
    if name not in sys.modules:
        try:
            importlib.import_module(name)
        except (ImportError, RuntimeError, OSError) as error:  # installed for another torch, or without FFmpeg
            pytest.skip(f"{name}: {error}")
    return sys.modules[name]


@pytest.fixture
def video(tmp_path):
    av = library("av")
    path = str(tmp_path / "v.mp4")
    with av.open(path, "w") as container:
        stream = container.add_stream("mpeg4", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for pixels in SEVERAL:
            for packet in stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    return path


@pytest.fixture
def sound(tmp_path):
    path = str(tmp_path / "a.wav")
    library("soundfile").write(path, RANDOM.normal(0, 0.1, 4410).astype(np.float32), 22050)
    return path


def left_after_replay(hooks, call, *modules: str) -> set[str]:
    """What still runs when all that can be answered from a recording is."""
    hooks.install(*modules)
    bare = call()
    hooks.run(call, record=True)
    assert not hooks.store.refused
    again = hooks.run(call, replace=list(Stage))
    assert np.array_equal(np.asarray(again), np.asarray(bare))
    assert hooks.timer.misses == 0
    return set(hooks.charged())


def test_av(hooks, video):
    av = library("av")

    def frames() -> Any:
        with av.open(video) as container:
            return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])

    hooks.install("av")
    assert len(hooks.run(frames)) == len(SEVERAL)
    assert hooks.charged() == {"av.open": "decode", "av.decode": "decode", "av.VideoFrame.to_ndarray": "decode"}
    hooks.undo()
    assert left_after_replay(hooks, frames, "av") <= {"av.open"}


def test_decord(hooks, video):
    decord = library("decord")

    def frames() -> Any:
        reader = decord.VideoReader(video)
        return np.concatenate([reader.get_batch([0, 2, 4]).asnumpy(), reader[1].asnumpy()[None]])

    hooks.install("decord")
    hooks.run(frames)
    assert set(hooks.charged().values()) == {"decode"}
    hooks.undo()
    assert left_after_replay(hooks, frames, "decord") <= {"decord.VideoReader.__init__", "decord.NDArray.asnumpy"}


def test_torchcodec(hooks, video):
    decoders = library("torchcodec.decoders")

    def frames() -> Any:
        return decoders.VideoDecoder(video).get_frames_at([0, 2, 4]).data.numpy()

    hooks.install("torchcodec")
    hooks.run(frames)
    assert hooks.charged() == {
        "torchcodec.VideoDecoder.__init__": "decode",
        "torchcodec.VideoDecoder.get_frames_at": "decode",
    }
    hooks.undo()
    assert left_after_replay(hooks, frames, "torchcodec") <= {"torchcodec.VideoDecoder.__init__"}


def test_soundfile_and_scipy(hooks, sound):
    soundfile, signal = library("soundfile"), library("scipy.signal")

    def samples() -> Any:
        return signal.resample_poly(soundfile.read(sound, dtype="float32")[0], 160, 441)

    hooks.contract(
        samples, "soundfile", "scipy",
        ops={"soundfile read": "storage", "soundfile.read": "decode", "scipy.signal.resample_poly": "augment"},
    )  # fmt: skip
    hooks.contract(
        lambda: soundfile.read(sound, frames=100)[0], "soundfile", ops={"soundfile.read": "decode"},
    )  # fmt: skip


def test_librosa(hooks, sound):
    librosa = library("librosa")
    for part in ("core.audio", "feature.spectral"):  # what is imported later is cut later
        library(f"librosa.{part}")
    hooks.contract(
        lambda: librosa.load(sound, sr=None)[0],
        "librosa",
        ops={"librosa read": "storage", "librosa.load": "decode", "librosa.to_mono": "augment"},
    )
    hooks.install("librosa")
    hooks.run(lambda: librosa.feature.melspectrogram(y=np.ones(4410), sr=22050))
    assert hooks.charged() == {"librosa.melspectrogram": "augment"}


def test_datasets(hooks):
    datasets = library("datasets")
    rows = datasets.Dataset.from_dict({"text": ["a", "bc", "def"], "label": [0, 1, 2]})
    ops = {"datasets.query_table": "storage", "datasets.format_table": "decode"}
    hooks.contract(lambda: rows[1], "datasets", ops=ops)
    hooks.contract(lambda: rows.__getitems__([0, 2]), "datasets", ops=ops)
    hooks.contract(lambda: rows.with_format("torch")[2], "datasets", ops=ops)


def test_polars(hooks, tmp_path):
    polars = library("polars")
    polars.DataFrame({"a": [1, 2, 3], "b": ["x", "y", "z"]}).write_csv(tmp_path / "t.csv")
    read = {"polars read": "storage", "polars.read_csv": "decode"}
    hooks.contract(lambda: polars.read_csv(str(tmp_path / "t.csv")), "polars", ops=read)
    hooks.contract(
        lambda: polars.scan_csv(str(tmp_path / "t.csv")).filter(polars.col("a") > 1).collect(),
        "polars",
        ops={"polars.LazyFrame.collect": "decode"},
    )


@pytest.mark.parametrize("packed", [True, False])
def test_zarr(hooks, tmp_path, packed):
    zarr = library("zarr")
    array = zarr.create_array(
        str(tmp_path / "z"), shape=(40, 8), chunks=(4, 8), dtype="f4", **({} if packed else {"compressors": None})
    )
    array[:] = RANDOM.normal(size=(40, 8))
    hooks.contract(lambda: array[3], "zarr", ops={"zarr.Array[selection]": "decode" if packed else "storage"})


@pytest.mark.parametrize("packed", [True, False])
def test_tensorstore(hooks, tmp_path, packed):
    tensorstore = library("tensorstore")
    codecs = [{"name": "bytes"}, *([{"name": "zstd"}] if packed else [])]
    grid = {"name": "regular", "configuration": {"chunk_shape": [4, 8]}}
    place = {"driver": "file", "path": str(tmp_path / "t")}
    metadata = {"shape": [40, 8], "data_type": "float32", "chunk_grid": grid, "codecs": codecs}
    array = tensorstore.open({"driver": "zarr3", "kvstore": place, "metadata": metadata}, create=True).result()
    array[:].write(RANDOM.normal(size=(40, 8)).astype("f4")).result()
    stage = "decode" if packed else "storage"
    hooks.contract(lambda: array[3].read().result(), "tensorstore", ops={"tensorstore.Future.result": stage})
    hooks.contract(lambda: np.asarray(array[3]), "tensorstore", ops={"tensorstore.TensorStore.__array__": stage})


def test_webdataset(hooks, tmp_path):
    webdataset = library("webdataset")
    np.save(tmp_path / "a.npy", SEVERAL[0])
    (tmp_path / "a.cls").write_bytes(b"7")
    with tarfile.open(tmp_path / "s.tar", "w") as shard:
        for name in ("a.cls", "a.npy"):
            shard.add(tmp_path / name, name)

    def sample(url: str) -> Any:
        return next(webdataset.WebDataset(url, shardshuffle=False).decode().to_tuple("cls", "npy").iterator())

    decoding = {"tar header", "webdataset.Decoder.decode1"}
    hooks.install("files", "tarfile", "webdataset")
    for url, storage in ((str(tmp_path / "s.tar"), {"open", "read"}), (f"pipe:cat {tmp_path}/s.tar", {"webdataset.Pipe.read"})):
        label, pixels = hooks.run(lambda url=url: sample(url))
        assert label == 7 and np.array_equal(pixels, SEVERAL[0])
        assert {name for name, stage in hooks.charged().items() if stage == "storage"} == storage
        assert {name for name, stage in hooks.charged().items() if stage == "decode"} == decoding


def test_pydicom(hooks, tmp_path):
    pydicom = library("pydicom")
    meta = pydicom.dataset.FileMetaDataset()
    meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    record = pydicom.dataset.FileDataset(str(tmp_path / "a.dcm"), {}, file_meta=meta, preamble=bytes(128))
    record.Rows, record.Columns, record.BitsAllocated, record.BitsStored, record.HighBit = 8, 9, 16, 16, 15
    record.SamplesPerPixel, record.PixelRepresentation, record.PhotometricInterpretation = 1, 0, "MONOCHROME2"
    record.PixelData = RANDOM.integers(0, 999, (8, 9), dtype=np.uint16).tobytes()
    record.save_as(str(tmp_path / "a.dcm"))
    hooks.contract(
        lambda: pydicom.dcmread(str(tmp_path / "a.dcm")).pixel_array,
        "files",
        "pydicom",
        ops={"open": "storage", "read": "storage", "pydicom.dcmread": "decode", "pydicom.Dataset.pixel_array": "decode"},
    )


def test_simpleitk(hooks, tmp_path):
    itk = library("SimpleITK")
    itk.WriteImage(itk.GetImageFromArray(RANDOM.normal(size=(4, 8, 9)).astype(np.float32)), str(tmp_path / "a.nii.gz"))
    hooks.contract(
        lambda: itk.GetArrayFromImage(itk.DiscreteGaussian(itk.ReadImage(str(tmp_path / "a.nii.gz")))),
        "simpleitk",
        ops={
            "SimpleITK read": "storage",
            "SimpleITK.ReadImage": "decode",
            "SimpleITK.DiscreteGaussian": "augment",
            "SimpleITK.GetArrayFromImage": "decode",
        },
    )


def test_arrow_ipc(hooks, tmp_path):
    pa = library("pyarrow")
    table = pa.table({"a": list(range(100))})
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=10)
    with pa.memory_map(str(tmp_path / "t.arrow")) as source:
        reader = pa.ipc.open_file(source)
        hooks.contract(lambda: reader.get_batch(3), "pyarrow", ops={"pyarrow.ipc.get_batch": "storage"})


def test_tokenizers(hooks):
    tokenizers = library("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "the": 1, "cat": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    op = "tokenizers.Tokenizer.encode"
    hooks.contract(lambda: tokenizer.encode("the cat").ids, "tokenizers", ops={op: "decode"})
    texts = ["the", "cat"]
    hooks.contract(lambda: [each.tokens for each in tokenizer.encode_batch(texts)], "tokenizers", ops={f"{op}_batch": "decode"})
