"""What a fused sample costs, against decoding alone: originals of about 110 kB, files of 256 px, raw pixels of 256 px.

Arms are interleaved in rounds; figures are medians over the rounds. The peers' rows are there where the peer can be imported.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torchvision import transforms as v1
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms import v2

from benchmarks.harness.bar import Bar
from benchmarks.harness.page import rows
from benchmarks.harness.record import Record
from benchmarks.harness.turns import in_turns
from pipefix.kernels.kernel import Kernel, best, native
from pipefix.kernels.request import Box, Target
from pipefix.kernels.twin import TwinKernel
from pipefix.loader.fusing.errors import NotFused
from pipefix.loader.fusing.fuse import Fused, fuse
from pipefix.loader.fusing.picture_loading import PictureLoading
from pipefix.loader.fusing.sample_random import sample_key

TITLE = "Fused samples against decoding alone"
ISSUE = "4, bar 2"
MINUTES = 6
QUICK = {"pictures": 8, "rounds": 1, "seconds": 0.05, "threads": [1], "inputs": ["originals"]}
MEAN, DEVIATION = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
BATCH, SIDE = 64, 224
PIL_LIST = v1.Compose([v1.RandomResizedCrop(SIDE), v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize(MEAN, DEVIATION)])
TENSOR_LIST = v2.Compose(
    [
        v2.RandomResizedCrop(SIDE, antialias=True),
        v2.RandomHorizontalFlip(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(MEAN, DEVIATION),
    ]
)
Job = Callable[[int, int], Any]
"""Makes the picture of that number; the second figure is the thread's."""


class Pictures:
    """Drawn from seeds, as full of detail as photographs: originals, the same with a short side of 256, and those decoded."""

    def __init__(self, count: int, folder: Path) -> None:
        rng = np.random.default_rng(0)
        self.files: dict[str, list[Path]] = {"originals": [], "256 px": []}
        self.bytes: dict[str, list[bytes]] = {"originals": [], "256 px": []}
        self.pixels: list[np.ndarray[Any, Any]] = []
        for number in range(count):
            image = self.drawn(rng)
            scale = 256 / min(image.size)
            small = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BICUBIC)
            self.keep(folder, "originals", number, image, int(rng.integers(85, 96)))
            self.keep(folder, "256 px", number, small, 90)
            self.pixels.append(np.asarray(Image.open(io.BytesIO(self.bytes["256 px"][-1])).convert("RGB")))

    @staticmethod
    def drawn(rng: np.random.Generator) -> Image.Image:
        width, height = (int(np.clip(rng.normal(*about), 200, 900)) for about in ((480, 90), (400, 80)))
        frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])
        frequency[0, 0] = 1
        grey, *colours = (rng.normal(size=frequency.shape) + 1j * rng.normal(size=frequency.shape) for _ in range(4))
        steep = rng.uniform(0.9, 1.3)
        made = [np.fft.irfft2((0.92 * grey + 0.39 * colour) / frequency**steep, s=(height, width)) for colour in colours]
        values = np.stack([(one - one.mean()) / one.std() for one in made], axis=-1) * 55 + rng.uniform(90, 150)
        return Image.fromarray(np.clip(values, 0, 255).astype(np.uint8))

    def keep(self, folder: Path, kind: str, number: int, image: Image.Image, quality: int) -> None:
        path = folder / kind.replace(" ", "") / "all" / f"{number:05d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path, quality=quality)
        self.files[kind].append(path)
        self.bytes[kind].append(path.read_bytes())


def decoding(pictures: Pictures, kind: str) -> dict[str, Job]:
    """Whole pictures, from memory, and nothing else."""
    data = pictures.bytes[kind]
    tensors = [torch.frombuffer(bytearray(one), dtype=torch.uint8) for one in data]
    jobs: dict[str, Job] = {"decode alone: torchvision": lambda i, _: decode_jpeg(tensors[i], mode=ImageReadMode.RGB)}
    kernel = native()
    if kernel is not None:
        sizes = [Image.open(io.BytesIO(one)).size for one in data]
        jobs["decode alone: native"] = lambda i, _: kernel.jpeg_region(data[i], Box(0, 0, *sizes[i]))
    return jobs


def compiled(source: str, mode: str, kernel: Kernel) -> Fused:
    try:
        return fuse(PIL_LIST if source == "pil" else TENSOR_LIST, PictureLoading(source), mode=mode, kernel=kernel)
    except NotFused as error:
        raise SystemExit(f"The list was not fused: {error}") from error


def fusing(pictures: Pictures, kind: str, targets: list[Target]) -> dict[str, Job]:
    """From the file, or from pixels, into the batch."""
    jobs: dict[str, Job] = {}
    for kernel in filter(None, (native(), TwinKernel())):
        for source, mode, name in (("tensor", "close", "as torchvision"), ("pil", "exact", "as Pillow, exact")):
            fused = compiled(source, mode, kernel)
            jobs[f"{kernel.name}, {name}"] = file_job(fused, pictures, kind, targets)
    return jobs


def file_job(fused: Fused, pictures: Pictures, kind: str, targets: list[Target]) -> Job:
    if kind == "raw 256 px":
        pixels = pictures.pixels
        return lambda i, thread: fused.pixels_into(pixels[i], targets[thread], i % BATCH, sample_key(0, 0, i))
    files = [str(path) for path in pictures.files[kind]]

    def make(i: int, thread: int) -> None:
        with open(files[i], "rb", buffering=0) as file:
            data = file.readall()
        fused.jpeg_into(data, targets[thread], i % BATCH, sample_key(0, 0, i))

    return make


def listed(pictures: Pictures, kind: str, targets: list[Target]) -> dict[str, Job]:
    """The user's own list, called by threads, each sample copied into the batch."""
    if kind == "raw 256 px":
        tensors = [torch.from_numpy(one.copy()).permute(2, 0, 1) for one in pictures.pixels]
        return {"the list itself, v2": lambda i, thread: targets[thread].tensor[i % BATCH].copy_(TENSOR_LIST(tensors[i]))}
    data = [torch.frombuffer(bytearray(one), dtype=torch.uint8) for one in pictures.bytes[kind]]
    raw = pictures.bytes[kind]

    def by_tensors(i: int, thread: int) -> None:
        targets[thread].tensor[i % BATCH].copy_(TENSOR_LIST(decode_jpeg(data[i], mode=ImageReadMode.RGB)))

    def by_pillow(i: int, thread: int) -> None:
        targets[thread].tensor[i % BATCH].copy_(PIL_LIST(Image.open(io.BytesIO(raw[i])).convert("RGB")))

    return {"the list itself, v2 and decode_jpeg": by_tensors, "the list itself, v1 and Pillow": by_pillow}


class Dali:
    """DALI on the CPU: the region is decoded, then an antialiased random crop, flip and normalisation."""

    def __init__(self, files: list[Path], threads: int) -> None:
        from nvidia.dali import fn, pipeline_def, types

        @pipeline_def(batch_size=BATCH, num_threads=threads, device_id=None, seed=1, prefetch_queue_depth=2)
        def pipe() -> Any:
            data, _ = fn.readers.file(files=[str(path) for path in files], random_shuffle=True, name="R")
            image = fn.decoders.image_random_crop(
                data, random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3], output_type=types.RGB
            )
            image = fn.resize(image, size=[SIDE, SIDE], interp_type=types.INTERP_LINEAR, antialias=True)
            mean, deviation = ([value * 255 for value in each] for each in (MEAN, DEVIATION))
            flip = fn.random.coin_flip()
            return fn.crop_mirror_normalize(image, dtype=types.FLOAT, output_layout="CHW", mean=mean, std=deviation, mirror=flip)

        self.pipe = pipe()
        self.pipe.build()
        self.pipe.run()

    def rate(self, seconds: float) -> float:
        begun, made = time.perf_counter(), 0
        while time.perf_counter() - begun < seconds:
            self.pipe.run()
            made += BATCH
        return made / (time.perf_counter() - begun)


def rate(job: Job, count: int, threads: int, seconds: float) -> float:
    """Pictures a second over about so long; every thread takes the next number of its own."""
    begun = time.perf_counter()
    made = [0] * threads

    def work(thread: int) -> None:
        i = thread
        while time.perf_counter() - begun < seconds:
            job(i % count, thread)
            i += threads
            made[thread] += 1

    workers = [threading.Thread(target=work, args=(thread,)) for thread in range(1, threads)]
    for worker in workers:
        worker.start()
    work(0)
    for worker in workers:
        worker.join()
    return sum(made) / (time.perf_counter() - begun)


def measured(pictures: Pictures, kind: str, threads: int, rounds: int, seconds: float) -> dict[str, list[float]]:
    targets = [Target(torch.zeros((BATCH, 3, SIDE, SIDE))) for _ in range(threads)]
    count = len(pictures.pixels)
    jobs = decoding(pictures, "originals" if kind == "raw 256 px" else kind)
    jobs |= fusing(pictures, kind, targets) | listed(pictures, kind, targets)
    arms: dict[str, Callable[[], float]] = {
        name: (lambda job=job: rate(job, count, threads, seconds))  # type: ignore[misc]
        for name, job in jobs.items()
    }
    if kind != "raw 256 px" and importlib.util.find_spec("nvidia") and importlib.util.find_spec("nvidia.dali"):
        dali = Dali(pictures.files[kind], threads)
        arms["DALI on the CPU"] = lambda: dali.rate(seconds)
    return in_turns(arms, rounds, order="fixed")


def told(kind: str, threads: int, rates: dict[str, list[float]]) -> list[dict[str, Any]]:
    middle = {name: statistics.median(each) for name, each in rates.items()}
    limit = max(value for name, value in middle.items() if name.startswith("decode alone"))
    return [
        {
            "input": kind,
            "threads": threads,
            "arm": name,
            "rate": round(value, 1),
            "low": round(min(rates[name]), 1),
            "high": round(max(rates[name]), 1),
            "ms_a_sample_and_core": round(1e3 * threads / value, 3),
            "of_decoding": round(value / limit, 3),
        }
        for name, value in middle.items()
    ]


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pictures", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="length of one arm in one round (default 0.5)")
    parser.add_argument("--threads", type=int, nargs="*", default=sorted({1, os.cpu_count() or 1}))
    parser.add_argument("--inputs", nargs="*", default=["originals", "256 px", "raw 256 px"])


def measure(options: argparse.Namespace, record: Record) -> None:
    torch.set_num_threads(1)
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        pictures = Pictures(options.pictures, Path(folder))
        for kind in options.inputs:
            for threads in options.threads:
                new = told(kind, threads, measured(pictures, kind, threads, options.rounds, options.seconds))
                found += new
                for row in new:
                    print(f"{kind:11} {threads} {row['arm']:36} {row['rate']:7.0f}/s {row['of_decoding']:.2f}", flush=True)
    close, exact = compiled("pil", "close", best()).difference, compiled("pil", "exact", best()).difference
    assert close is not None
    assert exact is not None
    record.body["about"] = {
        "pictures": options.pictures,
        "original_bytes": statistics.mean(map(len, pictures.bytes["originals"])),
        "small_bytes": statistics.mean(map(len, pictures.bytes["256 px"])),
        "loops": getattr(native(), "loops", "none"),
        "difference": f"Against the list itself with Pillow: exact, {exact.sentence()}; close, {close.sentence()}.",
    }
    record.body["rows"] = found


def bars(body: dict[str, Any]) -> list[Bar]:
    """The bars of the fused path are those of `peers`; these figures say where its time goes."""
    return []


def table(body: dict[str, Any]) -> str:
    about = body["about"]
    cells = [
        [
            one["input"], one["threads"], one["arm"], f"{one['rate']:.0f}", f"{one['low']:.0f}-{one['high']:.0f}",
            f"{one['ms_a_sample_and_core']:.3f}", f"{one['of_decoding']:.2f}",
        ]
        for one in body["rows"]
    ]  # fmt: skip
    head = ["input", "threads", "arm", "pictures/s", "lowest-highest", "ms a sample and core", "of decoding"]
    return f"""
{about["pictures"]} drawn pictures, {about["original_bytes"] / 1e3:.0f} kB on average, {about["small_bytes"] / 1e3:.0f} kB at 256 px.
Native loops: {about["loops"]}. Each sample is decoded, cropped at random, resized to 224 with antialiasing, flipped, normalised and
written to a float32 batch. Fused samples are read from files in the page cache; "decode alone" decodes whole pictures from memory.
"Of decoding" is the rate over that of the quicker decoder; raw pixels are compared with decoding the originals.
{about["difference"]}

{rows(head, cells)}"""
