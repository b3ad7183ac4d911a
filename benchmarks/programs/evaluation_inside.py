import time

import torch
from made import Made, model, work
from meter import apart, timed
from torch.utils.data import DataLoader

torch.manual_seed(5)
net = model()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
train, val = DataLoader(Made(480), batch_size=8, shuffle=True), DataLoader(Made(64), batch_size=8)


@torch.no_grad()
def evaluate() -> float:
    net.eval()
    right = sum((net(x).argmax(1) == y).sum().item() for x, y in val)
    net.train()
    return right / 64


for step, (x, y) in enumerate(timed(train)):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()
    work(0.02)
    if step % 20 == 10:
        begun = time.perf_counter()
        print(step, evaluate())
        apart(time.perf_counter() - begun)
