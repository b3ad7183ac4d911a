"""Slow pipelines with real work, as people write them, for `scripts/bench fix`. Each function of `PIPELINES` makes one loader.

Slow storage is planted: files below a folder called ``slow-N`` take N milliseconds to open, as they do on a busy network share.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, RandomSampler
from torchvision import transforms
from torchvision.datasets import ImageFolder

LONG = 10_000_000
"""Samples that a sampler draws: an epoch that does not end while it is measured."""

SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int slowly(const char *name, const char *path, int flags, int mode) {
    const char *at = strstr(path, "/slow-");
    if (at) {
        long ms = strtol(at + 6, 0, 10);
        struct timespec wait = {ms / 1000, (ms % 1000) * 1000000};
        nanosleep(&wait, 0);
    }
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, name);
    return real(path, flags, mode);
}

#define OPEN(name)                              \\
    int name(const char *path, int flags, ...) { \\
        va_list rest;                           \\
        va_start(rest, flags);                  \\
        int mode = va_arg(rest, int);           \\
        va_end(rest);                           \\
        return slowly(#name, path, flags, mode); \\
    }
OPEN(open)
OPEN(open64)
"""
"""The C library's ``open``, but slow: whatever a program does above it, it waits as it would for a slow server."""


def slow_storage(place: Path) -> Path:
    """The library that is loaded before all others (``LD_PRELOAD``)."""
    place.mkdir(parents=True, exist_ok=True)
    made = place / "slow_open.so"
    if not made.exists():
        (place / "slow_open.c").write_text(SHIM)
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(made), str(place / "slow_open.c"), "-ldl"], check=True)
    return made


# -- files -------------------------------------------------------------------------------------------------------------------


def drawn(folder: Path, count: int, make: Callable[[int], bytes], suffix: str) -> list[Path]:
    """``count`` files, made once, and in memory as after a first epoch: slow storage is what a pipeline is planted with."""
    paths = [folder / f"class-{number % 4}" / f"{number:05d}{suffix}" for number in range(count)]
    if not (folder / ".drawn").exists():
        for number, path in enumerate(paths):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(make(number))
        (folder / ".drawn").touch()
    for path in paths:
        path.read_bytes()
    return paths


def picture(width: int, height: int, kind: str, quality: int = 90) -> Callable[[int], bytes]:
    def make(number: int) -> bytes:
        rng = np.random.default_rng(number)
        coarse = rng.integers(0, 256, (max(2, height // 16), max(2, width // 16), 3), dtype=np.uint8)
        image = np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)).astype(np.int16)
        image = np.clip(image + rng.normal(0, 8, (height, width, 1)).astype(np.int16), 0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(image).save(file, kind, **({"quality": quality} if kind == "JPEG" else {}))
        return file.getvalue()

    return make


def arrays(number: int) -> bytes:
    rng = np.random.default_rng(number)
    file = io.BytesIO()
    np.savez_compressed(file, x=rng.normal(size=(128, 128)).round(2).astype(np.float32), y=number % 10)
    return file.getvalue()


def vector(number: int) -> bytes:
    file = io.BytesIO()
    np.save(file, np.random.default_rng(number).normal(size=64).astype(np.float32))
    return file.getvalue()


def text(number: int) -> bytes:
    rng = np.random.default_rng(number)
    words = ["".join(chr(97 + letter) for letter in rng.integers(0, 26, rng.integers(2, 9))) for _ in range(600)]
    return " ".join(words).encode()


def record(number: int) -> bytes:
    rng = np.random.default_rng(number)
    rows = [{"id": row, "values": rng.normal(size=24).round(4).tolist(), "name": f"n{row}"} for row in range(40)]
    return json.dumps({"rows": rows, "label": number % 7}).encode()


# -- datasets ----------------------------------------------------------------------------------------------------------------


class Files(Dataset[Any]):
    """Reads a file, decodes it, transforms it."""

    def __init__(self, paths: list[Path], decode: Callable[[bytes], Any], transform: Callable[[Any], Any] | None = None) -> None:
        self.paths, self.decode, self.transform = paths, decode, transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        with open(self.paths[index], "rb") as file:
            data = file.read()
        value = self.decode(data)
        return self.transform(value) if self.transform is not None else value, index % 4


def pil(data: bytes) -> Any:
    return Image.open(io.BytesIO(data)).convert("RGB")


def opencv(data: bytes) -> Any:
    return cv2.cvtColor(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)


def npz(data: bytes) -> Any:
    with np.load(io.BytesIO(data)) as held:
        return torch.from_numpy(held["x"])


def npy(data: bytes) -> Any:
    return torch.from_numpy(np.load(io.BytesIO(data)))


_WORD = re.compile(r"[a-z]+")


def tokens(data: bytes) -> Any:
    """Words into pieces of at most three letters, by their hashes: what tokenisers in Python spend their time on."""
    pieces = [word[at : at + 3] for word in _WORD.findall(data.decode()) for at in range(0, len(word), 3)]
    ids = [sum(ord(letter) * 31**place for place, letter in enumerate(piece)) % 30_000 for piece in pieces]
    return torch.tensor((ids + [0] * 1024)[:1024])


def features(data: bytes) -> Any:
    held = json.loads(data)
    return torch.tensor([row["values"] for row in held["rows"]])


def gunzipped(data: bytes) -> Any:
    return torch.tensor([[float(cell) for cell in line.split(",")] for line in gzip.decompress(data).decode().splitlines()])


def table(number: int) -> bytes:
    rows = np.random.default_rng(number).normal(size=(150, 12)).round(4)
    return gzip.compress("\n".join(",".join(map(str, row)) for row in rows.tolist()).encode())


class Blurred:
    """OpenCV's own threads, in every worker."""

    def __call__(self, image: Any) -> Any:
        for size in (15, 21, 27):
            image = cv2.GaussianBlur(image, (size, size), 0)
        return torch.from_numpy(np.ascontiguousarray(cv2.resize(image, (224, 224))))


TRAINING = transforms.Compose(
    [
        transforms.RandomResizedCrop(224),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ]
)
RESIZING = transforms.Compose(
    [transforms.Resize(256), transforms.CenterCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
)
HEAVY = transforms.Compose(
    [
        transforms.RandomResizedCrop(160),
        transforms.ColorJitter(0.4, 0.4, 0.4, 0.1),
        transforms.RandomApply([transforms.GaussianBlur(9)], p=0.8),
        transforms.RandomRotation(15),
        transforms.ToTensor(),
    ]
)
SMALL = transforms.Compose([transforms.RandomCrop(56), transforms.RandomHorizontalFlip(), transforms.ToTensor()])


def _loader(dataset: Any, *, batch: int = 32, workers: int = 0, **options: Any) -> DataLoader[Any]:
    sampler = RandomSampler(dataset, replacement=True, num_samples=LONG)
    return DataLoader(dataset, batch_size=batch, sampler=sampler, num_workers=workers, **options)


Maker = Callable[[Path], tuple[DataLoader[Any], dict[str, Any]]]


def _files(name: str, count: int, make: Callable[[int], bytes], suffix: str, **options: Any) -> Maker:
    decode, transform = options.pop("decode"), options.pop("transform", None)
    consumer = {"step_ms": options.pop("step_ms")} if "step_ms" in options else {}

    def made(place: Path) -> tuple[DataLoader[Any], dict[str, Any]]:
        return _loader(Files(drawn(place / name, count, make, suffix), decode, transform), **options), consumer

    return made


def _folder(place: Path) -> tuple[DataLoader[Any], dict[str, Any]]:
    drawn(place / "photos", 400, picture(640, 480, "JPEG"), ".jpg")
    return _loader(ImageFolder(place / "photos", TRAINING)), {}


_small = {"decode": pil, "transform": SMALL}
_big = {"decode": pil, "transform": RESIZING}
_blurred = {"decode": opencv, "transform": Blurred()}
_cropped = {"decode": pil, "transform": transforms.Compose([transforms.RandomCrop(224), transforms.ToTensor()])}
PIPELINES: dict[str, Maker] = {
    "many small JPEGs on slow storage": _files("slow-4/small", 1500, picture(64, 64, "JPEG"), ".jpg", **_small),
    "the same with two workers": _files("slow-4/small", 1500, picture(64, 64, "JPEG"), ".jpg", workers=2, **_small),
    "text files on slow storage": _files("slow-6/text", 800, text, ".txt", decode=tokens, workers=1),
    "ImageFolder with the defaults": _folder,
    "big JPEGs resized to 224": _files("big", 300, picture(1600, 1200, "JPEG"), ".jpg", **_big),
    "big JPEGs resized to 224, two workers": _files("big", 300, picture(1600, 1200, "JPEG"), ".jpg", workers=2, **_big),
    "big JPEGs beside a step": _files("big", 300, picture(1600, 1200, "JPEG"), ".jpg", workers=2, step_ms=150, **_big),
    "PNG, two workers": _files("png", 400, picture(384, 384, "PNG"), ".png", workers=2, **_cropped),
    "heavy augmentation": _files("medium", 400, picture(256, 256, "JPEG"), ".jpg", decode=pil, transform=HEAVY),
    "tiny samples": _files("tiny", 4000, vector, ".npy", decode=npy, batch=64),
    "tiny samples, eight workers": _files("tiny", 4000, vector, ".npy", decode=npy, batch=64, workers=8),
    "OpenCV's threads in two workers": _files("medium", 400, picture(256, 256, "JPEG"), ".jpg", workers=2, **_blurred),
    "tokenising in Python": _files("text", 800, text, ".txt", decode=tokens),
    "compressed npz": _files("npz", 800, arrays, ".npz", decode=npz),
    "compressed npz, two workers": _files("npz", 800, arrays, ".npz", decode=npz, workers=2),
    "JSON records": _files("json", 800, record, ".json", decode=features),
    "gzipped CSV beside a step": _files("csv", 800, table, ".csv.gz", decode=gunzipped, step_ms=20),
}
