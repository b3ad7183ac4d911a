"""A small network trained with its augmentation on the CPU as written, and swapped: do the final losses differ by more than seeds do?

Pictures of four classes of shapes with noise; RandomResizedCrop, flip, colour jitter, normalise; several seeds each way. The losses on
held-out pictures are compared by a permutation test of the difference of means.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from benchmarks.harness.bar import Bar, at_least
from benchmarks.harness.page import rows
from benchmarks.harness.record import Record
from pipefix.augment.split import split
from pipefix.augment.swap import Swap
from pipefix.augment.transforms import find

TITLE = "The same training, swapped"
ISSUE = "5, bar 6"
MINUTES = 4
QUICK = {"seeds": 1, "epochs": 1}
PICTURES = 768
SIZE = 32
MEAN, STD = (0.5,) * 3, (0.25,) * 3
TRAIN = transforms.Compose(
    [
        transforms.RandomResizedCrop(SIZE, scale=(0.4, 1.0)),
        transforms.RandomHorizontalFlip(),
        transforms.ColorJitter(0.4, 0.4, 0.4, 0.1),
        transforms.ToTensor(),
        transforms.Normalize(MEAN, STD),
    ]
)
PLAIN = transforms.Compose([transforms.Resize((SIZE, SIZE)), transforms.ToTensor(), transforms.Normalize(MEAN, STD)])


class Shapes(Dataset[Any]):
    """Drawn from a seed: an ellipse, a box, a triangle or a cross, with noise over everything."""

    def __init__(self, count: int, seed: int, transform: Any) -> None:
        self.transform = transform
        rng = np.random.default_rng(seed)
        self.items = [(self._picture(rng, number % 4), number % 4) for number in range(count)]

    @staticmethod
    def _picture(rng: Any, kind: int) -> Image.Image:
        width, height = rng.integers(36, 60, 2)
        image = Image.new("RGB", (int(width), int(height)), tuple(int(one) for one in rng.integers(0, 90, 3)))
        draw, colour = ImageDraw.Draw(image), tuple(int(one) for one in rng.integers(140, 256, 3))
        x, y = rng.integers(4, 12, 2).tolist()
        right, bottom = x + int(rng.integers(14, 22)), y + int(rng.integers(14, 22))
        if kind == 0:
            draw.ellipse((x, y, right, bottom), fill=colour)
        elif kind == 1:
            draw.rectangle((x, y, right, bottom), fill=colour)
        elif kind == 2:
            draw.polygon(((x, bottom), (right, bottom), ((x + right) / 2, y)), fill=colour)
        else:
            draw.line((x, y, right, bottom), fill=colour, width=4)
            draw.line((x, bottom, right, y), fill=colour, width=4)
        noisy = np.asarray(image).astype(np.float64) + rng.normal(0, 8, (int(height), int(width), 3))
        return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        picture, kind = self.items[index]
        return self.transform(picture), kind


def model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, stride=2), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, stride=2), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 4),
    )  # fmt: skip


def train(seed: int, target: str | None, data: Shapes, held: Shapes, epochs: int) -> tuple[float, float]:
    """Final training loss (mean of the last epoch) and the loss on held-out pictures."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    network = model()
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    dataset: Any = data
    augment = None
    if target is not None:
        place = find(data)
        assert place is not None
        made = Swap(split(place.value, target), place)
        dataset, augment = made.dataset(data), made.module()
    loader = DataLoader(dataset, 64, shuffle=True, drop_last=True)
    last = 0.0
    for _ in range(epochs):
        losses = []
        for batch in loader:
            images, labels = batch if augment is None else augment(*batch)
            loss = nn.functional.cross_entropy(network(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        last = statistics.mean(losses)
        schedule.step()
    network.eval()
    with torch.no_grad():
        found = [nn.functional.cross_entropy(network(images), labels) for images, labels in DataLoader(held, 128)]
    return last, float(torch.stack(found).mean())


def p_value(one: list[float], other: list[float]) -> float:
    """Of the difference of means, over all ways to share the losses out between the two sides."""
    both, size = [*one, *other], len(one)
    seen = abs(statistics.mean(one) - statistics.mean(other))
    total = sum(both)
    gaps = []
    for chosen in itertools.combinations(range(len(both)), size):
        part = sum(both[place] for place in chosen)
        gaps.append(abs(part / size - (total - part) / (len(both) - size)))
    return sum(gap >= seen - 1e-12 for gap in gaps) / len(gaps)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=8)


def measure(options: argparse.Namespace, record: Record) -> bool:
    data, held = Shapes(PICTURES, 0, TRAIN), Shapes(PICTURES // 2, 1, PLAIN)
    losses: dict[str, list[Any]] = record.body.setdefault("losses", {"as written": [], "kornia": []})
    for seed in range(options.seeds):
        for name, done in losses.items():
            if seed < len(done):
                continue
            if record.over():
                return False
            done.append(train(seed, None if name == "as written" else name, data, held, options.epochs))
            record.save()
            print(f"seed {seed} {name:10s} train {done[-1][0]:.4f} held out {done[-1][1]:.4f}", file=sys.stderr)
    base = losses["as written"]
    record.body["least_p"] = min(
        p_value([one[place] for one in base], [one[place] for one in done])
        for name, done in losses.items()
        if name != "as written"
        for place in range(2)
    )
    return True


def bars(body: dict[str, Any]) -> list[Bar]:
    return [at_least("least p of a permutation test that the losses differ", body["least_p"], 0.05)]


def table(body: dict[str, Any]) -> str:
    base, cells = body["losses"]["as written"], []
    for name, losses in body["losses"].items():
        row = [name]
        for place in range(2):
            values = [one[place] for one in losses]
            p = "" if name == "as written" else f" (p {p_value([one[place] for one in base], values):.2f})"
            row.append(f"{statistics.mean(values):.4f} ± {statistics.stdev(values) if len(values) > 1 else 0:.4f}{p}")
        cells.append(row)
    return f"""
A small convolutional network, {PICTURES} pictures, {len(base)} seeds each way: mean and standard deviation over seeds, and the p of a
permutation test against the list as written (below 0.05 would tell them apart).

{rows(["augmentation", "final training loss", "loss on held-out pictures"], cells)}"""
