"""Two ranks that train on one machine: torchrun --nproc-per-node 2 examples/ddp.py

Slow on purpose: each rank makes its batches in its own training process, and rank 1 reads its samples from a slower disk.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Waves(Dataset):
    def __init__(self, count: int, disk_s: float) -> None:
        self.count, self.disk_s = count, disk_s

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int):
        time.sleep(self.disk_s)  # in the place of a read
        wave = torch.linspace(0, 6.28 * (1 + index % 7), 2048).sin()
        return wave + 0.1 * torch.randn(2048), index % 7


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=int(os.environ.get("EXAMPLE_SAMPLES", "8000")))
    parser.add_argument("--epochs", type=int, default=1)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    data = Waves(options.samples, disk_s=0.001 if rank == 0 else 0.002)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    torch.set_num_threads(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(2048, 64), nn.ReLU(), nn.Linear(64, 7)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        for waves, kinds in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(waves), kinds).backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
