"""Loaders that make the same batches of the same pictures, each as its own users would set it up for speed; one runs in a process.

    python scripts/peer_arms.py ARM INPUT FOLDER WORKERS EPOCHS

Batches of 64: an antialiased random resized crop of 224, a flip, normalised floats, and labels. Prints one line of JSON: pictures a
second of each epoch after the first, seconds from the loader's construction to its first batch, and what that batch looked like.
Only the peer itself is imported, so that each may have an environment of its own.
"""

from __future__ import annotations

import glob
import json
import math
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

MEAN, DEVIATION = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
BATCH, SIDE = 64, 224
Epoch = Callable[[], Iterator[Any]]
Make = Callable[[], Epoch]
"""Constructs the loader; what it needs was imported, and its data lies there already."""


@dataclass
class Job:
    """Where an arm's data lie, and how much it may use."""

    input: str
    """``originals``, ``256px`` or ``raw``."""
    folder: str
    workers: int

    @property
    def pictures(self) -> str:
        return os.path.join(self.folder, "originals" if self.input == "originals" else "256px")

    @property
    def files(self) -> list[str]:
        return sorted(glob.glob(os.path.join(self.pictures, "*", "*.jpg")))

    @property
    def labels(self) -> list[int]:
        names = sorted(os.listdir(self.pictures))
        return [names.index(path.split(os.sep)[-2]) for path in self.files]

    def place(self, kind: str) -> str:
        """Where an arm keeps its own format."""
        return os.path.join(self.folder, f"{kind}-{self.input}")

    def made(self, kind: str, make: Callable[[str], None]) -> str:
        """The same, made if it is not there."""
        place = self.place(kind)
        if not os.path.exists(place + ".made"):
            os.makedirs(place, exist_ok=True)
            make(place)
            open(place + ".made", "w").close()
        return place

    def pixels(self) -> tuple[Any, list[tuple[int, int, int]]]:
        """All pictures decoded, in one file, with the place, height and width of each."""
        from PIL import Image

        def make(place: str) -> None:
            index, at = [], 0
            with open(os.path.join(place, "pixels"), "wb") as out:
                for path in self.files:
                    array = np.asarray(Image.open(path).convert("RGB"))
                    out.write(array.tobytes())
                    index.append((at, array.shape[0], array.shape[1]))
                    at += array.nbytes
            np.save(os.path.join(place, "index.npy"), np.array(index))

        place = self.made("pixels", make)
        every = np.memmap(os.path.join(place, "pixels"), np.uint8, "r")
        index = [tuple(one) for one in np.load(os.path.join(place, "index.npy")).tolist()]
        return every, index


# -- what several of them do -----------------------------------------------------------------------------------------------


def v1_list() -> Any:
    from torchvision import transforms

    steps = [transforms.RandomResizedCrop(SIDE), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    return transforms.Compose([*steps, transforms.Normalize(MEAN, DEVIATION)])


def v2_list() -> Any:
    import torch
    from torchvision.transforms import v2

    steps = [v2.RandomResizedCrop(SIDE, antialias=True), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)]
    return v2.Compose([*steps, v2.Normalize(MEAN, DEVIATION)])


def by_torchvision(data: Any) -> Any:
    import torch
    from torchvision.io import ImageReadMode, decode_jpeg

    return decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8), mode=ImageReadMode.RGB)


def samples(job: Job) -> Callable[[int], Any]:
    """By number: decoded by torchvision, or a view of raw pixels, and transformed as tensors."""
    import torch

    transform, files = v2_list(), job.files
    if job.input == "raw":
        every, index = job.pixels()

        def from_pixels(number: int) -> Any:
            at, height, width = index[number]
            pixels = np.array(every[at : at + 3 * height * width]).reshape(height, width, 3)
            return transform(torch.from_numpy(pixels).permute(2, 0, 1))

        return from_pixels

    def from_file(number: int) -> Any:
        with open(files[number], "rb") as file:
            return transform(by_torchvision(file.read()))

    return from_file


def looped(loader: Any, shown: Callable[[Any], Any] | None = None) -> Epoch:
    def epoch() -> Iterator[Any]:
        for batch in loader:
            yield batch if shown is None else shown(batch)

    return epoch


def random_box(height: int, width: int) -> tuple[int, int, int, int]:
    area = height * width
    for _ in range(10):
        wanted = area * random.uniform(0.08, 1)
        aspect = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        across, down = round(math.sqrt(wanted * aspect)), round(math.sqrt(wanted / aspect))
        if 0 < across <= width and 0 < down <= height:
            return random.randint(0, height - down), random.randint(0, width - across), down, across
    side = min(height, width)
    return (height - side) // 2, (width - side) // 2, side, side


# -- ours ------------------------------------------------------------------------------------------------------------------


def fast_loader(job: Job, *, fuse: str = "close", native: bool = True) -> Make:
    import warnings

    warnings.simplefilter("ignore")
    if not native:
        sys.modules["pipefix.kernels._native"] = None  # type: ignore[assignment]
    from torchvision.datasets import ImageFolder

    from pipefix import FastLoader

    dataset: Any = ImageFolder(job.pictures, v1_list())
    if job.input == "raw":
        from pipefix.caches.convert import convert, recipe_of
        from pipefix.caches.dataset import CachedDataset

        def make(place: str) -> None:
            convert(dataset, recipe_of("lmdb", "decoded", size=256), os.path.join(place, "cache"), target="pictures", workers=1)

        dataset = CachedDataset(os.path.join(job.made("pipefix", make), "cache"), dataset=dataset)

    def build() -> Epoch:
        stay = {"persistent_workers": job.workers > 0}
        loader = FastLoader(dataset, batch_size=BATCH, shuffle=True, drop_last=True, num_workers=job.workers, fuse=fuse, **stay)
        assert "by fused calls" in loader.explain(), loader.explain()
        return looped(loader)

    return build


# -- peers -----------------------------------------------------------------------------------------------------------------


def data_loader(job: Job) -> Make:
    import torch
    from torchvision.datasets import ImageFolder

    dataset = ImageFolder(job.pictures, v1_list())
    return lambda: looped(
        torch.utils.data.DataLoader(
            dataset, BATCH, shuffle=True, drop_last=True, num_workers=job.workers, persistent_workers=job.workers > 0
        )
    )


def torchvision_io(job: Job) -> Make:
    import torch

    one, labels = samples(job), job.labels

    class Pictures(torch.utils.data.Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return len(labels)

        def __getitem__(self, number: int) -> Any:
            return one(number), labels[number]

    return lambda: looped(
        torch.utils.data.DataLoader(
            Pictures(), BATCH, shuffle=True, drop_last=True, num_workers=job.workers, persistent_workers=job.workers > 0
        )
    )


def dali(job: Job, *, dynamic: bool = True) -> Make:
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.base_iterator import LastBatchPolicy
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    arrays = _arrays(job) if job.input == "raw" else []
    area, aspect = [0.08, 1.0], [3 / 4, 4 / 3]

    @pipeline_def(batch_size=BATCH, num_threads=job.workers, device_id=None, seed=1, exec_dynamic=dynamic)  # type: ignore[untyped-decorator]
    def pipeline() -> Any:
        if job.input == "raw":
            images = fn.reshape(
                fn.readers.numpy(device="cpu", files=arrays, random_shuffle=True, initial_fill=1200, name="R"), layout="HWC"
            )
            images = fn.random_resized_crop(
                images,
                size=(SIDE, SIDE),
                random_area=area,
                random_aspect_ratio=aspect,
                interp_type=types.INTERP_LINEAR,
                antialias=True,
            )
            labels = None
        else:
            encoded, labels = fn.readers.file(file_root=job.pictures, random_shuffle=True, initial_fill=1200, name="R")
            images = fn.decoders.image_random_crop(
                encoded, device="cpu", output_type=types.RGB, random_area=area, random_aspect_ratio=aspect, num_attempts=10
            )
            images = fn.resize(images, size=(SIDE, SIDE), interp_type=types.INTERP_LINEAR, antialias=True)
        images = fn.crop_mirror_normalize(
            images, dtype=types.FLOAT, output_layout="CHW", mean=[m * 255 for m in MEAN], std=[s * 255 for s in DEVIATION],
            mirror=fn.random.coin_flip(),
        )  # fmt: skip
        return images if labels is None else (images, labels)

    names = ["x"] if job.input == "raw" else ["x", "y"]

    def build() -> Epoch:
        iterator = DALIGenericIterator(pipeline(), names, reader_name="R", auto_reset=True, last_batch_policy=LastBatchPolicy.DROP)
        return looped(iterator, lambda batch: (batch[0]["x"], batch[0]["y"][:, 0] if "y" in batch[0] else np.zeros(BATCH)))

    return build


def _arrays(job: Job) -> list[str]:
    from PIL import Image

    def make(place: str) -> None:
        for number, path in enumerate(job.files):
            np.save(os.path.join(place, f"{number:06d}.npy"), np.asarray(Image.open(path).convert("RGB")))

    return sorted(glob.glob(os.path.join(job.made("npy", make), "*.npy")))


def spdl(job: Job) -> Make:
    """One task a batch: as its documentation advises, and as is quickest."""
    import cv2
    import simplejpeg
    import torch
    from spdl.pipeline import PipelineBuilder

    torch.set_num_threads(1)
    cv2.setNumThreads(0)
    files, labels = job.files, job.labels
    every, index = job.pixels() if job.input == "raw" else (None, [])
    scale = 1 / (torch.tensor(DEVIATION).view(1, 3, 1, 1) * 255)
    mean = torch.tensor(MEAN).view(1, 3, 1, 1) * 255

    def decoded(number: int) -> Any:
        if job.input == "raw":
            at, height, width = index[number]
            return every[at : at + 3 * height * width].reshape(height, width, 3)
        with open(files[number], "rb") as file:
            return simplejpeg.decode_jpeg(file.read())

    def load(numbers: list[int]) -> Any:
        pixels = np.empty((len(numbers), SIDE, SIDE, 3), np.uint8)
        for place, number in enumerate(numbers):
            picture = decoded(number)
            top, left, height, width = random_box(*picture.shape[:2])
            # The average over areas is OpenCV's antialiasing; it enlarges by interpolating.
            how = cv2.INTER_AREA if height > SIDE and width > SIDE else cv2.INTER_LINEAR
            made = cv2.resize(picture[top : top + height, left : left + width], (SIDE, SIDE), interpolation=how)
            if random.random() < 0.5:
                cv2.flip(made, 1, pixels[place])
            else:
                np.copyto(pixels[place], made)
        images = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous().float().sub_(mean).mul_(scale)
        return images, torch.tensor([labels[number] for number in numbers])

    def epoch() -> Iterator[Any]:
        order = np.random.permutation(len(files)).tolist()
        builder = PipelineBuilder().add_source(order).aggregate(BATCH, drop_last=True).pipe(load, concurrency=job.workers)
        pipeline = builder.add_sink(2).build(num_threads=job.workers)
        with pipeline.auto_stop():
            yield from pipeline

    return lambda: epoch


def ffcv(job: Job) -> Make:
    from ffcv.fields import IntField, RGBImageField
    from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage
    from ffcv.writer import DatasetWriter
    from PIL import Image

    files, labels = job.files, job.labels

    class Pictures:
        def __len__(self) -> int:
            return len(files)

        def __getitem__(self, number: int) -> Any:
            return Image.open(files[number]).convert("RGB"), labels[number]

    def make(place: str) -> None:
        how = {"write_mode": "raw"} if job.input == "raw" else {"write_mode": "jpg", "jpeg_quality": 90}
        fields = {"image": RGBImageField(**how), "label": IntField()}
        DatasetWriter(os.path.join(place, "all.beton"), fields, num_workers=job.workers).from_indexed_dataset(Pictures())

    where = os.path.join(job.made("ffcv", make), "all.beton")
    mean, deviation = np.array(MEAN) * 255, np.array(DEVIATION) * 255
    images = [
        RandomResizedCropRGBImageDecoder((SIDE, SIDE), scale=(0.08, 1.0)), RandomHorizontalFlip(),
        NormalizeImage(mean, deviation, np.float32), ToTensor(), ToTorchImage(),
    ]  # fmt: skip
    pipelines = {"image": images, "label": [IntDecoder(), ToTensor(), Squeeze()]}
    options = {"order": OrderOption.RANDOM, "os_cache": True, "drop_last": True, "batches_ahead": 3}
    return lambda: looped(Loader(where, batch_size=BATCH, num_workers=job.workers, pipelines=pipelines, **options))


def web_dataset(job: Job) -> Make:
    import io
    import tarfile

    import webdataset as wds

    def make(place: str) -> None:
        order, labels, files = np.random.default_rng(0).permutation(len(job.files)), job.labels, job.files
        for shard in range(12):
            with tarfile.open(os.path.join(place, f"{shard:03d}.tar"), "w") as tar:
                for number in order[shard::12]:
                    with open(files[number], "rb") as file:
                        parts = {"jpg": file.read(), "cls": str(labels[number]).encode()}
                    for suffix, data in parts.items():
                        entry = tarfile.TarInfo(f"{number:06d}.{suffix}")
                        entry.size = len(data)
                        tar.addfile(entry, io.BytesIO(data))

    shards = sorted(glob.glob(os.path.join(job.made("tar", make), "*.tar")))
    transform = v2_list()

    def build() -> Epoch:
        dataset = wds.WebDataset(shards, shardshuffle=12, empty_check=False).shuffle(1000).to_tuple("jpg", "cls")
        dataset = dataset.map_tuple(lambda data: transform(by_torchvision(data)), int).batched(BATCH, partial=False)
        return looped(wds.WebLoader(dataset, batch_size=None, num_workers=job.workers, persistent_workers=job.workers > 0))

    return build


def lit_data(job: Job) -> Make:
    import litdata
    import torch

    place = job.made("litdata", lambda place: _optimize(litdata, job, place))
    transform = v2_list()

    class Pictures(litdata.StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, index: Any) -> Any:
            one = super().__getitem__(index)
            image = one["image"]
            pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1) if job.input == "raw" else by_torchvision(image)
            return transform(pixels), one["label"]

    # Its loader pickles the dataset, by the name of its class.
    Pictures.__qualname__ = "LitPictures"
    globals()["LitPictures"] = Pictures

    def build() -> Epoch:
        dataset = Pictures(place, shuffle=True, drop_last=True)
        options = {"num_workers": job.workers, "drop_last": True, "persistent_workers": job.workers > 0}
        return looped(litdata.StreamingDataLoader(dataset, batch_size=BATCH, **options))

    return build


def _lit_sample(given: tuple[str, int, bool]) -> Any:
    from PIL import Image

    path, label, raw = given
    if raw:
        return {"image": np.asarray(Image.open(path).convert("RGB")), "label": label}
    with open(path, "rb") as file:
        return {"image": file.read(), "label": label}


def _optimize(litdata: Any, job: Job, place: str) -> None:
    inputs = [(path, label, job.input == "raw") for path, label in zip(job.files, job.labels, strict=True)]
    litdata.optimize(fn=_lit_sample, inputs=inputs, output_dir=place, chunk_bytes="16MB", num_workers=job.workers, verbose=False)


def mosaic(job: Job) -> Make:
    import torch
    from streaming import MDSWriter, StreamingDataset

    def make(place: str) -> None:
        with MDSWriter(out=place, columns={"image": "bytes", "label": "int"}, size_limit=1 << 24, exist_ok=True) as writer:
            for path, label in zip(job.files, job.labels, strict=True):
                with open(path, "rb") as file:
                    writer.write({"image": file.read(), "label": label})

    place, transform = job.made("mds", make), v2_list()

    class Pictures(StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, index: Any) -> Any:
            one = super().__getitem__(index)
            return transform(by_torchvision(one["image"])), one["label"]

    def build() -> Epoch:
        dataset = Pictures(local=place, shuffle=True, batch_size=BATCH)
        options = {"drop_last": True, "num_workers": job.workers, "persistent_workers": job.workers > 0}
        return looped(torch.utils.data.DataLoader(dataset, BATCH, **options))

    return build


def grain(job: Job, *, threads: bool) -> Make:
    """``threads``: read by threads of the process; else by worker processes that live on from epoch to epoch."""
    import grain as library
    import torch

    one, labels = samples(job), job.labels
    length = len(labels)

    class Load(library.transforms.Map):  # type: ignore[misc]
        def map(self, number: int) -> Any:
            torch.set_num_threads(1)
            return one(number).numpy(), np.int64(labels[number])

    class Numbers:
        def __len__(self) -> int:
            return length

        def __getitem__(self, number: int) -> int:
            return number

    def by_threads() -> Epoch:
        def epoch() -> Iterator[Any]:
            dataset = library.MapDataset.range(length).shuffle(seed=random.randint(0, 1 << 30)).map(Load())
            reading = library.ReadOptions(num_threads=job.workers, prefetch_buffer_size=2 * BATCH)
            for images, found in dataset.to_iter_dataset(reading).batch(BATCH, drop_remainder=True):
                yield torch.from_numpy(images), torch.from_numpy(found)

        return epoch

    def by_processes() -> Epoch:
        sampler = library.samplers.IndexSampler(
            length, shuffle=True, seed=1, num_epochs=100, shard_options=library.sharding.NoSharding()
        )
        loader = library.DataLoader(
            data_source=Numbers(), sampler=sampler, operations=[Load(), library.transforms.Batch(BATCH, drop_remainder=True)],
            worker_count=job.workers, worker_buffer_size=2,
            read_options=library.ReadOptions(num_threads=1, prefetch_buffer_size=64),
        )  # fmt: skip
        endless = iter(loader)

        def epoch() -> Iterator[Any]:
            for _ in range(length // BATCH):
                images, found = next(endless)
                yield torch.from_numpy(images), torch.from_numpy(found)

        return epoch

    return by_threads if threads else by_processes


# -- decoding alone --------------------------------------------------------------------------------------------------------


def decoding(job: Job) -> Make:
    """All cores decode those files, from memory, and do nothing else: by whatever decodes quickest here."""
    import threading

    import torch

    torch.set_num_threads(1)
    data = [open(path, "rb").read() for path in job.files]  # noqa: SIM115
    decoders: dict[str, Callable[[bytes], Any]] = {}
    import torchvision  # noqa: F401  (registers its operators)

    operator = torch.ops.image.decode_jpeg
    tensors = {id(one): torch.frombuffer(bytearray(one), dtype=torch.uint8) for one in data}
    decoders["torchvision"] = lambda one: operator(tensors[id(one)], 3, False)
    try:
        import simplejpeg

        decoders["simplejpeg"] = simplejpeg.decode_jpeg
    except ImportError:
        pass

    def timed(decode: Callable[[bytes], Any]) -> float:
        def some(begin: int) -> None:
            for one in data[begin :: job.workers]:
                decode(one)

        crew = [threading.Thread(target=some, args=(number,)) for number in range(job.workers)]
        begun = time.perf_counter()
        for thread in crew:
            thread.start()
        for thread in crew:
            thread.join()
        return time.perf_counter() - begun

    best = min(decoders, key=lambda name: timed(decoders[name]))

    def epoch() -> Iterator[Any]:
        timed(decoders[best])
        yield torch.empty((len(data), 0)), np.zeros(1)

    return lambda: epoch


ARMS: dict[str, tuple[Callable[[Job], Make], str, tuple[str, ...]]] = {
    "decoding alone": (decoding, "torchvision", ("originals", "256px")),
    "FastLoader, close": (fast_loader, "pipefix", ("originals", "256px", "raw")),
    "FastLoader, exact": (lambda job: fast_loader(job, fuse="exact"), "pipefix", ("originals", "256px", "raw")),
    "FastLoader, no native kernel": (lambda job: fast_loader(job, native=False), "pipefix", ("originals", "256px", "raw")),
    "DataLoader, ImageFolder": (data_loader, "torchvision", ("originals", "256px")),
    "DataLoader, torchvision.io": (torchvision_io, "torchvision", ("originals", "256px", "raw")),
    "DALI": (dali, "nvidia.dali", ("originals", "256px", "raw")),
    "DALI, static": (lambda job: dali(job, dynamic=False), "nvidia.dali", ("originals", "256px", "raw")),
    "SPDL": (spdl, "spdl.pipeline", ("originals", "256px", "raw")),
    "FFCV": (ffcv, "ffcv", ("originals", "256px", "raw")),
    "WebDataset": (web_dataset, "webdataset", ("originals", "256px")),
    "litdata": (lit_data, "litdata", ("originals", "256px", "raw")),
    "MosaicML Streaming": (mosaic, "streaming", ("originals", "256px")),
    "Grain, threads": (lambda job: grain(job, threads=True), "grain", ("originals", "256px", "raw")),
    "Grain, processes": (lambda job: grain(job, threads=False), "grain", ("originals", "256px", "raw")),
}
"""By name: how it is set up, the module that has to be there, and what it can read."""


def main() -> None:
    name, given, folder, workers, epochs = sys.argv[1:]
    random.seed(0)
    make = ARMS[name][0](Job(given, folder, int(workers)))
    begun = time.perf_counter()
    epoch = make()
    first, shown, rates = None, {}, []
    for number in range(int(epochs) + 1):
        started, count = time.perf_counter(), 0
        for images, labels in epoch():
            if first is None:
                first = time.perf_counter() - begun
                kinds = len(set(np.asarray(labels).reshape(-1).tolist()))
                shown = {"shape": list(images.shape), "labels": kinds, "dtype": str(images.dtype)}
                if images.numel():
                    shown |= {"mean": round(float(images.mean()), 3), "deviation": round(float(images.std()), 3)}
            count += len(images)
        if number:
            rates.append(count / (time.perf_counter() - started))
    print("RESULT " + json.dumps({"rates": rates, "first_s": first, "batch": shown}), flush=True)
    os._exit(0)  # some leave threads behind that would wait for ever


if __name__ == "__main__":
    main()
