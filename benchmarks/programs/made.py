"""The dataset and the model that these programs train on: slow to make by a sleep, so that a loop waits a known part."""

from __future__ import annotations

import time

import torch
from torch import nn
from torch.utils.data import Dataset

torch.set_num_threads(1)


class Made(Dataset):
    def __init__(self, length: int = 320, seconds: float = 0.002) -> None:
        self.length, self.seconds = length, seconds

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int):
        if index >= self.length:
            raise IndexError(index)
        time.sleep(self.seconds)
        return torch.full((8,), index / self.length) + 0.1 * torch.rand(8), index % 2


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))


def work(seconds: float = 0.012) -> None:
    """What a step takes besides."""
    time.sleep(seconds)


def step(
    net: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor, seconds: float = 0.012
) -> torch.Tensor:
    """A training step; its loss."""
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    work(seconds)
    return loss
