"""Augmentation on a device: equal to the CPU's, fast enough, and fed without a copy. Figures are printed by scripts/gpu_check."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torchvision import transforms as v1
from torchvision.datasets import ImageFolder
from torchvision.datasets.folder import default_loader
from torchvision.datasets.vision import StandardTransform
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as tv

from pipefix.augment import parity
from pipefix.augment.module import Augment, run
from pipefix.augment.record import replayed, unpacked
from pipefix.augment.split import split
from pipefix.augment.swap import Swap, dali_loader
from pipefix.augment.transforms import find
from pipefix.loader.fast_loader import FastLoader
from tests.augment.calls import calls_of
from tests.augment.lists import ALL, pictures
from tests.gpu.conftest import Note

pytestmark = pytest.mark.gpu

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BATCH, SIDE = 256, 224
LISTS = {
    "RandomCrop": [v2.RandomCrop(SIDE, padding=4)],
    "RandomResizedCrop": [v2.RandomResizedCrop(SIDE)],
}
REST = [
    v2.RandomHorizontalFlip(),
    v2.ColorJitter(0.4, 0.4, 0.4, 0.1),
    v2.ToDtype(torch.float32, scale=True),
    v2.Normalize(MEAN, STD),
]


def milliseconds(work: Callable[[], Any], times: int = 30) -> float:
    """The median time of one call on the device, by events."""
    for _ in range(5):
        work()
    spans = []
    for _ in range(times):
        begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begun.record()
        work()
        ended.record()
        ended.synchronize()
        spans.append(begun.elapsed_time(ended))
    return statistics.median(spans)


@pytest.mark.parametrize("name", ALL)
def test_as_torchvision_on_the_cpu(name: str) -> None:
    images = pictures(64)
    programs = [unpacked(calls).calls for calls in calls_of(ALL[name], images)]
    expected = [replayed(calls, image) for calls, image in zip(programs, images, strict=True)]
    made = run(images.cuda(), programs)
    error = parity.measured(name, expected, list(made), 255.0 if expected[0].is_floating_point() else 1.0)
    assert error.within, error


@pytest.mark.parametrize("first", LISTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_time_of_a_batch(first: str, dtype: torch.dtype, note: Note) -> None:
    images = pictures(BATCH, SIDE, SIDE)
    augment, calls = Augment(dtype=dtype, channels_last=True), calls_of([*LISTS[first], *REST], images)
    images = images.cuda()
    took = milliseconds(lambda: augment(images, calls))
    note(f"{first} + flip + jitter + normalise, {BATCH} of {SIDE}, {dtype}".replace("torch.", ""), f"{took:.2f} ms (wanted: 3)")
    assert augment(images, calls).is_cuda


@pytest.fixture(scope="module")
def jpegs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("jpegs")
    files = []
    for place, one in enumerate(pictures(512, 375, 500)):
        files.append(folder / f"{place}.jpg")
        tv.to_pil_image(one).save(files[-1], quality=90)
    return files


def dali(jpegs: list[Path], **settings: Any) -> Any:
    pytest.importorskip("nvidia.dali")
    listed = [v1.RandomResizedCrop(SIDE), v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize(MEAN, STD)]
    return dali_loader(
        jpegs * 16, listed, labels=[0] * len(jpegs) * 16, batch_size=BATCH, shuffle=True, device="cuda", threads=8, **settings
    )


def test_mixed_decoding(jpegs: list[Path], note: Note) -> None:
    batches = dali(jpegs, drop_last=True)
    for _ in batches:
        pass
    begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begun.record()
    count = sum(len(images) for images, _ in batches)
    ended.record()
    ended.synchronize()
    note("DALI from JPEG bytes, mixed decoding", f"{count / begun.elapsed_time(ended) * 1e3:,.0f} images/s")
    assert count == len(batches) * BATCH


def test_batches_of_dali_are_on_the_device_and_as_on_the_cpu(jpegs: list[Path]) -> None:
    pytest.importorskip("nvidia.dali")
    listed = [v1.RandomResizedCrop(64), v1.RandomHorizontalFlip(), v1.ToTensor()]
    (there,), (here,) = (list(dali_loader(jpegs[:32], listed, batch_size=32, device=device)) for device in ("cuda", "cpu"))
    assert there[0].is_cuda
    # The device's decoder and its transform of cosines are others than libjpeg's.
    assert (there[0].cpu() - here[0]).abs().mean() * 255 < 1.5


class Trained:
    """ResNet-50 in bfloat16: images a second on one batch again and again, or on what a loader brings."""

    def __init__(self) -> None:
        from torchvision.models import resnet50

        self.network = resnet50().cuda().to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.01)
        self.loss = nn.CrossEntropyLoss()

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            value = self.loss(self.network(images.contiguous(memory_format=torch.channels_last)), labels)
        self.optimizer.zero_grad(set_to_none=True)
        value.backward()
        self.optimizer.step()

    def rate(self, batches: Any) -> float:
        begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begun.record()
        count = 0
        for images, labels in batches:
            self.step(images, labels)
            count += len(images)
        ended.record()
        ended.synchronize()
        return count / begun.elapsed_time(ended) * 1e3


@pytest.fixture(scope="module")
def trained() -> Trained:
    return Trained()


FEEDS = ("FastLoader, fused calls", "FastLoader, Kornia on the device", "DALI")


def fed_by(feed: str, jpegs: list[Path], workers: int) -> Any:
    """Batches of the same pictures, brought to the device in one of three ways."""
    if feed == "DALI":
        return dali(jpegs, drop_last=True)
    files = [(str(file), 0) for file in jpegs * 16]
    crop = [v1.RandomResizedCrop(SIDE), v1.RandomHorizontalFlip()]
    settings: dict[str, Any] = {
        "batch_size": BATCH, "shuffle": True, "drop_last": True, "num_workers": workers, "device": "cuda",
    }  # fmt: skip
    if feed == FEEDS[0]:
        return FastLoader(Listed(files, v1.Compose([*crop, v1.ToTensor(), v1.Normalize(MEAN, STD)])), fuse="close", **settings)
    data = Listed(files, v1.Compose([*crop, v1.ToTensor(), v1.Normalize(MEAN, STD)]))
    swap = Swap(split(data.transform), find(data))
    module = swap.module()
    return FastLoader(swap.dataset(data), augment=lambda batch: module(*batch), **settings)


class Listed(ImageFolder):
    """An `ImageFolder` of a list of files."""

    def __init__(self, samples: list[tuple[str, int]], transform: Any) -> None:
        self.samples = self.imgs = samples
        self.targets = [label for _, label in samples]
        self.loader, self.transform, self.target_transform = default_loader, transform, None
        self.transforms = StandardTransform(transform)


@pytest.mark.parametrize("feed", FEEDS)
def test_training_is_fed(feed: str, jpegs: list[Path], trained: Trained, note: Note) -> None:
    workers = min(16, len(os.sched_getaffinity(0)))
    fed = fed_by(feed, jpegs, workers)
    same = (torch.rand(BATCH, 3, SIDE, SIDE, device="cuda"), torch.zeros(BATCH, dtype=torch.int64, device="cuda"))
    trained.rate([same] * 5)
    trained.rate(fed)
    synthetic, real = trained.rate([same] * len(fed)), trained.rate(fed)
    note("ResNet-50 in bfloat16, synthetic data", f"{synthetic:,.0f} images/s")
    told = f"{real:,.0f} images/s: {real / synthetic:.0%} (wanted: 95 %)"
    note(f"ResNet-50 in bfloat16, from JPEG files, {feed}, {workers} CPUs", told)
    assert real > 0


def test_memory_is_given_back() -> None:
    images = pictures(32, SIDE, SIDE)
    augment, calls = Augment(), calls_of([*LISTS["RandomResizedCrop"], *REST], images)
    images = images.cuda()
    augment(images, calls)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(5):
        augment(images, calls)
    assert torch.cuda.memory_allocated() == before
