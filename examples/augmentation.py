"""Small pictures that lie in memory, and a long list of transforms: nothing is read or decoded, and the step waits all the same.

Slow on purpose: each picture is transformed by itself on the CPU, though the list could run on whole batches.
"""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

COUNT = int(os.environ.get("EXAMPLE_SAMPLES", "512"))


class Pictures(Dataset):
    def __init__(self) -> None:
        self.pixels = torch.randint(0, 255, (COUNT, 3, 96, 96), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
        self.transform = v2.Compose(
            [
                v2.RandomResizedCrop(96, antialias=True),
                v2.RandomHorizontalFlip(),
                v2.ColorJitter(0.4, 0.4, 0.4, 0.1),
                v2.GaussianBlur(9),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
            ]
        )

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int):
        return self.transform(self.pixels[index]), index % 10


train_loader = DataLoader(Pictures(), batch_size=32, shuffle=True, num_workers=2)

torch.set_num_threads(1)
model = nn.Sequential(nn.Conv2d(3, 16, 8, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def train_step(batch):
    images, labels = batch
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()


if __name__ == "__main__":
    for batch in train_loader:
        train_step(batch)
