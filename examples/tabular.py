"""A table of readings in many small CSV files, one a customer, parsed each time a customer is drawn.

Slow on purpose: a row of numbers is read as text, split and converted in every epoch.
"""

import csv
import os
import random
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

COUNT = int(os.environ.get("EXAMPLE_SAMPLES", "2000"))
FOLDER = Path(__file__).parent / "data" / f"tabular-{COUNT}"
ROWS, COLUMNS = 64, 12


def write() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for number in range(COUNT):
        path = FOLDER / f"{number:05d}.csv"
        if not path.exists():
            chance = random.Random(number)
            rows = ([f"{chance.gauss(0, 1):.6f}" for _ in range(COLUMNS)] for _ in range(ROWS))
            path.write_text("\n".join(",".join(row) for row in rows) + "\n", encoding="utf-8")


class Customers(Dataset):
    def __init__(self) -> None:
        write()
        self.paths = sorted(FOLDER.glob("*.csv"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int):
        with open(self.paths[index], newline="", encoding="utf-8") as file:
            values = torch.tensor([[float(cell) for cell in row] for row in csv.reader(file)])
        return (values - values.mean(0)) / values.std(0), values[0, 0]


train_loader = DataLoader(Customers(), batch_size=64, shuffle=True)

torch.set_num_threads(1)
model = nn.Sequential(nn.Flatten(), nn.Linear(ROWS * COLUMNS, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def train_step(batch):
    values, wanted = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(values).squeeze(1), wanted)
    loss.backward()
    optimizer.step()
    return loss


if __name__ == "__main__":
    for batch in train_loader:
        train_step(batch)
