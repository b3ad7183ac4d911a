"""Photographs read by four workers that share one core, as under `srun` without --cpus-per-task: the disk is what gets blamed.

Slow on purpose: whoever looks at the processes sees four of them waiting, and suspects what they read from.
"""

import os
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

COUNT = int(os.environ.get("EXAMPLE_SAMPLES", "256"))
FOLDER = Path(__file__).parent / "data" / f"photographs-{COUNT}"

if hasattr(os, "sched_setaffinity"):  # what the scheduler of a cluster does
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def draw() -> None:
    """Smooth colours from a seed."""
    for number in range(COUNT):
        path = FOLDER / ("cats", "dogs")[number % 2] / f"{number:04d}.jpg"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            small = np.random.default_rng(number).integers(0, 255, (12, 16, 3), dtype=np.uint8)
            Image.fromarray(small).resize((640, 480), Image.Resampling.BICUBIC).save(path, quality=90)


draw()
data = ImageFolder(FOLDER, transforms.Compose([transforms.CenterCrop(224), transforms.ToTensor()]))
train_loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=4, persistent_workers=True)

torch.set_num_threads(1)
model = nn.Sequential(nn.Conv2d(3, 8, 8, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def train_step(batch):
    images, labels = batch
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()


if __name__ == "__main__":
    for _ in range(3):
        for batch in train_loader:
            train_step(batch)
