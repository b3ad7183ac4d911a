import tempfile

import numpy as np
import torch
from made import work

torch.manual_seed(6)
with tempfile.TemporaryFile() as file:
    np.arange(100_000, dtype=np.uint16).tofile(file)
    data = np.memmap(file, dtype=np.uint16, mode="r")


def get_batch():
    starts = torch.randint(len(data) - 9, (8,))
    return torch.stack([torch.from_numpy(data[s : s + 8].astype(np.float32)) for s in starts]) / 100_000


class Net(torch.nn.Linear):
    def forward(self, batch):
        work(0.01)
        return super().forward(batch)


net = Net(8, 8)
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(200):
    optimizer.zero_grad()
    loss = net(get_batch()).square().mean()
    loss.backward()
    optimizer.step()
print(loss.item().hex())
