"""Compressed arrays, cut at random and normalised."""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Volumes(Dataset):
    def __init__(self, folder):
        self.paths = sorted(Path(folder).glob("*.npz"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with np.load(self.paths[index]) as file:
            volume = file["volume"]
        top, left = torch.randint(0, 32, (2,)).tolist()
        part = volume[:, top : top + 64, left : left + 64].astype(np.float32)
        return torch.from_numpy((part - 100.0) / 50.0)


class Trainer:
    def __init__(self, args):
        self.epochs = args.epochs
        self.loader = DataLoader(Volumes(f"{args.data}/volumes"), batch_size=8, shuffle=True, num_workers=1)
        self.model = torch.nn.Conv2d(16, 2, 3, stride=8)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def fit(self):
        for epoch in range(self.epochs):
            for batch in self.loader:
                self.optimizer.zero_grad()
                loss = self.model(batch).square().mean()
                loss.backward()
                self.optimizer.step()
            print(epoch, loss.item())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--epochs", type=int, default=1)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    Trainer(parser.parse_args()).fit()
