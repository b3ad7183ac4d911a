"""What unseen pipelines are made of: statements of user code, the stage that each is, and the data that it works on.

A statement reads ``i`` (the sample's index) or ``x`` (what the statement before it gave) and sets ``x``. A library that is not
installed takes its parts with it.
"""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
import pickle
import sqlite3
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

COUNT = 24
"""Different samples that are laid out."""


@dataclass(frozen=True)
class Part:
    """One statement, or the few that belong together."""

    stage: str
    code: str
    setup: str = ""
    """At the top of the file."""
    own: bool = False
    """No library call that pipefix knows: where it stands between others, its line is the answer."""
    waits: bool = False
    """It takes no CPU time."""


@dataclass(frozen=True)
class Family:
    """Statements that lead from an index to a tensor."""

    name: str
    parts: tuple[Part, ...]
    library: str = ""
    lay_out: Callable[[Path, np.random.Generator], None] | None = None
    reads_and_decodes: bool = False
    """In one call, about as long: either stage may be named, or both."""

    @property
    def installed(self) -> bool:
        return not self.library or all(importlib.util.find_spec(name) is not None for name in self.library.split())


def _clips(folder: Path, random: np.random.Generator) -> None:
    import av

    for number in range(4):
        with av.open(str(folder / f"v{number}.mp4"), "w") as container:
            stream = container.add_stream("mpeg4", rate=25)
            stream.width, stream.height, stream.pix_fmt = 160, 120, "yuv420p"
            base = random.integers(0, 255, (120, 160, 3), dtype=np.uint8)
            for step in range(8):
                for packet in stream.encode(av.VideoFrame.from_ndarray(np.roll(base, 3 * step, 1), format="rgb24")):
                    container.mux(packet)
            for packet in stream.encode():
                container.mux(packet)


def _sounds(folder: Path, random: np.random.Generator) -> None:
    import soundfile

    for number in range(COUNT):
        soundfile.write(str(folder / f"a{number}.flac"), random.normal(0, 0.1, 22050).astype("f4"), 22050)


def _texts(folder: Path, random: np.random.Generator) -> None:
    words = ["".join(map(chr, random.integers(97, 122, random.integers(3, 9)))) for _ in range(300)]
    for number in range(COUNT):
        (folder / f"t{number}.txt").write_text(" ".join(random.choice(words, 400)))
        (folder / f"n{number}.csv").write_text(",".join(f"{value:.5f}" for value in random.normal(size=600)))
        record = {"x": [float(value) for value in random.normal(size=64)], "y": number}
        (folder / f"j{number}.json").write_text(json.dumps(record))
    (folder / "corpus.txt").write_text("\n".join(" ".join(random.choice(words, 20)) for _ in range(400)))


def _subwords(folder: Path, random: np.random.Generator) -> None:
    import sentencepiece

    _texts(folder, random)
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "corpus.txt"), model_prefix=str(folder / "m"), vocab_size=300, minloglevel=2, hard_vocab_limit=False
    )


def _pictures(folder: Path, random: np.random.Generator) -> None:
    with zipfile.ZipFile(folder / "p.zip", "w") as archive:
        for number in range(COUNT):
            held = io.BytesIO()
            Image.fromarray(random.integers(0, 255, (96, 96, 3), dtype=np.uint8)).save(held, "JPEG")
            archive.writestr(f"{number}.jpg", held.getvalue())
            (folder / f"p{number}.jpg").write_bytes(held.getvalue())


def _arrays(folder: Path, random: np.random.Generator) -> None:
    values = np.cumsum(random.normal(size=(COUNT, 64, 64)), 1).astype("f4")
    np.save(folder / "r.npy", values)
    with sqlite3.connect(folder / "s.db") as base:
        base.execute("create table rows (id integer primary key, value blob)")
        for number in range(COUNT):
            (folder / f"g{number}.bin").write_bytes(gzip.compress(values[number].tobytes()))
            (folder / f"k{number}.pkl").write_bytes(pickle.dumps({"x": values[number].tolist()}))
            base.execute("insert into rows values (?, ?)", (number, values[number].tobytes()))


def _zarr(folder: Path, random: np.random.Generator) -> None:
    import zarr

    array = zarr.create_array(str(folder / "z"), shape=(COUNT, 64, 64), chunks=(1, 64, 64), dtype="f4")
    array[:] = np.cumsum(random.normal(size=(COUNT, 64, 64)), 1)


def _dicoms(folder: Path, random: np.random.Generator) -> None:
    import pydicom
    from pydicom.dataset import FileDataset, FileMetaDataset

    for number in range(COUNT):
        meta = FileMetaDataset()
        meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = "1.2.840.10008.5.1.4.1.1.2", pydicom.uid.generate_uid()
        meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
        slice_ = FileDataset("", {}, file_meta=meta, preamble=bytes(128))
        slice_.SOPClassUID, slice_.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
        slice_.Rows = slice_.Columns = 96
        slice_.SamplesPerPixel, slice_.PhotometricInterpretation, slice_.PixelRepresentation = 1, "MONOCHROME2", 0
        slice_.BitsAllocated, slice_.BitsStored, slice_.HighBit = 16, 16, 15
        slice_.PixelData = random.integers(0, 4000, (96, 96), dtype=np.uint16).tobytes()
        slice_.compress(pydicom.uid.RLELossless)
        slice_.save_as(folder / f"d{number}.dcm")


def _medical(folder: Path, random: np.random.Generator) -> None:
    import SimpleITK

    for number in range(COUNT):
        image = SimpleITK.GetImageFromArray((random.normal(size=(8, 48, 48)) * 100).astype("i2"))
        SimpleITK.WriteImage(image, str(folder / f"i{number}.nii.gz"))


def _tables(folder: Path, random: np.random.Generator) -> None:
    import pyarrow as pa

    columns = {f"c{number}": random.normal(size=COUNT * 16) for number in range(8)}
    table = pa.table(columns)
    with pa.OSFile(str(folder / "t.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=16)
    for number in range(COUNT):
        rows = np.stack(list(columns.values()), 1)[16 * number : 16 * number + 16]
        header = ",".join(columns)
        np.savetxt(folder / f"c{number}.csv", rows, delimiter=",", header=header, comments="")


def _packed(folder: Path, random: np.random.Generator) -> None:
    import lz4.frame
    import msgpack
    import netCDF4
    import tifffile
    import zstandard

    _texts(folder, random)
    for number in range(COUNT):
        values = np.cumsum(random.integers(-3, 4, (96, 96)), 1).astype("i2")
        (folder / f"m{number}.msgpack").write_bytes(msgpack.packb({"x": random.normal(size=2000).tolist(), "y": number}))
        (folder / f"l{number}.lz4").write_bytes(lz4.frame.compress(values.tobytes()))
        (folder / f"z{number}.zst").write_bytes(zstandard.ZstdCompressor().compress(values.tobytes()))
        tifffile.imwrite(folder / f"f{number}.tif", values, compression="zlib")
        with netCDF4.Dataset(folder / f"n{number}.nc", "w") as file:
            for name in "yx":
                file.createDimension(name, 96)
            file.createVariable("t", "i2", ("y", "x"), zlib=True)[:] = values


PACKED = "lz4 msgpack netCDF4 tifffile zstandard"
N = f"i % {COUNT}"
TO_TENSOR = Part("augment", "x = torch.as_tensor(np.ascontiguousarray(x), dtype=torch.float32)", own=True)
CLIP = "frames = []\nwhile True:\n    ok, frame = capture.read()\n    if not ok:\n        break\n    frames.append(frame)"

RANKS = (
    "RANKS = {bytes([b]): b for b in range(256)}\n"
    "ENCODING = tiktoken.Encoding('b', pat_str=r'\\w+|\\s+|.', mergeable_ranks=RANKS, special_tokens={})"
)

FAMILIES: Sequence[Family] = (
    Family("pyav", (
        Part("decode", "with av.open(f'{D}/v{i % 4}.mp4') as clip:\n"
             "    x = np.stack([frame.to_ndarray(format='rgb24') for frame in clip.decode(video=0)])[:4, ::3, ::3]", "import av"),
    ), "av", _clips),
    Family("opencv-video", (
        Part("decode", "capture = cv2.VideoCapture(f'{D}/v{i % 4}.mp4')\n" + CLIP +
             "\nx = np.stack(frames)[:4, ::3, ::3]", "import cv2"),
    ), "av", _clips),
    Family("decord", (
        Part("decode", "x = decord.VideoReader(f'{D}/v{i % 4}.mp4').get_batch(range(0, 8, 2)).asnumpy()[:, ::3, ::3]",
             "import decord"),
    ), "av decord", _clips),
    Family("soundfile", (
        Part("decode", f"x = soundfile.read(f'{{D}}/a{{{N}}}.flac', dtype='float32')[0]", "import soundfile"),
        Part("augment", "x = resample_poly(x, 160, 441)", "from scipy.signal import resample_poly"),
    ), "soundfile scipy", _sounds),
    Family("librosa", (
        Part("decode", f"x, rate = librosa.load(f'{{D}}/a{{{N}}}.flac', sr=None)",
             "import librosa, librosa.core.audio\n"
             "from threadpoolctl import threadpool_limits\n"
             "threadpool_limits(1)"),  # else two workers' BLAS threads fight for the cores, and what one process says is not true
        Part("augment", "x = librosa.feature.melspectrogram(y=x, sr=rate, n_mels=32)", "import librosa.feature"),
    ), "soundfile librosa", _sounds),
    Family("tiktoken", (
        Part("storage", f"x = open(f'{{D}}/t{{{N}}}.txt', 'rb').read()"),
        Part("decode", "x = ENCODING.encode(x.decode())[:256]", f"import tiktoken\n{RANKS}"),
    ), "tiktoken", _texts),
    Family("sentencepiece", (
        Part("storage", f"x = open(f'{{D}}/t{{{N}}}.txt', 'rb').read()"),
        Part("decode", "x = np.asarray(PIECES.encode(x.decode())[:256])",
             "import sentencepiece\nPIECES = sentencepiece.SentencePieceProcessor(model_file=f'{D}/m.model')"),
    ), "sentencepiece", _subwords),
    Family("json", (
        Part("storage", f"x = open(f'{{D}}/j{{{N}}}.json', 'rb').read()"),
        Part("decode", "x = json.loads(x)['x']", "import json"),
    ), "", _texts),
    Family("own-csv", (
        Part("storage", f"x = open(f'{{D}}/n{{{N}}}.csv', 'rb').read()"),
        Part("decode", "x = [float(value) for value in x.decode().split(',')]", own=True),
    ), "", _texts),
    Family("zip", (
        Part("decode", f"with zipfile.ZipFile(f'{{D}}/p.zip') as archive:\n    x = archive.read(f'{{{N}}}.jpg')", "import zipfile"),
        Part("decode", "x = cv2.imdecode(np.frombuffer(x, np.uint8), 1)", "import cv2"),
        Part("augment", "x = cv2.GaussianBlur(x, (7, 7), 0)"),
    ), "", _pictures),
    Family("own-augment", (
        Part("decode", f"x = np.asarray(Image.open(f'{{D}}/p{{{N}}}.jpg').convert('RGB'))", "from PIL import Image"),
        Part("augment", "for _ in range(3):\n    x = np.clip(np.sqrt(x.astype('f4') + 1) * 14, 0, 255)", own=True),
    ), "", _pictures),
    Family("gzip", (
        Part("storage", f"x = open(f'{{D}}/g{{{N}}}.bin', 'rb').read()"),
        Part("decode", "x = gzip.decompress(x)", "import gzip"),
        Part("augment", "x = ndimage.gaussian_filter(np.frombuffer(x, 'f4').reshape(64, 64), 2.0)", "from scipy import ndimage"),
    ), "scipy", _arrays),
    Family("pickle", (
        Part("storage", f"x = open(f'{{D}}/k{{{N}}}.pkl', 'rb').read()"),
        Part("decode", "x = pickle.loads(x)['x']", "import pickle"),
    ), "", _arrays),
    Family("sqlite", (
        Part("storage", f"x = sqlite3.connect(f'{{D}}/s.db').execute('select value from rows where id = ?', ({N},)).fetchone()[0]",
             "import sqlite3", own=True),
        Part("decode", "x = np.frombuffer(x, 'f4').reshape(64, 64)", own=True),
    ), "", _arrays),
    Family("zarr", (
        Part("decode", f"x = zarr.open(f'{{D}}/z', mode='r')[{N}]", "import zarr"),
    ), "zarr", _zarr, reads_and_decodes=True),
    Family("simpleitk", (
        Part("decode", f"x = SimpleITK.ReadImage(f'{{D}}/i{{{N}}}.nii.gz')", "import SimpleITK"),
        Part("augment", "x = SimpleITK.DiscreteGaussian(x)"),
        Part("decode", "x = SimpleITK.GetArrayFromImage(x)"),
    ), "SimpleITK", _medical),
    Family("nibabel", (
        Part("decode", f"x = nibabel.load(f'{{D}}/i{{{N}}}.nii.gz').get_fdata(dtype=np.float32)", "import nibabel"),
    ), "nibabel SimpleITK", _medical),
    Family("polars", (
        Part("decode", f"x = polars.read_csv(f'{{D}}/c{{{N}}}.csv').to_numpy()", "import polars"),
    ), "polars", _tables),
    Family("pandas", (Part("decode", f"x = pandas.read_csv(f'{{D}}/c{{{N}}}.csv').to_numpy()", "import pandas"),), "", _tables),
    Family("datasets", (
        Part("decode", f"x = ROWS[{N}]['x']",
             "import datasets\n"
             f"ROWS = datasets.Dataset.from_dict({{'x': np.random.default_rng(0).normal(size=({COUNT}, 256)).tolist()}})"),
    ), "datasets", reads_and_decodes=True),
    Family("transformed-rows", (
        Part("decode", f"x = ROWS[{N}]['x']",
             "import cv2, datasets\n"
             "def pixels(rows):\n"
             "    return {'x': [torch.from_numpy(cv2.imread(path)) for path in rows['path']]}\n"
             f"PATHS = [f'{{D}}/p{{k}}.jpg' for k in range({COUNT})]\n"
             "ROWS = datasets.Dataset.from_dict({'path': PATHS}).with_transform(pixels)"),
    ), "datasets", _pictures),
    Family("tensorstore", (
        Part("decode", f"x = volume(os.getpid())[{N}].read().result()",  # it ends whoever was forked after it was used
             "import functools, os, tensorstore\n"
             "@functools.cache\n"
             "def volume(process):\n"
             "    return tensorstore.open({'driver': 'zarr3', 'kvstore': {'driver': 'file', 'path': f'{D}/z'}}).result()"),
    ), "tensorstore zarr", _zarr, reads_and_decodes=True),
    Family("pydicom", (
        Part("decode", f"x = pydicom.dcmread(f'{{D}}/d{{{N}}}.dcm').pixel_array.astype('f4')", "import pydicom"),
    ), "pydicom", _dicoms),
    Family("batchgenerators", (
        Part("storage", f"x = np.load(f'{{D}}/r.npy', mmap_mode='r')[{N}][None, None]"),
        Part("augment", "x = augment_spatial(x, None, (48, 48), (24, 24), do_elastic_deform=False, random_crop=False)[0]",
             "from batchgenerators.augmentations.spatial_transformations import augment_spatial"),
    ), "batchgenerators skimage", _arrays, reads_and_decodes=True),
    Family("polars-frame", (
        Part("storage", f"x = open(FRAME.row({N})[0], 'rb').read()",
             f"import polars\nFRAME = polars.DataFrame({{'path': [f'{{D}}/p{{k}}.jpg' for k in range({COUNT})]}})"),
        Part("decode", "x = cv2.imdecode(np.frombuffer(x, np.uint8), 1)", "import cv2"),
    ), "polars", _pictures),
    Family("kd-tree", (
        Part("augment", "x = cKDTree(POINTS + i * 1e-4).query(POINTS, k=4)[0]",
             "from scipy.spatial import cKDTree\nPOINTS = np.random.default_rng(0).random((300, 3))", own=True),
    ), "scipy"),
    Family("thread-pool", (
        Part("storage", f"x = [open(f'{{D}}/p{{(i + k) % {COUNT}}}.jpg', 'rb').read() for k in range(4)]"),
        Part("decode", "x = list(ThreadPoolExecutor(2).map(lambda data: cv2.imdecode(np.frombuffer(data, np.uint8), 1), x))",
             "import cv2\nfrom concurrent.futures import ThreadPoolExecutor", own=True),
        Part("augment", "x = np.stack(x)[:, ::3, ::3]", own=True),
    ), "", _pictures),
    Family("orjson", (
        Part("storage", f"x = open(f'{{D}}/j{{{N}}}.json', 'rb').read()"),
        Part("decode", "x = orjson.loads(x)['x']", "import orjson", own=True),
    ), "orjson", _texts),
    Family("msgpack", (
        Part("storage", f"x = open(f'{{D}}/m{{{N}}}.msgpack', 'rb').read()"),
        Part("decode", "x = msgpack.unpackb(x)['x']", "import msgpack", own=True),
    ), PACKED, _packed),
    Family("lz4", (
        Part("storage", f"x = open(f'{{D}}/l{{{N}}}.lz4', 'rb').read()"),
        Part("decode", "x = np.frombuffer(lz4.frame.decompress(x), 'i2').reshape(96, 96)", "import lz4.frame", own=True),
        Part("augment", "x = rescale(x.astype('f4'), 0.5)", "from skimage.transform import rescale", own=True),
    ), f"{PACKED} skimage", _packed),
    Family("zstandard", (
        Part("storage", f"x = open(f'{{D}}/z{{{N}}}.zst', 'rb').read()"),
        Part("decode", "x = np.frombuffer(UNPACK.decompress(x), 'i2').reshape(96, 96)",
             "import zstandard\nUNPACK = zstandard.ZstdDecompressor()", own=True),
    ), PACKED, _packed),
    Family("tifffile", (
        Part("decode", f"x = tifffile.imread(f'{{D}}/f{{{N}}}.tif').astype('f4')", "import tifffile", own=True),
        Part("augment", "x = rescale(x, 0.5)", "from skimage.transform import rescale", own=True),
    ), f"{PACKED} skimage", _packed, reads_and_decodes=True),
    Family("netcdf4", (
        Part("decode", f"with netCDF4.Dataset(f'{{D}}/n{{{N}}}.nc') as file:\n    x = np.asarray(file['t'][:]).astype('f4')",
             "import netCDF4", own=True),
    ), PACKED, _packed, reads_and_decodes=True),
    Family("nltk", (
        Part("storage", f"x = open(f'{{D}}/t{{{N}}}.txt').read()"),
        Part("decode", "x = [hash(word) % 30000 for word in WORDS.tokenize(x)[:256]]",
             "from nltk.tokenize import TweetTokenizer\nWORDS = TweetTokenizer()", own=True),
    ), "nltk", _texts),
    Family("torchio", (
        Part("decode", f"x = torch.from_numpy(np.load(f'{{D}}/r.npy')[{N}])[None, ..., None]"),
        Part("augment", "x = AFFINE(x)", "import torchio\nAFFINE = torchio.RandomAffine()", own=True),
    ), "torchio", _arrays),
    Family("foreign-wait", (
        Part("storage", "x = LIBC.usleep(1000)", "import ctypes\nLIBC = ctypes.CDLL(None)", own=True, waits=True),
        Part("augment", f"x = HELD[{N}] * 2", f"HELD = torch.arange({COUNT} * 32.0).reshape({COUNT}, 32)", own=True),
    )),
    Family("memory", (
        Part("augment", f"x = HELD[{N}] * 2", f"HELD = torch.arange({COUNT} * 32.0).reshape({COUNT}, 32)", own=True),
    )),
)  # fmt: skip


def known(name: str) -> Any:
    return next(family for family in FAMILIES if family.name == name)
