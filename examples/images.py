"""Photographs of 1600x1200 pixels, decoded whole to be cropped to 224: what most folders of pictures are trained from.

Slow on purpose: no workers, and five sixths of each decoded picture are thrown away.
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
FOLDER = Path(__file__).parent / "data" / f"images-{COUNT}"


def draw() -> None:
    """Smooth colours, edges and grain, from a seed: about 300 kB each."""
    for number in range(COUNT):
        path = FOLDER / ("cats", "dogs")[number % 2] / f"{number:04d}.jpg"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            random = np.random.default_rng(number)
            small = Image.fromarray(random.integers(0, 255, (12, 16, 3), dtype=np.uint8))
            grain = random.normal(0, 6, (1200, 1600, 1))
            pixels = np.asarray(small.resize((1600, 1200), Image.Resampling.BICUBIC)) + grain
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path, quality=85)


draw()
data = ImageFolder(
    FOLDER,
    transforms.Compose(
        [
            transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    ),
)
train_loader = DataLoader(data, batch_size=16, shuffle=True)

torch.set_num_threads(1)
model = nn.Sequential(nn.Conv2d(3, 16, 8, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def train_step(batch):
    images, labels = batch
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()


if __name__ == "__main__":
    for _ in range(3):
        for batch in train_loader:
            train_step(batch)
