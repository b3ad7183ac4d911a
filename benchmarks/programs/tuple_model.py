import torch
from made import Made, model, work
from meter import timed
from torch import nn
from torch.utils.data import DataLoader


class Both(nn.Module):
    """Returns its output and its loss, as language models do."""

    def __init__(self) -> None:
        super().__init__()
        self.net = model()

    def forward(self, x, y):
        out = self.net(x)
        return out, nn.functional.cross_entropy(out, y)


torch.manual_seed(3)
both = Both()
optimizer = torch.optim.SGD(both.parameters(), lr=0.1)
for _epoch in range(3):
    for x, y in timed(DataLoader(Made(160, 0.0005), batch_size=4, shuffle=True)):
        optimizer.zero_grad()
        _, loss = both(x, y)
        loss.backward()
        optimizer.step()
        work(0.02)
    print(loss.item().hex())
