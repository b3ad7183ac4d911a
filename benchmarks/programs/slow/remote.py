"""Samples of a store that answers slowly, one at a time; trains at module level."""

import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
folder, epochs = Path(sys.argv[1]) / "small", int(sys.argv[2])


class Remote(Dataset):
    def __init__(self):
        self.paths = sorted(folder.glob("*.npy"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        time.sleep(0.004)  # the store's answer
        return torch.from_numpy(np.load(self.paths[index]))


torch.manual_seed(0)
loader = DataLoader(Remote(), batch_size=16, shuffle=True, num_workers=0)
model = torch.nn.Linear(64, 1)
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(epochs):
    for batch in loader:
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
