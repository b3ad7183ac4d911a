"""Rows of JSON lines that are parsed again in every epoch."""

import argparse
import json

import torch
from torch.utils.data import DataLoader, Dataset


class Records(Dataset):
    def __init__(self, path):
        self.path = path
        self.offsets = []
        with open(path, "rb") as file:
            while line := file.readline():
                self.offsets.append((file.tell() - len(line), len(line)))

    def __len__(self):
        return len(self.offsets)

    def __getitem__(self, index):
        offset, length = self.offsets[index]
        with open(self.path, "rb") as file:
            file.seek(offset)
            record = json.loads(file.read(length))
        return torch.tensor(record["values"]), record["label"]


def train(args):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Records(f"{args.data}/records.jsonl"), batch_size=32, shuffle=True)
    model = torch.nn.Linear(4096, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for epoch in range(args.epochs):
        for values, labels in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(values), labels)
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--epochs", type=int, default=1)
    train(parser.parse_args())
