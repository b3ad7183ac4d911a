"""A job of several ranks with one thing planted: which rank, and what."""

import argparse
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler, SequentialSampler

parser = argparse.ArgumentParser()
parser.add_argument("--fault", default="none")
parser.add_argument("--rank", type=int, default=-1)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--steps", type=int, default=150)
args = parser.parse_args()
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
guilty = args.fault if rank == args.rank else "none"


class Made(Dataset):
    def __len__(self) -> int:
        return 2 * args.steps * world

    def __getitem__(self, index: int):
        if guilty == "storage":
            time.sleep(0.006)
        until = time.thread_time() + (0.006 if guilty == "decode" else 0.0)
        while time.thread_time() < until:
            pass
        time.sleep(0.001)
        return torch.full((8,), 1.0)


def begin(_worker: int) -> None:
    if guilty == "start":
        time.sleep(4.0)


torch.manual_seed(0)
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
data = Made()
if args.fault == "same samples":
    sampler = SequentialSampler(data)
elif args.fault == "uneven" and rank == args.rank:
    sampler = DistributedSampler(torch.utils.data.Subset(data, range(len(data) - 16 * world)), shuffle=False)
else:
    sampler = DistributedSampler(data, shuffle=True)
workers = max(1, args.workers) if args.fault == "start" else args.workers
loader = DataLoader(data, batch_size=2, sampler=sampler, num_workers=workers, worker_init_fn=begin)
epochs = 3 if args.fault == "same order" else 2
most = args.steps // epochs
for epoch in range(epochs):
    if args.fault != "same order" and hasattr(sampler, "set_epoch"):
        sampler.set_epoch(epoch)
    with net.join() if args.fault == "uneven" else torch.enable_grad():
        for number, x in enumerate(loader):
            optimizer.zero_grad()
            time.sleep(0.012 if guilty == "step" else 0.0)
            time.sleep(0.008)
            net(x).square().mean().backward()
            optimizer.step()
            if number == most and args.fault in ("none", "storage", "decode", "step", "start"):
                break
dist.destroy_process_group()
